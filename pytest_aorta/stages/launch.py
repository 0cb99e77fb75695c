"""test_launch_container: reach every host, prepare our folder there, start what the workload runs in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_aorta.checks import Check
from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import CommandFailed, FleetError, HostError
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.hostlist import host_list
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Accelerator, Containers, LogWindow
from pytest_aorta.run.record import HostRecord
from pytest_aorta.stages.checkout import plan_checkout, prepare_checkout
from pytest_aorta.stages.container import absent_devices, start_containers
from pytest_aorta.stages.container import plan as plan_containers
from pytest_aorta.stages.examine import note_devices
from pytest_aorta.stages.interpreter import plan_torch, require_torch
from pytest_aorta.stages.kernel import unreadable

MIN_FREE_BYTES = 256 * 1024 * 1024


def launch_containers(run: RunContext) -> Containers:
    """Start the node programs, look at each host, make the work folder, and start the containers if there are any."""
    # Before anything is made there: a pytest that is killed from here on leaves nothing that `aorta clean` cannot find.
    run.record.hosts(
        {h.name: HostRecord(work_dir=run.work_dir(h.name), state_dir=run.state_dir(h.name)) for h in run.group}
    )
    fleet = run.connect()
    facts = run.ask(Ask("facts"))
    for host, answer in facts.items():
        run.folder.write_document(run.folder.facts(host), answer)
        log.info("%s: %s, kernel %s, %s CPUs", host, answer["os"], answer["kernel"], answer["cpu_count"])
    _require_distinct(run, facts)
    note_devices(run)
    prepared = fleet.perform({host: Ask("prepare", {"path": run.work_dir(host)}) for host in fleet.hosts})
    work_dirs = {host: str(answer["path"]) for host, answer in prepared.items()}
    run.on_teardown("work folders removed", lambda: _remove(run, work_dirs))
    prepared.or_raise()
    accelerator = resolve_accelerator(run.settings, facts)
    checks = [
        *_devices(run.settings, facts, accelerator),
        *_without_devices(run.settings, accelerator),
        *_free_space(prepared),
    ]
    prepare_checkout(run)
    absent = absent_devices(run)
    launched = _containers(run, facts, work_dirs, accelerator, absent)
    # With more nodes it is the next stage but one that asks.
    if run.settings.suite == "single" and not any(check.failed for check in checks):
        require_torch(run, accelerator)
    otherwise = (f"{host}: {why}" for host, why in run.engine.otherwise().items())
    notes = (*unreadable(run), *_without_configured(absent), *otherwise)
    for note in notes:
        run.progress(note)
    return Containers(
        engine=run.engine.name,
        by_host=dict(launched),
        work_dirs=work_dirs,
        accelerator=accelerator,
        notes=notes,
        log_windows={
            host: LogWindow(boot_id=str(answer["boot_id"]), since_uptime_s=float(answer["uptime_s"]))
            for host, answer in facts.items()
        },
        checks=tuple(checks),
    )


def _containers(
    run: RunContext,
    facts: Mapping[str, Answer],
    work_dirs: Mapping[str, str],
    accelerator: Accelerator,
    absent: Mapping[str, tuple[str, ...]],
) -> Mapping[str, str]:
    if run.settings.uses_container:
        return start_containers(run, facts, work_dirs, accelerator, absent)
    return run.engine.launch(run.fleet, {})


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be done on each host."""
    for host in settings.cluster.hosts:
        yield Step(host.name, f"start the node program ({settings.cluster.transport}), read facts and clocks")
        yield Step(host.name, "make the work folder <work_dir>/<run-id>")
    yield from plan_checkout(settings)
    if settings.uses_container:
        yield from plan_containers(settings)
    if settings.suite == "single":
        yield from plan_torch(settings)
    if not settings.uses_container:
        for host in settings.cluster.hosts:
            yield Step(host.name, "no container: the workload runs on the host itself")


def resolve_accelerator(settings: Settings, facts: Mapping[str, Answer]) -> Accelerator:
    """Give the configured accelerator; `auto` is what the head host has devices of."""
    configured = settings.config.accelerator
    if configured != "auto":
        return configured
    head = facts[settings.cluster.hosts[0].name]
    if head["kfd"]:
        return "rocm"
    return "cuda" if head["nvidia"] else "cpu"


def _without_devices(settings: Settings, accelerator: Accelerator) -> Iterator[Check]:
    """Say that no GPU is judged where one was not ruled out: its driver may just be dead."""
    if settings.config.accelerator == "auto" and accelerator == "cpu":
        yield Check(
            label="[evidence] (check=gpus)",
            state="not_judged",
            subtest=False,
            reason="GPUs (accelerator auto became cpu: the head host has neither /dev/kfd nor /dev/nvidia*)",
            next_step="set accelerator to cpu if there should be none, else to rocm or cuda and look at the driver",
        )


def _without_configured(absent: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Say which hosts lack devices that their containers were to have."""
    for host, paths in absent.items():
        if paths:
            yield (
                f"{host}: no device {', '.join(paths)}, which container.runtime.args.devices names; its container goes "
                "without"
            )


def _require_distinct(run: RunContext, facts: Mapping[str, Answer]) -> None:
    """Require that no machine is named twice: it would train with itself, and prove nothing of a second one."""
    if run.settings.cluster.transport == "local":
        return
    first: dict[tuple[str, str, str], str] = {}
    problems: dict[str, HostError] = {}
    for host, answer in facts.items():
        machine = (str(answer["boot_id"]), str(answer["pid_namespace"]), str(answer["hostname"]))
        other = first.setdefault(machine, host)
        if other != host and all(machine):
            what = (
                f"is the same machine as {other} (both are {answer['hostname']}); name each machine once in node_dict"
            )
            problems[host] = CommandFailed(host, what)
    if problems:
        raise FleetError(problems)


def _devices(settings: Settings, facts: Mapping[str, Answer], accelerator: Accelerator) -> Iterator[Check]:
    """Hold each host's devices against the number of ranks.

    Of several hosts that have none at all none is blamed: it is as likely that they have another accelerator.
    """
    if accelerator == "cpu":
        return
    wanted = settings.config.gpus_per_node
    shown = {host: _num_devices(answer, accelerator) for host, answer in facts.items()}
    lacking = [host for host, number in shown.items() if number < wanted]
    has_none = not any(shown.values())
    wrong = "accelerator" if has_none else "gpus_per_node"
    for host in lacking:
        number, other = shown[host], _other(facts[host], accelerator) if has_none else ""
        yield Check(
            label=f"[evidence] (host={host}, check=gpus)",
            state="failed",
            host=host,
            fault="config" if has_none and len(shown) > 1 else "cluster",
            actual=float(number),
            unit="GPUs",
            reason=f"{host} shows {number} {accelerator} {'device' if number == 1 else 'devices'}"
            f"{other}, gpus_per_node is {wanted}",
            next_step=f"on {host_list(lacking)}, check the driver and the devices, or correct {wrong}",
        )


def _num_devices(facts: Answer, accelerator: Accelerator) -> int:
    """Count a host's GPUs by their device files; ROCm needs /dev/kfd beside them."""
    if accelerator == "cuda":
        return len(facts["nvidia"])
    return sum("/renderD" in path for path in facts["dri"]) if facts["kfd"] else 0


def _other(facts: Answer, accelerator: Accelerator) -> str:
    """Name the devices of the other accelerator that a host has."""
    other = "/dev/kfd" if accelerator == "cuda" and facts["kfd"] else ""
    return f" but has {other or '/dev/nvidia*'}" if other or (accelerator == "rocm" and facts["nvidia"]) else ""


def _free_space(prepared: Mapping[str, Answer]) -> Iterator[Check]:
    for host, answer in prepared.items():
        free = int(answer["free_bytes"])
        if free < MIN_FREE_BYTES:
            yield Check(
                label=f"[evidence] (host={host}, check=free_space)",
                state="failed",
                fault="rig",
                host=host,
                reason=(
                    f"{host}: {free // 2**20} MiB free in {answer['path']}, at least {MIN_FREE_BYTES // 2**20} MiB "
                    f"are needed; free space there or set work_dir"
                ),
            )


def _remove(run: RunContext, work_dirs: Mapping[str, str]) -> None:
    asks = {host: Ask("remove", {"path": path}, timeout_s=120) for host, path in work_dirs.items()}
    run.fleet.perform({host: ask for host, ask in asks.items() if host not in run.in_use}).or_raise()
