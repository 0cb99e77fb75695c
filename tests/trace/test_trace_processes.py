"""Processes that read traces end with the one that they work for: real processes, real signals."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE_S = 60
COMMAND_LINE = "from pytest_aorta.cli import main; main()"
RUN = """
import sys
from pathlib import Path
from pytest_aorta.run.interruption import Interruption, Interrupted
from pytest_aorta.trace.ranks import summarize

interruption = Interruption()
interruption.install()
try:
    summarize(Path("/"), [Path(name) for name in sys.argv[3:]], jobs=int(sys.argv[2].removeprefix("--jobs=")))
except Interrupted as error:
    sys.exit(str(error))
"""


class Endless:
    """A file that is being read and never ends."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.writer = -1

    def wait_for_reader(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.writer < 0:
            try:
                self.writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                assert time.monotonic() < deadline, "nobody reads"
                time.sleep(0.01)

    def loses_its_reader(self) -> bool:
        waiting = select.poll()
        waiting.register(self.writer, 0)
        return bool(waiting.poll(DEADLINE_S * 1000))

    def close(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[list[Endless]]:
    files = [Endless(tmp_path / f"rank{rank}.json") for rank in range(2)]
    yield files
    for file in files:
        file.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("program", [COMMAND_LINE, RUN], ids=["aorta traces", "in a run"])
def test_whatever_ends_the_reader_ends_its_processes(
    endless: list[Endless], program: str, number: signal.Signals
) -> None:
    # What started the tests may ignore some of them (nohup does), and what is ignored stays so in what we start.
    as_usual = ["env", "--default-signal=HUP,INT,TERM"]
    command = [*as_usual, sys.executable, "-c", program, "traces", "--jobs=2", *(str(file.path) for file in endless)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        try:
            for file in endless:
                file.wait_for_reader()
            reader.send_signal(number)
            assert all(file.loses_its_reader() for file in endless)
            _, told = reader.communicate(timeout=DEADLINE_S)
        finally:
            reader.kill()
    assert "Traceback" not in told
    if program == RUN and number != signal.SIGKILL:
        assert told == f"interrupted by {number.name}\n"
