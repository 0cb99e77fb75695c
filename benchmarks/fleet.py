"""What the harness itself costs as hosts are added: real sshd hosts of the lab, and scripted hosts in hundreds.

Bars (decision 13): one command of 50 ms on 64 warm hosts takes at most six times what it takes on two; a command that
does nothing takes on 64 no longer than with plain Fabric on warm connections and 32 threads; 512 scripted hosts take at
most 300 MB with one channel a host. Beside it stands `clush` where it is installed (pip install clustershell), which
connects each time. All hosts of a lab share this machine's cores: a command that does nothing is bounded by the 64
processes started on them. Root and the lab's services are needed (make lab-deps).

    python benchmarks/fleet.py [--hosts 2 8 32 64] [--scripted 512]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fabric
import paramiko

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.parallel import in_parallel
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.fleet.ssh import Access, SshTransport
from tests.lab.lab import Lab

COMMAND = Ask("run", {"argv": ["true"]})
WAITING_COMMAND = Ask("run", {"argv": ["sleep", "0.05"]})
NUM_COMMANDS = 7
FABRIC_THREADS = 32
ARCHIVE_BYTES = 256 * 1024
COMMAND_BAR = 1.0
GROWTH_BAR = 6.0
MEMORY_BAR_MB = 300
STATE = "~/.cache/pytest-aorta/benchmark.node"
WORK = "~/.cache/pytest-aorta/benchmark"


def main() -> int:
    """Measure and print; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="*", default=[2, 8, 32, 64], help="hosts of each lab")
    parser.add_argument("--scripted", type=int, default=512, help="scripted hosts; 0: none")
    parser.add_argument("--only-scripted", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_scripted:
        print(json.dumps(_scripted(options.only_scripted)))
        return 0
    missed = _real(options.hosts)
    if options.scripted:
        missed += _in_a_process_of_its_own(options.scripted)
    return int(missed > 0)


def _real(sizes: list[int]) -> int:
    own_columns = ("launch", "command", "50 ms", "poll", "collect", "teardown")
    print(f"{'hosts':>5} {' '.join(f'{column:>9}' for column in (*own_columns, 'Fabric', 'clush'))}   (seconds)")
    of_size: dict[int, dict[str, float]] = {}
    for size in sizes:
        with Lab.up(size) as lab:
            times = _on_lab(lab)
            times["Fabric"], clush = _fabric_s(lab), _clush_s(lab)
        of_size[size] = times
        shown = " ".join(f"{times[name]:9.3f}" for name in (*own_columns, "Fabric"))
        print(f"{size:>5} {shown} {f'{clush:9.3f}' if clush is not None else '   absent'}", flush=True)
    return _judge(of_size[2], of_size[64]) if {2, 64} <= of_size.keys() else 0


def _judge(few: dict[str, float], many: dict[str, float]) -> int:
    """Hold 64 hosts against two and against Fabric; gives how many bars were missed."""
    growth, beside = many["50 ms"] / few["50 ms"], many["command"] / many["Fabric"]
    _say("one command of 50 ms, 64 hosts beside 2", growth, GROWTH_BAR)
    _say("one that does nothing, 64 hosts beside Fabric", beside, COMMAND_BAR)
    others = f"{many['command'] / few['command']:.1f}, Fabric's {many['Fabric'] / few['Fabric']:.1f}"
    print(f"the same, 64 hosts beside 2: {others} (no bar: 64 processes on hosts that share these cores)")
    print(f"of it the harness computes {many['own']:.3f} s")
    return (growth > GROWTH_BAR) + (beside > COMMAND_BAR)


def _say(what: str, ratio: float, bar: float) -> None:
    print(f"{what}: {ratio:.2f} (<= {bar:g}) {_held(ratio <= bar)}")


def _on_lab(lab: Lab) -> dict[str, float]:
    """Do once what a run asks of its hosts, and time it."""
    access = Access("root", key_file=str(lab.key), known_hosts=str(lab.known_hosts))
    fleet = Fleet({host.address: SshTransport(host.address, access) for host in lab.hosts})
    times = {"launch": _seconds(lambda: fleet.open(dict.fromkeys(fleet.hosts, STATE)))}
    try:
        fleet.perform(COMMAND).or_raise()
        before_s = time.process_time()
        times["command"] = _median_s(lambda: fleet.perform(COMMAND).or_raise())
        times["own"] = (time.process_time() - before_s) / NUM_COMMANDS
        times["50 ms"] = _median_s(lambda: fleet.perform(WAITING_COMMAND).or_raise())
        times["poll"] = _seconds(lambda: fleet.perform(Ask("processes")).or_raise())
        fleet.perform(Ask("prepare", {"path": WORK})).or_raise()
        made = ["sh", "-c", f"head -c {ARCHIVE_BYTES} /dev/urandom > .cache/pytest-aorta/benchmark/traces"]
        fleet.perform(Ask("run", {"argv": made, "cwd": "/root"})).or_raise()
        times["collect"] = _seconds(lambda: _collect(fleet))
        times["teardown"] = _seconds(lambda: _tear_down(fleet))
    finally:
        fleet.close()
    return times


def _collect(fleet: Fleet) -> None:
    packing = {"root": WORK, "files": ["traces"], "archive": f"{WORK}/collect.tar.gz"}
    fleet.perform(Ask("pack", packing)).or_raise()
    with tempfile.TemporaryDirectory() as folder:
        local = {host: Path(folder) / host for host in fleet.hosts}
        calls = {host: lambda host=host: fleet.fetch(host, f"{WORK}/collect.tar.gz", local[host]) for host in local}
        errors = in_parallel("collecting", calls, 120)
        if errors or any(path.stat().st_size < ARCHIVE_BYTES for path in local.values()):
            raise SystemExit(f"an archive did not come back whole: {errors}")


def _tear_down(fleet: Fleet) -> None:
    fleet.perform(Ask("remove", {"path": WORK})).or_raise()
    fleet.close()


def _fabric_s(lab: Lab) -> float:
    """Time the same command on connections of plain Fabric that are open already."""
    config = fabric.Config(ssh_config=paramiko.SSHConfig.from_path(str(lab.ssh_config)))
    connections = [fabric.Connection(host.name, user="root", config=config) for host in lab.hosts]

    def run(connection: fabric.Connection) -> None:
        connection.run("true", hide=True, in_stream=False)

    with ThreadPoolExecutor(FABRIC_THREADS) as pool:
        list(pool.map(run, connections))
        seconds = _median_s(lambda: list(pool.map(run, connections)))
    for connection in connections:
        connection.close()
    return seconds


def _clush_s(lab: Lab) -> float | None:
    """Time the same command with clush, which connects to each host anew; None where it is not installed."""
    clush = shutil.which("clush", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if clush is None:
        return None
    hosts = ",".join(host.address for host in lab.hosts)
    command = [clush, "-f", "64", "-o", f"-F {lab.ssh_config}", "-l", "root", "-w", hosts, "true"]
    environment = {**os.environ, **lab.environment()}
    return _seconds(lambda: subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL))


def _in_a_process_of_its_own(num_hosts: int) -> int:
    """Measure scripted hosts where nothing else has taken memory before."""
    command = [sys.executable, __file__, "--only-scripted", str(num_hosts)]
    seen = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    holds = seen["mb"] <= MEMORY_BAR_MB and seen["channels"] == num_hosts
    print(
        f"{num_hosts} scripted hosts: open {seen['open_s']:.2f} s, one command {seen['command_s']:.3f} s, close "
        f"{seen['close_s']:.2f} s, {seen['channels']} channels, {seen['threads']} threads, {seen['mb']:.0f} MB at most "
        f"(<= {MEMORY_BAR_MB}) {_held(holds)}"
    )
    return int(not holds)


def _scripted(num_hosts: int) -> dict[str, float]:
    transports = {f"node{n}": ScriptedTransport([Reply("run", {"exit_code": 0}, times=0)]) for n in range(num_hosts)}
    fleet = Fleet(transports)
    open_s = _seconds(lambda: fleet.open(dict.fromkeys(fleet.hosts, STATE)))
    command_s = _median_s(lambda: fleet.perform(COMMAND).or_raise())
    threads, channels = threading.active_count(), sum(transport.num_starts for transport in transports.values())
    close_s = _seconds(fleet.close)
    return {
        "open_s": open_s,
        "command_s": command_s,
        "close_s": close_s,
        "threads": threads,
        "channels": channels,
        "mb": _peak_mb(),
    }


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status has no VmHWM")


def _median_s(work: Callable[[], object]) -> float:
    return statistics.median(_seconds(work) for _ in range(NUM_COMMANDS))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _held(holds: bool) -> str:
    return "ok" if holds else "MISSED"


if __name__ == "__main__":
    raise SystemExit(main())
