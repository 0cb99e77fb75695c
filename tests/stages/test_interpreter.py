"""The Python that starts the workload: what it tells of its torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_aorta.errors import FleetError
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.run.products import Accelerator
from pytest_aorta.stages.interpreter import PROBE, built_without, require_torch
from tests.run.test_context import context


def test_the_probe_tells_the_builds_version_without_importing_it() -> None:
    torch = pytest.importorskip("torch")
    checked = PROBE + "assert 'torch' not in sys.modules\n"
    found = json.loads(subprocess.run([sys.executable, "-c", checked], capture_output=True, check=True).stdout)

    assert found["torch"] == torch.__version__
    assert (found["cuda"], found["rocm"]) == (torch.version.cuda, torch.version.hip)
    assert bool(built_without("cuda", found)) is (torch.version.cuda is None)
    assert bool(built_without("rocm", found)) is (torch.version.hip is None)


def require(tmp_path: Path, stdout: str) -> None:
    answer = {"exit_code": 0, "stdout": stdout, "stderr": "", "timed_out": False}
    fleet = Fleet({"a": ScriptedTransport([Reply("run", answer)])})
    cluster = {"transport": "local", "node_dict": {"a": {"vpc_ip": "127.0.0.1"}}}
    run = context(tmp_path, fleet, cluster=cluster)
    try:
        require_torch(run, "cpu")
    finally:
        fleet.close()


def test_what_a_wrapper_prints_before_the_probe_does_no_harm(tmp_path: Path) -> None:
    require(tmp_path, 'module loaded\n{"python": "3.12", "torch": "2.11", "rocm": null, "cuda": null}\n')


@pytest.mark.parametrize("printed", ["loaded\n", "", "1\n", "{}\n"])
def test_a_python_that_does_not_answer_is_named_with_what_it_printed(tmp_path: Path, printed: str) -> None:
    with pytest.raises(FleetError, match=f"^a: .* it printed {re.escape(printed.strip() or 'nothing')};"):
        require(tmp_path, printed)


@pytest.mark.parametrize(
    ("accelerator", "rocm", "cuda", "said"),
    [
        ("rocm", None, None, "torch 2.11, built for the CPU only, and accelerator is rocm; install one for rocm there"),
        ("rocm", None, "13.0", "torch 2.11, built for cuda, and accelerator is rocm; install one for rocm there"),
        ("cuda", "6.4", None, "torch 2.11, built for rocm, and accelerator is cuda; install one for cuda there"),
        ("cuda", None, "13.0", ""),
        ("cpu", None, None, ""),
        ("rocm", "", "", ""),  # it does not tell
    ],
)
def test_a_torch_that_was_built_for_something_else(
    accelerator: Accelerator, rocm: str | None, cuda: str | None, said: str
) -> None:
    told = built_without(accelerator, {"torch": "2.11", "rocm": rocm, "cuda": cuda})
    assert told.startswith(said)
    assert bool(told) is bool(said)
