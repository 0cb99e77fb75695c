"""Signals in every stage, SIGKILL, -x: nothing keeps running, the record is closed, what was measured is kept."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.table import stages_of

# Sends a signal to pytest at the moment a stage says that it begins: inside the stage, in the main thread.
SENDER = """
import logging, os, signal

class Sender(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "{stage} begins":
            os.kill(os.getpid(), signal.{signal})

def pytest_configure(config):
    logging.getLogger("pytest_aorta").addHandler(Sender())
"""
# Makes the terminal on its standard input its own, so that closing the other end hangs it up.
IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
ENTERED = [
    "test_launch_container", "test_clone_aorta", "test_run_benchmark", "test_collect_traces", "test_parse_results",
    "test_validate_thresholds", "test_generate_report", "test_teardown",
]  # fmt: skip


def interrupt(rig: Any, stage: str, name: str) -> str:
    (rig.path / "sender.py").write_text(SENDER.format(stage=stage, signal=name), "utf-8")
    return str(rig.run("-p", "sender", code=2))


@pytest.mark.parametrize("stage", ENTERED)
def test_sigterm_in_every_stage(rig: Any, stage: str) -> None:
    rig.configure("--pid-file", "pids")

    output = interrupt(rig, stage, "SIGTERM")

    assert rig.outcomes()[stage] == "interrupted"
    assert rig.reason(stage).startswith("interrupted by SIGTERM after ")
    record = rig.record()
    assert record["verdict"] == "interrupted"
    assert record["finished"] is not None
    assert rig.left_over() == []
    assert f"INTERRUPTED: {stage}: interrupted by SIGTERM" in output
    case = next(c for c in rig.junit().findall("testcase") if c.get("name") == stage)
    assert "interrupted by SIGTERM after" in str(case.find("failure").get("message"))
    assert "interrupted by SIGTERM after" in (rig.reports / "aorta_single.html").read_text("utf-8")


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_other_ending_signals(rig: Any, name: str) -> None:
    rig.configure()

    interrupt(rig, "test_run_benchmark", name)

    assert rig.reason("test_run_benchmark").startswith(f"interrupted by {name} after ")
    assert [c.get("name") for c in rig.junit().findall("testcase")][-1] == "test_run_benchmark"


BETWEEN = """
import os, signal
import pytest

@pytest.hookimpl({order}=True)
def pytest_runtest_logreport(report):
    if (report.nodeid.rpartition("::")[2], report.when) == ("{test}", "{when}"):
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("order", "test", "when", "letters", "last"),
    [
        ("tryfirst", "test_collect_traces", "setup", "PPSPI", ("test_collect_traces", "failure", " after 0 s")),
        ("tryfirst", "test_collect_traces", "call", "PPSPP", ("test_analyze", "error", "")),
        ("trylast", "test_run_benchmark", "teardown", "PPSP", ("test_collect_traces", "error", "")),
        ("trylast", "test_mine", "setup", "PPSPPSPPPP", ("test_mine", "error", "")),
        ("trylast", "test_teardown", "call", "PPSPPSPPPP", ("interruption", "error", "")),
    ],
)
def test_a_signal_beside_the_stages_leaves_no_test_without_a_name(
    rig: Any, order: str, test: str, when: str, letters: str, last: tuple[str, str, str]
) -> None:
    (rig.path / "sender.py").write_text(BETWEEN.format(order=order, test=test, when=when), "utf-8")
    (rig.path / "test_mine.py").write_text("def test_mine():\n    pass\n", "utf-8")
    rig.configure()

    output = rig.run("-p", "sender", "test_mine.py", code=2)

    name, kind, more = last
    assert rig.letters() == letters
    suite = rig.junit()
    cases = suite.findall("testcase")
    assert cases[-1].get("name") == name
    assert cases[-1].find(kind).get("message").removeprefix("Failed: ") == f"interrupted by SIGTERM{more}"
    assert cases[-1].get("classname") == ("test_mine" if name == "test_mine" else "aorta_single")
    assert [case for case in cases if not case.get("name")] == []
    assert (suite.get("failures"), suite.get("errors")) == (("1", "0") if kind == "failure" else ("0", "1"))
    passed = letters.count("P")
    assert f"{passed} passed" in output
    assert f"{passed} passed" in (rig.reports / "aorta_single.html").read_text("utf-8")
    assert rig.record()["verdict"] == "interrupted"


def test_ctrl_c_while_the_workload_runs_ends_it_and_keeps_its_log(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5", "--pid-file", "pids", "--ignore-term")
    child = rig.start()
    pids = waiter.pids(rig.path / "pids")

    os.killpg(child.pid, signal.SIGINT)
    output, _ = child.communicate(timeout=90)

    assert child.returncode == 2, output
    waiter.gone(pids)
    assert rig.letters() == "PPSI"
    assert '"aorta": "step"' in (rig.folder / "benchmark-node-0.log").read_text("utf-8")
    assert rig.left_over() == []


def test_second_signal_does_not_stop_the_cleaning_up(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5", "--pid-file", "pids", "--ignore-term")
    child = rig.start()
    pids = waiter.pids(rig.path / "pids")

    child.send_signal(signal.SIGTERM)
    waiter.until("the run says that it cleans up", lambda: not waiter.alive(pids[0]) or waiter.sleeping(child.pid))
    child.send_signal(signal.SIGTERM)
    output, _ = child.communicate(timeout=90)

    assert child.returncode == 2, output
    waiter.gone(pids)
    assert rig.record()["verdict"] == "interrupted"


def test_ctrl_c_again_and_again_until_the_last_moment_is_one_interruption(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5", "--pid-file", "pids")
    child = rig.start()
    pids = waiter.pids(rig.path / "pids")

    while child.poll() is None:
        child.send_signal(signal.SIGINT)
        time.sleep(0.02)
    output, _ = child.communicate()

    assert child.returncode == 2, output
    assert "Traceback" not in output
    waiter.gone(pids)


def test_closing_the_terminal_is_an_interruption_like_any_other(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5", "--pid-file", "pids")
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, *rig.command("--aorta-config=config.json", "-q")], cwd=rig.path,
        env=rig.environment(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    rig.children.append(child)
    os.close(theirs)
    pids = waiter.pids(rig.path / "pids")

    os.close(ours)

    assert child.wait(90) == 2
    waiter.gone(pids)
    assert rig.reason("test_run_benchmark").startswith("interrupted by SIGHUP after ")
    assert list(rig.reports.glob("*.zip"))


def test_sigkill_leaves_nothing_running_and_aorta_clean_does_the_rest(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5", "--pid-file", "pids")
    child = rig.start()
    pids = waiter.pids(rig.path / "pids")
    running = rig.aorta("runs", "show", "last", code=0)
    refused = rig.pytest("-k", "test_validate_thresholds", code=4)

    child.kill()
    child.wait()

    waiter.gone(pids)
    assert f"RUNNING: its pytest (pid {child.pid}) still runs; no verdict yet" in running
    assert f"is still going on (pytest has pid {child.pid})" in refused
    assert "abandoned" in rig.aorta("runs", code=0)
    abandoned = rig.aorta("runs", "show", "last", code=0)
    assert f"ABANDONED: its pytest (pid {child.pid}) is gone, and it has no verdict; see `aorta clean " in abandoned
    assert "PASSED" not in running + abandoned
    rig.aorta("runs", "show", "last", "--html", "--output", "deck.html", code=0)
    assert "INTERRUPTED" in (rig.path / "deck.html").read_text("utf-8")
    assert rig.left_over() != []
    output = rig.aorta("clean", code=0)
    assert rig.folder.name in output
    assert rig.left_over() == []
    record = rig.record()
    assert (record["verdict"], record["finished"] is not None) == ("interrupted", True)
    assert "nothing to clean" in rig.aorta("clean", code=0)


def test_kill_in_the_first_stage_leaves_nothing_that_clean_does_not_find(rig: Any, waiter: Any) -> None:
    (rig.path / "sender.py").write_text(
        SENDER.replace('== "{stage} begins"', '.endswith("CPUs")').format(signal="SIGKILL"), "utf-8"
    )
    rig.configure()
    rig.run("-p", "sender", code=-signal.SIGKILL)

    waiter.until("the node program has left its state", lambda: rig.left_over() != [])
    rig.aorta("clean", code=0)

    assert rig.left_over() == []


def test_running_run_is_not_cleaned(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5", "--pid-file", "pids")
    child = rig.start()
    pids = waiter.pids(rig.path / "pids")

    output = rig.aorta("clean", rig.folder.name[:12], code=2)

    assert "is running now" in output
    assert "running" in rig.aorta("runs", code=0)
    assert waiter.alive(pids[0])
    child.terminate()
    child.communicate(timeout=90)
    waiter.gone(pids)


def test_minus_x_closes_the_run_as_interrupted(rig: Any) -> None:
    rig.configure("--exit", "3")

    rig.run("-x", code=2)

    assert rig.letters() == "PPSF"
    record = rig.record()
    assert record["verdict"] == "interrupted"
    assert "pytest stopped before test_collect_traces" in record["sentence"]
    assert rig.left_over() == []


def test_minus_x_at_the_last_stage_is_an_ordinary_failure(rig: Any) -> None:
    rig.configure()
    (rig.path / "breaker.py").write_text(
        "import logging, shutil\n"
        "class Breaker(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        if record.getMessage() == 'test_teardown begins':\n"
        "            for path in __import__('pathlib').Path('work').glob('*/.*'):\n"
        "                path.unlink()\n"
        "def pytest_configure(config):\n"
        "    logging.getLogger('pytest_aorta').addHandler(Breaker())\n",
        "utf-8",
    )

    rig.run("-x", "-p", "breaker", code=1)

    assert rig.outcomes()["test_teardown"] == "failed"
    assert rig.record()["verdict"] == "could_not_measure"


def test_full_disk_fails_with_a_sentence_and_closes_the_record(rig: Any, small_disk: Path) -> None:
    rig.configure("--steps", "40", output_dir=str(small_disk / "results"))
    (rig.path / "filler.py").write_text(
        "import logging\n"
        "class Filler(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        if record.getMessage() == 'test_collect_traces begins':\n"
        f"            with open({str(small_disk / 'fill')!r}, 'wb') as stream:\n"
        "                try:\n"
        "                    while True:\n"
        "                        stream.write(bytes(4096)); stream.flush()\n"
        "                except OSError:\n"
        "                    pass\n"
        "def pytest_configure(config):\n"
        "    logging.getLogger('pytest_aorta').addHandler(Filler())\n",
        "utf-8",
    )

    rig.run("-p", "filler", code=1)

    (record_file,) = (small_disk / "results").glob("*/run.json")
    record = json.loads(record_file.read_text("utf-8"))
    assert record["finished"] is not None
    assert record["verdict"] in {"could_not_measure", "failed"}
    assert "No space left on device" in record["sentence"]
    assert rig.left_over() == []


def test_every_stage_of_a_single_run_was_interrupted_or_skips_by_configuration() -> None:
    skipped = {"test_build_rccl", "test_analyze"}
    assert {stage.test for stage in stages_of("single")} == {*ENTERED, *skipped}


def test_a_run_that_is_killed_leaves_no_verdict_of_the_run_before(rig: Any, waiter: Any) -> None:
    rig.configure("--exit", "3")
    rig.run(code=1)
    assert (rig.reports / "verdict.json").exists()
    (rig.reports / "aorta_single_html" / "notes.txt").write_text("mine")
    rig.configure("--hang-at", "3", "--pid-file", "pids")

    child = rig.start()
    waiter.pids(rig.path / "pids")
    child.kill()
    child.wait()

    left = {path.name for path in rig.reports.rglob("*") if path.is_file() and path.suffix not in {".zip", ".css"}}
    assert left == {
        "last_run.json", "aorta_single.log", "notes.txt", "test_launch_container.html", "test_clone_aorta.html"
    }  # fmt: skip
