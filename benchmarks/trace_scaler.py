"""Make a large trace out of a real one: its events repeated, each copy later, in the very layout of the original.

Times, correlation and external ids, flow ids and step numbers go on from copy to copy, so that every link stays unique
and every total is a whole multiple. One copy is held in memory at a time.

    python benchmarks/trace_scaler.py SOURCE TARGET MB [--rank N]
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

GAP_US = 1000
_START = re.compile(r'"traceEvents"\s*:\s*\[')
_NUMBER = re.compile(rb'("ts":\s*|"correlation":\s*|"External [iI][dD]":\s*|"id":\s*|ProfilerStep#)(\d+)')
_RANK = re.compile(rb'("distributedInfo":\s*\{[^}]*?"rank":\s*)\d+')


def main() -> int:
    """Write the scaled trace and print, as JSON, how many copies it holds and how many bytes it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("mb", type=float, help="size in MB of 1,000,000 bytes, reached by whole copies")
    parser.add_argument("--rank", type=int, help="the rank that the file shall say it is of")
    options = parser.parse_args()
    print(json.dumps(scale(options.source, options.target, int(options.mb * 1e6), options.rank)))
    return 0


def scale(source: Path, target: Path, size_bytes: int, rank: int | None = None) -> dict[str, int]:
    """Write copies of the source's events until `size_bytes` are reached; give `copies`, `bytes`, `events`."""
    content = source.read_bytes()
    text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    found = _START.search(text)
    if found is None:
        raise SystemExit(f"{source}: has no traceEvents; expected a trace of the profiler")
    events, end = json.JSONDecoder().raw_decode(text, found.end() - 1)
    head, body, tail = (part.encode() for part in (text[: found.end()], text[found.end() : end - 1], text[end - 1 :]))
    if rank is not None:
        head, tail = (_RANK.sub(rb"\g<1>%d" % rank, part) for part in (head, tail))
    steps = _steps_of(events)
    num_copies = 0
    with target.open("wb") as file:
        written = file.write(head)
        while num_copies == 0 or written + len(tail) < size_bytes:
            written += file.write(b"," if num_copies else b"")
            written += file.write(_copy(body, steps, num_copies))
            num_copies += 1
        written += file.write(tail)
    return {"copies": num_copies, "bytes": written, "events": num_copies * len(events)}


def _steps_of(events: list[dict[str, Any]]) -> dict[bytes, int]:
    """Give by how much each kind of number goes on from copy to copy; times in whole µs."""
    timed = [(float(event["ts"]), float(event["dur"])) for event in events if event.get("ph") == "X"]
    args = [event.get("args") or {} for event in events]
    names = [str(event.get("name")) for event in events]
    numbers = [int(name.partition("#")[2]) for name in names if re.fullmatch(r"ProfilerStep#\d+", name)]

    def width(values: list[Any]) -> int:
        return max((value for value in values if isinstance(value, int)), default=0) + 1

    return {
        b"ts": int(max(start + duration for start, duration in timed) - min(timed)[0]) + GAP_US,
        b"correlation": width([arg.get("correlation") for arg in args]),
        b"external": width([arg.get("External id", arg.get("External ID")) for arg in args]),
        b"id": width([event.get("id") for event in events]),
        b"profilerstep": max(numbers) - min(numbers) + 1 if numbers else 0,
    }


def _copy(body: bytes, steps: dict[bytes, int], number: int) -> bytes:
    """Give the events of copy `number`; the fraction of a time is left as it is written."""
    if number == 0:
        return body
    offsets = {kind: step * number for kind, step in steps.items()}

    def later(found: re.Match[bytes]) -> bytes:
        kind = re.split(rb"[\s:#]", found[1].strip(b'"'), maxsplit=1)[0].strip(b'"').lower()
        return found[1] + b"%d" % (int(found[2]) + offsets[kind])

    return _NUMBER.sub(later, body)


if __name__ == "__main__":
    raise SystemExit(main())
