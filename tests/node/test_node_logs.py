"""Tailing: whole lines only, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pytest_aorta.fleet.ask import Event
from pytest_aorta.node.bounds import LIMIT_BYTES, Bound
from pytest_aorta.node.logs import BACKLOG_BYTES, LINE_LIMIT_BYTES, Tail


def test_a_line_is_given_when_its_end_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = Tail(str(log))
    assert tail.lines() == []
    with log.open("wb") as file:
        file.write(b"first\nsec")
        file.flush()
        assert tail.lines() == ["first"]
        assert tail.lines() == []
        file.write(b"ond\nlast")
        file.flush()
        assert tail.lines() == ["second"]
    assert tail.rest() == ["last"]


def test_a_carriage_return_ends_no_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"10%\r20%\r30%\ndone\r\n")
    tail = Tail(str(log))
    assert tail.lines() == ["10%\r20%\r30%", "done\r"]
    assert tail.rest() == []


def test_a_long_line_is_cut_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 1024 * 1024 + b"\nnext\n")
    tail = Tail(str(log))
    first, second = tail.rest()
    assert first == "x" * LINE_LIMIT_BYTES + f" [{1024 * 1024 - LINE_LIMIT_BYTES} bytes of this line cut]"
    assert second == "next"


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"caf\xe9\n")
    tail = Tail(str(log))
    assert tail.rest() == ["caf\ufffd"]


def test_a_log_that_was_cut_short_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old line\nold rest")
    tail = Tail(str(log))
    assert tail.lines() == ["old line"]
    log.write_bytes(b"new\n")
    assert tail.rest() == ["new"]


def test_a_flood_is_skipped_and_said_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = b"y" * 99 + b"\n"
    log.write_bytes(line * (2 * BACKLOG_BYTES // len(line)) + b"the end\n")
    tail = Tail(str(log))
    lines = tail.rest()
    assert "bytes of this log were not shown" in lines[0]
    assert lines[-1] == "the end"


def test_a_log_that_is_written_faster_than_it_can_be_read_is_given_at_a_pace(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("some line\n" * 100_000, "utf-8")
    tail = Tail(str(path))

    first = tail.paced(1000.0)
    assert len(first) > 10_000
    assert tail.paced(1000.1) == []
    assert tail.paced(1060.0)

    path.write_text("few\n", "utf-8")
    assert tail.paced(1120.0) == ["few"]
    with path.open("a") as log:
        log.write("more\n")
    assert tail.paced(1120.1) == ["more"]
    tail.rest()


def test_a_log_that_grows_for_ever_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = Tail(str(log))
    bound = Bound(str(log), tail, limit_bytes=4000)
    written, shown = [], []
    with log.open("ab", buffering=0) as file:
        for number in range(0, 6000, 20):
            lines = [f"line {each}" for each in range(number, number + 20)]
            written += lines
            file.write("".join(f"{line}\n" for line in lines).encode())
            shown += tail.lines()
            bound.hold()
            assert log.stat().st_size <= 4000
    kept = log.read_text().splitlines()
    [note] = [line for line in kept if line not in written]
    at = kept.index(note)
    assert kept[:at] == written[:at]
    assert kept[at + 1 :] == written[-len(kept) + at + 1 :]
    assert min(at, len(kept) - at) > 50
    gone = sum(len(line) + 1 for line in written[at : -len(kept) + at + 1])
    assert note == f"[{gone} bytes were left out here: this log grew too long]"
    assert [*shown, *tail.rest()] == written


def test_who_follows_hears_of_what_is_taken_out_before_it_was_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n")
    tail = Tail(str(log))
    assert tail.lines() == ["first"]
    with log.open("ab") as file:
        file.write(b"word\n" * 2000)
    Bound(str(log), tail, limit_bytes=4000).hold()
    said, *lines = tail.rest()
    assert said == "[9000 bytes of this log were not shown, they came too fast]"
    assert lines == ["word"] * 200


def test_the_log_of_a_group_is_bounded(
    start: Callable[..., int], until: Callable[[Callable[[Event], bool]], list[Event]], tmp_path: Path
) -> None:
    start("g", "echo begun; yes | head -c 150000000; sleep 0.2; echo done")  # apart from the moment of a cut
    until(lambda event: event.kind == "exited")
    log = (tmp_path / "g.log").read_bytes()
    assert len(log) <= LIMIT_BYTES
    assert log.startswith(b"begun\n")
    assert log.endswith(b"done\n")
    assert b" bytes were left out here" in log


def test_the_last_line_comes_before_the_end_of_the_group(
    start: Callable[..., int], until: Callable[[Callable[[Event], bool]], list[Event]]
) -> None:
    start("talk", "echo one; printf 'two\\rthree'; head -c 1048576 /dev/zero | tr '\\0' x; exit 4")
    events = until(lambda event: event.kind == "exited")
    lines = [line for event in events if event.kind == "lines" for line in event.data["lines"]]
    assert lines[0] == "one"
    assert lines[1].startswith("two\rthreexxx")
    assert "bytes of this line cut" in lines[1]
    assert events[-1].kind == "exited"
    assert events[-1].data["exit_code"] == 4


def test_a_log_that_became_a_link_or_a_pipe_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("secret\n")
    (tmp_path / "link").symlink_to("private")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        assert Tail(str(tmp_path / name)).rest() == []
