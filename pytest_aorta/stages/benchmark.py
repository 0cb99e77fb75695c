"""test_run_benchmark: start the workload on every host, watch it to its end, and look at what it left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from pytest_aorta.checks import Check
from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import AortaError, FleetError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.hostlist import told
from pytest_aorta.ranks import ranks_of
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Accelerator, Containers, Execution, Fabric, Rccl, Status, WorkloadTree
from pytest_aorta.stages.command import environment, num_channels, rendezvous_address, workload_command
from pytest_aorta.stages.failures import KILLED, first_causes
from pytest_aorta.stages.inventory import write_inventory
from pytest_aorta.stages.kernel import scan
from pytest_aorta.stages.losses import losses_of
from pytest_aorta.stages.memory import why_killed
from pytest_aorta.stages.phase import LOOK_AT_THEM, Phase, bring_logs, follow, start_phase, stop_phase
from pytest_aorta.stages.rendezvous import choose_port, was_taken
from pytest_aorta.stages.search import ABSENT, floor_ns, search
from pytest_aorta.stages.watch import Watch, round_of

PHASE = "benchmark"


def run_benchmark(run: RunContext, containers: Containers, tree: WorkloadTree, fabric: Fabric, rccl: Rccl) -> Execution:
    """Run the workload once; an Execution exists from just before the launch, whatever happens then."""
    settings = run.settings
    unheld = _hold(run, tree)
    env = environment(settings, containers.accelerator)
    port = choose_port(run)
    unlisted = _list_traces(run, tree)
    execution = Execution(
        started=True,
        status="running",
        roots=tree.root,
        work_dirs=containers.work_dirs,
        floors_ns=_floors(run),
        unlisted=unlisted,
        accelerator=containers.accelerator,
        nccl_channels=num_channels(env),
        launched_at_s=time.time(),
        workload=tree.identity,
    )
    run.give(execution)
    logs = {host: f"{path}/{PHASE}.log" for host, path in containers.work_dirs.items()}
    watch, phase, error = _launch(run, execution, _commands(run, tree, containers, port), env, logs)
    if not settings.config.multi_node.master_port and was_taken(watch) and not phase.unended:
        log.warning("port %d was taken after it had been chosen; one more attempt with another", port)
        port = choose_port(run)
        execution = execution.model_copy(update={"launched_at_s": time.time()})
        watch, phase, error = _launch(run, execution, _commands(run, tree, containers, port), env, logs)
    duration = phase.elapsed_s
    bring_logs(run, PHASE, logs)
    checks = [*_outcome(run, phase, watch, error, containers.accelerator)]
    checks += [] if checks else judge_ranks(settings, watch)
    checks += [_bad(str(why), phase, LOOK_AT_THEM, host, fault="rig") for host, why in phase.unended.items()]
    checks += [] if error else _library(rccl)
    completed = _status(phase, error) == "completed"
    kernel = scan(run, containers.log_windows, containers.accelerator, watch.threads, completed=completed)
    checks += kernel.checks
    return execution.model_copy(
        update={
            "status": _status(phase, error),
            "exit_codes": {host: phase.exits.get(host) for host in tree.root},
            "error_message": error or told((c.host, c.reason) for c in checks if c.failed and not c.subtest),
            "duration_seconds": round(duration, 3),
            "ended_at_s": execution.launched_at_s + duration,
            "ranks_seen": tuple(sorted(watch.ranks)),
            "rank_hosts": tuple(host for host in tree.root if host in watch.rank_hosts),
            "checks": tuple(checks),
            "kernel_log_notes": kernel.num_notes,
            "notes": unheld,
        }
    )


def _launch(
    run: RunContext,
    execution: Execution,
    commands: Mapping[str, list[str]],
    env: Mapping[str, str],
    logs: Mapping[str, str],
) -> tuple[Watch, Phase, str]:
    """Start the workload once and watch it to its end; gives what was seen, and why it could not be started."""
    watch = Watch(run.settings)
    phase = Phase(PHASE, tuple(commands))
    error = ""
    try:
        phase = start_phase(run, PHASE, commands, cwd=execution.roots, env=env, logs=logs)
        follow(
            run,
            phase,
            timeout_s=run.settings.config.timeout_seconds,
            on_lines=watch.lines,
            each_round=lambda state: round_of(run, watch, state),
        )
    except AortaError as problem:
        error = str(problem)
        phase.refused = dict(problem.by_host) if isinstance(problem, FleetError) else {}
    finally:
        run.give(execution.model_copy(update={"status": "failed", "duration_seconds": phase.elapsed_s}))
        phase.unended = stop_phase(run, PHASE)
    return watch, phase, error


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be started on each host."""
    head = settings.cluster.hosts[0]
    chosen = settings.config.multi_node.master_port or f"<port chosen on {head.name}>"
    address = rendezvous_address(settings)
    for host in settings.cluster.hosts:
        command = workload_command(settings, host, address=address, port=chosen, rank_logs="<work_dir>/<run-id>/ranks")
        yield Step(host.name, " ".join(command))
        if settings.config.kernel_log.enabled:
            yield Step(host.name, "dmesg (as root, else sudo -n dmesg), lines since launch")


def _hold(run: RunContext, tree: WorkloadTree) -> tuple[str, ...]:
    """Keep the workload's folder for this run: traces of another one in it would be taken for ours."""
    root = tree.root[run.head.name]
    if tree.source == "bundled" or run.ask_head(Ask("hold", {"path": root}))["held"]:
        return ()
    return (f"{run.head.name}: {root} has no locks; nothing keeps other runs out of it meanwhile",)


def _list_traces(run: RunContext, tree: WorkloadTree) -> dict[str, str]:
    """Note what trace files are there already; say of which hosts that cannot be told, and why."""
    known = search(run, tree.root, since_ns=dict.fromkeys(tree.root, 0))
    absent = [host for host, why in known.failed.items() if ABSENT in why.reason]
    for host in (*known, *absent):
        write_inventory(run, host, known[host]["files"] if host in known else ())
    unlisted = {host: why.reason for host, why in known.failed.items() if host not in absent}
    for host, why in unlisted.items():
        log.warning("%s: the files from before the launch cannot be listed: %s", host, why)
    return unlisted


def _floors(run: RunContext) -> dict[str, int]:
    """Give each host's own time of launch."""
    return {host: floor_ns(run.settings, int(clock["wall_ns"])) for host, clock in run.ask_inside(Ask("clock")).items()}


def _commands(run: RunContext, tree: WorkloadTree, containers: Containers, port: int) -> dict[str, list[str]]:
    address = rendezvous_address(run.settings)
    return {
        host.name: workload_command(
            run.settings, host, address=address, port=port, rank_logs=f"{containers.work_dirs[host.name]}/ranks"
        )
        for host in run.group
    }


def _status(phase: Phase, error: str) -> Status:
    if phase.given_up.startswith("no end within"):
        return "timeout"
    return "failed" if error or phase.given_up or phase.failed or phase.lost or phase.unended else "completed"


def _outcome(run: RunContext, phase: Phase, watch: Watch, error: str, accelerator: Accelerator) -> Iterator[Check]:
    """Say how the workload ended, once, by its first cause."""
    settings = watch.settings
    logs = [run.folder.log_of(PHASE, rank, host) for rank, host in enumerate(phase.hosts)]
    if error:
        look = f"see why in {', '.join(logs[:2])}; nothing was measured"
        if not phase.refused:
            yield _bad(error, phase, look, fault="rig")
        for host, why in phase.refused.items():
            yield _bad(str(why), phase, look, host, fault="rig")
        return
    found: list[Check] = []
    causes = first_causes(watch.failures, phase.failed)
    if refusals := [(host, cause.said) for host, cause in causes.items() if cause.is_refusal]:
        found.append(_refusal(told(refusals), phase, settings, accelerator))
    for host, cause in causes.items():
        if cause.is_refusal:
            continue
        if cause.is_own or not phase.lost:  # else it died of a host that was lost
            limit = why_killed(run, host) if KILLED in cause.said else ""
            found.append(_bad(cause.said + limit, phase, f"read {logs[phase.hosts.index(host)]}", host))
    found += [_bad(lost.said, phase, lost.next_step, lost.host, lost.fault) for lost in losses_of(run, phase.lost)]
    yield from found
    if phase.given_up:
        state = watch.progress_line(phase) if phase.given_up.startswith("no end") else ""
        yield _bad(
            phase.given_up + (f" ({state})" if state else ""),
            phase,
            _where_to_look(run, phase, watch),
            fault=found[0].fault if found else "workload",
        )


def _where_to_look(run: RunContext, phase: Phase, watch: Watch) -> str:
    if watch.has_stacks:
        return f"look at the rank named first; the stacks are in {run.folder.path}/{PHASE}-node-*.log"
    logs = [run.folder.log_of(PHASE, rank, host) for rank, host in enumerate(phase.hosts)]
    return f"look at the last lines of {', '.join(logs[:2])}"


def _refusal(said: str, phase: Phase, settings: Settings, accelerator: Accelerator) -> Check:
    """Say what the trainer refuses; a configuration for GPUs is refused where the CPU was taken for want of one."""
    if settings.config.accelerator == "auto" and accelerator == "cpu":
        said = f"{said} (no GPU was found on the head host, so the CPU was taken)"
        return _bad(said, phase, "check the driver, or use a configuration for the CPU", fault="config")
    return _bad(said, phase, "correct base_config or training_overrides", fault="config")


def _bad(reason: str, phase: Phase, next_step: str, host: str | None = None, fault: str = "workload") -> Check:
    return Check.model_validate(
        {
            "label": f"[execution] (phase={phase.name})",
            "state": "failed",
            "reason": reason,
            "subtest": False,
            "host": host,
            "fault": fault,
            "next_step": next_step,
        }
    )


def _library(rccl: Rccl) -> Iterator[Check]:
    """Say that nothing shows whether the ranks loaded the library that was built: torch brings one of its own."""
    if rccl.built:
        which = rccl.library or rccl.commit or "its script told no path"
        yield Check(
            label="[evidence] (check=rccl_library)",
            state="not_judged",
            subtest=False,
            reason=f"whether the ranks loaded the RCCL that was built ({which})",
            next_step="look for librccl in /proc/PID/maps of a rank while it runs",
        )


def judge_ranks(settings: Settings, watch: Watch) -> Iterator[Check]:
    """Hold the ranks seen running against nodes x processes; a host whose ranks ended unseen is not judged by them."""
    if settings.config.workload is not None and settings.config.workload.launcher == "none":
        return
    each = settings.nproc_per_node
    names = [host.name for host in settings.cluster.hosts]
    seen = [name for name in names if name in watch.rank_hosts]
    unseen = [name for name in names if name not in watch.rank_hosts]
    expected = {rank for name in seen for rank in ranks_of(names.index(name), each)}
    if watch.ranks != expected:
        num = len(watch.ranks)
        yield Check(
            label="[evidence] (check=ranks)",
            state="failed",
            subtest=False,
            fault="workload",
            reason=f"{num} rank{'s were' if num != 1 else ' was'} seen running ({_list(watch.ranks)}), expected "
            f"{len(expected)}" + (f" on {', '.join(seen)}" if unseen else ""),
            next_step="compare nproc_per_node and gpus_per_node with what the workload starts",
        )
    elif unseen:
        where = "" if len(unseen) == len(names) else f" on {', '.join(unseen)}"
        yield Check(
            label="[evidence] (check=ranks)",
            state="not_judged",
            subtest=False,
            reason=f"number of ranks{where} not observed: the workload ended before it was looked at",
        )


def _list(ranks: set[int]) -> str:
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:16])
    return f"{shown}, ..." if len(ranks) > 16 else shown
