"""TraceLens in a process of its own: it prints, asks to install things and may need a dozen times the file's memory.

Run as a file, with what to do as one JSON argument; the answer is a JSON document in the file that it names. Anything
that goes wrong in TraceLens ends this process, and its last line on stderr says why.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGE = "TraceLens"
FUNCTION = "generate_perf_report_pytorch"
SHEET, TYPE, TIME_MS = "gpu_timeline", "type", "time ms"


def main() -> None:
    """Find TraceLens and, when a trace is given, write its GPU timeline."""
    asked: dict[str, str] = json.loads(sys.argv[1])
    package = importlib.import_module(PACKAGE)
    origin = str(getattr(package, "__file__", None) or next(iter(package.__path__)))
    generate = _function(package)
    if generate is None:
        _answer(asked, {"origin": origin, "refused": f"the package offers no {FUNCTION}"})
        return
    rows: dict[str, float] = {}
    if "trace" in asked:
        report = generate(profile_json_path=asked["trace"], output_csvs_dir=asked["folder"])
        table = report[SHEET]
        rows = {str(name): float(time_ms) for name, time_ms in zip(table[TYPE], table[TIME_MS], strict=True)}
    _answer(asked, {"origin": origin, "rows": rows})


def _function(package: Any) -> Callable[..., Any] | None:
    """Give the report function, which older versions have in a module of the same name below `Reporting`."""
    found = getattr(package, FUNCTION, None)
    if found is None:
        try:
            found = importlib.import_module(f"{PACKAGE}.Reporting.{FUNCTION}")
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(PACKAGE):
                raise
            return None
    found = getattr(found, FUNCTION, found)
    return found if callable(found) else None


def _answer(asked: dict[str, str], answer: dict[str, Any]) -> None:
    Path(asked["answer"]).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main()
