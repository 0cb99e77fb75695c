"""Nothing of a lab stays, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab import claims
from tests.lab.conftest import MakeLab
from tests.lab.lab import Lab
from tests.lab.plan import Plan
from tests.lab.power import REPOSITORY
from tests.lab.processes import Process, wait_until

pytestmark = pytest.mark.lab(1, docker=True)

STARTER = """
import json, os, signal
from tests.lab.lab import Lab
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored, in the background
lab = Lab.up(2, docker=True)
for host in lab.hosts:
    host.run(["docker", "run", "-d", "--name=kept", "lab/machine:1", "sleep", "1000"], check=True)
lab.hosts[0].run(["docker", "pause", "kept"], check=True)
heir = os.fork()
if heir:
    print(json.dumps({"number": lab.plan.number, "keeper": lab.keeper.pid, "heir": heir}), flush=True)
signal.pause()
"""
DOWN_WITH_AN_HEIR = """
import os, signal
from tests.lab.lab import Lab
lab = Lab.up(1)
heir = os.fork()
if not heir:
    signal.pause()
lab.down()
lab.down()
os.kill(heir, signal.SIGKILL)
"""


@dataclass
class Started:
    """A lab that another process has started, with all that belongs to it."""

    starter: subprocess.Popen[str]
    plan: Plan
    keeper: Process
    heir: Process
    processes: list[Process]
    places: dict[Path, tuple[int, ...]]


@pytest.fixture
def started(labs: MakeLab) -> Iterator[Started]:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        said = json.loads(starter.stdout.readline())
        plan = Plan(said["number"], 2, docker=True)
        members = [Process.of(pid) for pid in all_pids() if is_of(plan, pid)]
        heir = Process.of(said["heir"])
        yield Started(starter, plan, Process.of(said["keeper"]), heir, members, places_of(plan))
        starter.kill()
        heir.kill()


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def is_of(plan: Plan, pid: int) -> bool:
    """Whether a process is the keeper of a lab, descends from a host's first process, or is in a container."""
    try:
        keeps = f'"number": {plan.number},' in Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
        descends = f"LAB_FOLDER={plan.folder}\0" in Path(f"/proc/{pid}/environ").read_text("utf-8", "replace")
        return keeps or descends or plan.cgroup in Path(f"/proc/{pid}/cgroup").read_text("utf-8")
    except OSError:  # it ended
        return False


def places_of(plan: Plan) -> dict[Path, tuple[int, ...]]:
    """Where a lab is seen in file systems, and what tells it there from a later one that has its number."""
    link = Path("/sys/class/net", plan.link)
    found: dict[Path, tuple[int, ...]] = {}
    for place in (plan.folder, claims.lock_path(plan.number), link, *claims.cgroups_of(plan)):
        with contextlib.suppress(FileNotFoundError):
            stat = place.stat()
            found[place] = (stat.st_ino,) if place.is_relative_to("/sys") else (stat.st_ino, stat.st_ctime_ns)
    return found


def leftovers(started: Started) -> list[str]:
    """Everything of the lab that is still on this machine. Its link goes with the network namespace behind it."""
    plan = started.plan
    return [
        *(f"process {process.pid}" for process in started.processes if process.running),
        *(str(place) for place, identity in places_of(plan).items() if started.places.get(place) == identity),
        *(line for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines() if str(plan.folder) in line),
    ]


def test_the_lab_is_seen_while_it_is_up(started: Started) -> None:
    left = leftovers(started)
    for kind in ("process", "/run/", "/sys/class/net/", "/sys/fs/cgroup/"):
        assert any(line.startswith(kind) for line in left), (kind, left)
    assert len(started.processes) > 10


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_starter_is_killed(started: Started, ending: signal.Signals) -> None:
    started.starter.send_signal(ending)
    started.starter.wait(30)
    wait_until(lambda: not leftovers(started), "the lab to be cleared", 20, pause_s=0.1)
    assert started.heir.running, "a child that inherited the line to the keeper does not keep the lab"


def test_down_does_not_wait_for_children_of_the_starter(labs: MakeLab) -> None:
    subprocess.run([sys.executable, "-c", DOWN_WITH_AN_HEIR], cwd=REPOSITORY, check=True, timeout=20)


def test_the_machine_itself_is_as_it_was(labs: MakeLab) -> None:
    before = machine()
    with Lab.up(1, docker=True, slurm=True) as lab:
        lab.ssh("node1", "docker run --rm --network=host lab/machine:1 true")
        assert machine() == before
    assert machine() == before


def machine() -> dict[str, str]:
    """What a lab must not touch. The links and addresses of labs themselves are theirs."""
    seen = {path: Path(path).read_text("utf-8") for path in ("/etc/passwd", "/etc/group", "/etc/hosts", "/proc/mounts")}
    for command in ("ip -4 route show table all", "ip rule", "iptables-save", "hostname", "ls -A /etc /etc/ssh"):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        # the counters and dates of iptables are comments
        lines = [line for line in done.stdout.splitlines() if "aortalab" not in line and not line.startswith("#")]
        seen[command] = "\n".join(lines)
    return seen


def test_the_next_lab_sweeps_what_a_killed_keeper_left(started: Started) -> None:
    os.kill(started.keeper.pid, signal.SIGKILL)
    wait_until(lambda: not started.keeper.running, "the keeper to die", 5)
    assert started.plan.folder.exists()
    with Lab.up(1):
        assert leftovers(started) == []


def test_a_sweep_leaves_labs_alone_that_somebody_holds(started: Started) -> None:
    claims.sweep(started.plan.number)
    assert all(process.running for process in started.processes)


def test_a_pid_that_was_given_to_somebody_else_is_left_alone(started: Started, labs: MakeLab) -> None:
    bystander = Process.of(started.heir.pid)
    claims.record(started.plan, Process(bystander.pid, str(int(bystander.start) - 1)))
    started.starter.kill()
    wait_until(lambda: not started.plan.folder.exists(), "the lab to be cleared", 20)
    assert bystander.running
