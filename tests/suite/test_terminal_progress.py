from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from pytest_aorta.suite.terminal import last_lines

pytest_plugins = ["pytester"]

CONFTEST = r"""
import pytest
from pytest_aorta.checks import Bound, Check
from pytest_aorta.reporting.model import RunView, StageRow
from pytest_aorta.suite.terminal import Progress, write_summary

@pytest.fixture(scope="session")
def progress(request):
    found = request.config.pluginmanager.get_plugin("aorta-progress")
    return found

def pytest_sessionstart(session):
    session.config.pluginmanager.register(Progress(session.config), "aorta-progress")

def pytest_terminal_summary(terminalreporter):
    check = Check(label="[threshold] (metric=max_a_ms)", state="failed", actual=20.0, unit="ms",
                  gate=Bound(kind="max", limit=10, unit="ms"))
    write_summary(terminalreporter, RunView(
        "0123", "aorta_single", "failed", "1 of 1 gates failed", next_step="look at rank 3",
        stages=(StageRow("test_validate_thresholds", "failed", checks=(check,)),),
        paths=(("report", "aorta_reports/aorta_single.html"),)), "aorta_single")
"""
STAGES = """
import threading

def test_run_benchmark(progress):
    print("captured by pytest")
    for step in range(50):
        progress(f"step {step} of 50, loss {3 / (step + 1):.3f}")
    progress("gathering traces")
    other = threading.Thread(target=progress, args=("from another thread",))
    other.start()
    other.join()

def test_teardown(progress):
    progress("removing")
"""
# Makes the pseudo-terminal its own, then starts pytest as a job in the background of it, as a shell's & does.
IN_BACKGROUND = """
import fcntl, os, subprocess, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(subprocess.run(sys.argv[1:], process_group=0).returncode)
"""
STAMP = r"\[aorta \+\d+\.\ds\] "


def run_in_terminal(
    pytester: pytest.Pytester, *args: str, launcher: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> str:
    """Run pytest on a real pseudo-terminal and give what it drew."""
    controller, terminal = pty.openpty()
    dropped = ("CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment |= {"TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment |= variables or {}
    argv = [*launcher, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    with subprocess.Popen(argv, cwd=pytester.path, stdin=terminal, stdout=terminal, stderr=terminal, env=environment):
        os.close(terminal)
        drawn = b""
        with os.fdopen(controller, "rb", buffering=0) as screen:
            while True:
                try:
                    part = screen.read(65536)
                except OSError:  # Linux says so when the other end is closed
                    break
                if not part:
                    break
                drawn += part
    return drawn.decode()


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_stages=STAGES)
    return pytester


def test_in_a_log_changes_of_words_are_full_lines(suite: pytest.Pytester) -> None:
    result = suite.runpytest_inprocess()
    lines = [line for line in result.outlines if line.startswith("[aorta")]
    assert [re.sub(STAMP, "", line) for line in lines] == ["step 0 of 50, loss 3.000", "gathering traces", "removing"]
    assert result.ret == 0


@pytest.mark.parametrize("args", [("-q",), ("-p", "no:terminal")])
def test_quiet_or_without_terminal_there_is_no_progress(suite: pytest.Pytester, args: tuple[str, ...]) -> None:
    result = suite.runpytest_inprocess(*args)
    assert "[aorta" not in result.stdout.str()
    assert result.ret == 0


def test_in_a_terminal_one_line_is_rewritten_and_results_begin_a_new_one(suite: pytest.Pytester) -> None:
    drawn = run_in_terminal(suite, "-v")
    lines = drawn.split("\n")
    (live,) = [line for line in lines if "gathering traces" in line]
    assert live.count("\r[aorta +") >= 2
    assert "from another thread" not in drawn
    assert any("test_run_benchmark" in line and "PASSED" in line and "[aorta +" not in line for line in lines)


@pytest.mark.parametrize("variables", [{"CI": "true"}, {"TERM": "dumb"}])
def test_a_terminal_that_is_a_ci_or_dumb_gets_full_lines(suite: pytest.Pytester, variables: dict[str, str]) -> None:
    drawn = run_in_terminal(suite, variables=variables)
    assert "\r[aorta" not in drawn
    assert re.search(STAMP + r"gathering traces\r?\n", drawn)


def test_in_the_background_of_a_terminal_no_line_is_rewritten(suite: pytest.Pytester) -> None:
    drawn = run_in_terminal(suite, launcher=(sys.executable, "-c", IN_BACKGROUND))
    assert "\r[aorta" not in drawn
    assert re.search(STAMP + r"gathering traces\r?\n", drawn)


def test_no_color_is_obeyed_by_the_summary(suite: pytest.Pytester) -> None:
    coloured = run_in_terminal(suite)
    plain = run_in_terminal(suite, variables={"NO_COLOR": "1"})
    assert "\x1b[31m\x1b[1mFAILED: 1 of 1 gates failed" in coloured
    assert "\x1b[3" not in plain
    assert "FAILED: 1 of 1 gates failed" in plain


def test_summary_section(suite: pytest.Pytester) -> None:
    result = suite.runpytest_inprocess()
    result.stdout.fnmatch_lines(
        [
            "*= aorta =*",
            "FAILED: 1 of 1 gates failed",
            "gates: 1 of 1 failed",
            "*failed*max_a_ms*20.00 ms (max 10 ms)",
            "next: look at rank 3",
            "report: aorta_reports/aorta_single.html",
        ],
        consecutive=True,
    )


@pytest.mark.parametrize(("flag", "shown"), [("-q", True), ("-qq", False)])
def test_quiet_summary_is_the_verdict_and_the_next_step(suite: pytest.Pytester, flag: str, *, shown: bool) -> None:
    text = suite.runpytest_inprocess(flag).stdout.str()
    assert ("FAILED: 1 of 1 gates failed" in text) is shown
    assert ("next: look at rank 3" in text) is shown
    assert "report:" not in text


def test_the_end_of_a_log_is_short_however_long_its_lines_are() -> None:
    text = "\n".join([*(f"line {number}" for number in range(40)), "x" * 100_000])

    shown = last_lines(text).splitlines()

    assert shown[:2] == ["(16 lines above, see Full Log)", "line 16"]
    assert shown[-1].startswith("xxx")
    assert shown[-1].endswith("x … (99600 more characters, see Full Log)")
    assert len(shown[-1]) < 500
    assert last_lines("one\ntwo") == "one\ntwo"
