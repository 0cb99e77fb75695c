"""test_collect_traces: bring back what this run wrote, host by host, and nothing older."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_aorta.checks import TRACE_COLLECTION, Account, Check
from pytest_aorta.config.cluster import Host
from pytest_aorta.config.redact import scrub_value
from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import CommandFailed, FleetError, HostError, TimedOut
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.parallel import in_parallel
from pytest_aorta.node.archives import unpack
from pytest_aorta.node.requests import CommandError
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.folder import file_name
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Artifacts, Execution
from pytest_aorta.stages.benchmark import PHASE, read_inventory
from pytest_aorta.stages.losses import loss_of
from pytest_aorta.stages.outside import ask_about_files
from pytest_aorta.stages.phase import bring_logs, scrub_file
from pytest_aorta.stages.proof import Sightings, unproven, unread
from pytest_aorta.stages.search import STEP_LOGS, TRACE_FOLDER, is_trace, names_its_traces, newest_tree, search, tree_of
from pytest_aorta.stages.sizes import amount, fits, too_large

Layout = Literal["combined", "single"]
COPY_SECONDS = 3600
LARGER = "raise timeout_seconds, or narrow workload.traces to the traces"
ABSENT = "No such file or directory"
RULES_OUT_STALE = "written by this run (newer than launch, or changed since)"


@dataclass(frozen=True, slots=True)
class Found:
    """What one host has to bring back: relative paths, and the trees among them."""

    files: tuple[str, ...]
    trees: tuple[str, ...]
    amount: str


def collect_traces(run: RunContext, execution: Execution) -> Artifacts:
    """Pack, fetch and unpack the fresh outputs of each host; a host that fails does not stop the others."""
    layout = layout_of(run.settings)
    hosts = run.group if layout == "combined" else run.group[:1]
    run.connect()
    errors: dict[str, str] = {}
    trees: dict[str, tuple[str, ...]] = {}
    sightings = Sightings()
    wanted = _search(run, execution, hosts, layout, errors, sightings)
    calls = {host.name: lambda host=host: _bring(run, execution, host, wanted[host], layout) for host in wanted}
    failed = in_parallel("collecting traces", calls, 2 * run.settings.config.timeout_seconds + COPY_SECONDS)
    for host, found in wanted.items():
        if host.name in failed:
            errors[host.name] = str(failed[host.name])
            log.warning("%s: traces were not brought back: %s", host.name, errors[host.name])
        else:
            trees[host.name] = found.trees
            log.info("%s: %d files, trees %s", host.name, len(found.files), ", ".join(found.trees))
    logs = bring_logs(run, PHASE, {h: f"{path}/{PHASE}.log" for h, path in execution.work_dirs.items()})
    workload = run.settings.config.workload
    if workload is not None and workload.log:
        logs |= bring_logs(run, "workload", {h: f"{root}/{workload.log}" for h, root in execution.roots.items()})
    usable = {host: names for host, names in trees.items() if names}
    errors |= {host: lost.said for host in errors if (lost := loss_of(run, host)) is not None}
    root = run.folder.path / ("combined_traces" if layout == "combined" else "traces")
    doubts = unread(run) if layout == "single" else unproven(run, execution, sightings.only_shared())
    checks = (
        *_checks(run, hosts, errors, usable, _innocent(execution), doubts, _account(execution, hosts, errors)),
        *_doubts({host: why for host, why in doubts.items() if host not in errors}),
    )
    missing = [check for check in checks if check.failed]
    return Artifacts(
        layout=layout,
        torch_traces=run.folder.relative(root) if usable else None,
        trees=trees,
        logs=logs,
        errors=errors,
        accelerator=execution.accelerator,
        completed=execution.status == "completed",
        kernel_log_notes=execution.kernel_log_notes,
        checks=checks,
        failure=f"{len(errors)} of {len(hosts)} hosts gave {'no' if errors.keys() - usable else 'not all'} traces: "
        + "; ".join(dict.fromkeys(errors.values()))
        if missing
        else "",
    )


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be brought back."""
    workload = settings.config.workload
    what = workload.traces if workload is not None and workload.traces else f"files below {TRACE_FOLDER}/"
    for host in settings.cluster.hosts:
        yield Step(host.name, f"find, pack and fetch {what} {RULES_OUT_STALE}, and the benchmark log")


def layout_of(settings: Settings) -> Layout:
    """Give the layout of the collected traces: one folder a node, or the head's newest tree."""
    collects_all = settings.suite == "distributed" and settings.config.multi_node.collect_traces
    return "combined" if collects_all else "single"


def _search(
    run: RunContext,
    execution: Execution,
    hosts: tuple[Host, ...],
    layout: Layout,
    errors: dict[str, str],
    sightings: Sightings,
) -> dict[Host, Found]:
    """Look for fresh files on each host; `errors` takes why there are none, `sightings` which hosts see the same."""
    roots = {host.name: execution.roots[host.name] for host in hosts}
    known = {host.name: inventory for host in hosts if (inventory := read_inventory(run, host.name)) is not None}
    for host in hosts:
        if host.name not in known:
            errors[host.name] = (
                f"{host.name}: the list of files from before the launch is gone; which are new is unknown"
            )
    hosts = tuple(host for host in hosts if host.name in known)
    roots = {host.name: roots[host.name] for host in hosts}
    answers = search(run, roots, since_ns=execution.floors_ns, known=known)
    errors.update({host: _why_not_found(run.settings, error) for host, error in answers.failed.items()})
    found: dict[Host, Found] = {}
    for host in hosts:
        if host.name not in answers:
            continue
        # A file that was there before keeps its time of change, to the nanosecond, when it is only renamed.
        before, times = known[host.name], set(known[host.name].values())
        files: list[dict[str, Any]] = [
            entry
            for entry in answers[host.name]["files"]
            if entry["mtime_ns"] not in times and entry["mtime_ns"] >= before.get(entry["path"], 0)
        ]
        files = sightings.counted(host.name, files, lambda path: is_trace(run.settings, path))
        named = [entry for entry in files if scrub_value(entry["path"], run.folder.secrets) == entry["path"]]
        telling = len(files) - len(named)
        if telling:
            log.warning("%s: %d files with a secret in their names were left there", host.name, telling)
        files = named
        traces = [entry for entry in files if fits(entry) and is_trace(run.settings, entry["path"])]
        if large := too_large(files):
            errors[host.name] = f"{host.name}: {large}"
        elif not traces and host.name not in sightings.shared:
            stale = int(answers[host.name]["stale"]) + len(answers[host.name]["files"]) - len(files) - telling
            older = f"; {stale} older ones were left alone" if stale else ""
            older += f"; {telling} with a secret in their names were left there" if telling else ""
            errors[host.name] = (
                f"{host.name} has no {_wanted(run.settings)} {RULES_OUT_STALE} in {roots[host.name]}{older}"
            )
        if layout == "single" and traces and not names_its_traces(run.settings):
            tree = newest_tree(traces)
            traces = [entry for entry in traces if tree_of(entry["path"]) == tree]
        kept = traces + [entry for entry in files if fits(entry) and not is_trace(run.settings, entry["path"])]
        if kept:
            trees = tuple(sorted({tree_of(entry["path"]) for entry in traces}))
            found[host] = Found(tuple(entry["path"] for entry in kept), trees, amount(kept))
    return found


def _bring(run: RunContext, execution: Execution, host: Host, found: Found, layout: Layout) -> None:
    """Bring what was found on a host to its place in the run folder.

    Raises:
        HostError, OSError: it did not come, or not whole.
    """
    archive = f"{execution.work_dirs[host.name]}/collect.tar.gz"
    destination = run.folder.traces(layout, host.rank)
    try:
        bring_files(run, host.name, execution.roots[host.name], found.files, archive, destination)
    except FleetError as error:
        why = error.by_host[host.name]
        if isinstance(why, TimedOut):
            raise TimedOut(host.name, f"{why.reason}: {found.amount}; {LARGER}") from error
        raise why from error
    except CommandError as error:
        raise CommandFailed(host.name, error.message) from error
    for step_log in destination.rglob(STEP_LOGS):
        scrub_file(step_log, run.folder.secrets)


def _wanted(settings: Settings) -> str:
    workload = settings.config.workload
    if workload is None or not workload.traces:
        return f"trace file below a folder {TRACE_FOLDER}"
    return f"trace file that matches {workload.traces} and was"


def _why_not_found(settings: Settings, error: HostError) -> str:
    if ABSENT not in error.reason or not names_its_traces(settings):
        return str(error)
    return f"{error.host}: the workload wrote nothing where workload.traces says ({error.reason.partition(': ')[2]})"


def bring_files(run: RunContext, host: str, root: str, files: tuple[str, ...], archive: str, destination: Path) -> None:
    """Pack files of a host (paths relative to `root`), fetch them, and put them in place of `destination`, whole.

    Raises:
        HostError, FleetError: the host did not pack or send them.
        CommandError: the archive is damaged or not safe.
    """
    args = {"root": root, "files": list(files), "archive": archive}
    ask = Ask("pack", args, timeout_s=run.settings.config.timeout_seconds)
    packed = ask_about_files(run, {host: ask}).or_raise()[host]
    for name in packed.get("refused", ()):
        log.warning("%s: %r was not brought back: %s", host, name, packed.get("why", "it cannot be packed"))
    local = run.folder.path / f".incoming-{file_name(host)}.tar.gz"
    try:
        run.fleet.fetch(host, str(packed["path"]), local)
        destination.parent.mkdir(parents=True, exist_ok=True)
        unpack(str(local), str(packed["sha256"]), str(destination))
    finally:
        local.unlink(missing_ok=True)


def _what_to_look_at(run: RunContext, host: Host) -> str:
    look = f"look at {run.folder.log_of(PHASE, host.rank, host.name)}: did it get as far as its profiled steps?"
    workload = run.settings.config.workload
    if workload is None:
        return look
    where = "does workload.traces say where its traces lie? Each rank must write one, a step log is not enough"
    return f"{where}; if it does, {look}"


def _innocent(execution: Execution) -> Callable[[str], bool]:
    """Give whether a host without traces has none because another one failed; the verdict does not name it then."""
    blamed = {check.host for check in execution.checks if check.failed and check.host is not None}
    return lambda host: bool(blamed) and host not in blamed and execution.status != "completed"


def _account(execution: Execution, hosts: tuple[Host, ...], errors: Mapping[str, str]) -> Account:
    """Say on whose account missing traces go: where a workload ended well and wrote none anywhere, on its settings'."""
    wrote_none = all(RULES_OUT_STALE in errors.get(host.name, "") for host in hosts)
    return "config" if wrote_none and execution.status == "completed" else "rig"


def _doubts(doubts: Mapping[str, str]) -> Iterator[Check]:
    for host, why in doubts.items():
        label = f"{TRACE_COLLECTION} (host={host})"
        yield Check(label=label, state="not_judged", subtest=False, reason=why, host=host)


def _checks(
    run: RunContext,
    hosts: tuple[Host, ...],
    errors: Mapping[str, str],
    usable: Mapping[str, object],
    is_innocent: Callable[[str], bool],
    doubts: Container[str],
    account: Account,
) -> Iterator[Check]:
    for host in hosts:
        error = errors.get(host.name, "")
        if host.name in doubts and not error:
            continue
        lost = loss_of(run, host.name) if error else None
        yield Check(
            label=f"{TRACE_COLLECTION} (host={host.name})",
            state="failed" if error else "passed",
            reason=error,
            host=lost.host if lost is not None else None if is_innocent(host.name) else host.name,
            fault=account if lost is None else lost.fault,
            next_step=("" if not error else _what_to_look_at(run, host) if lost is None else lost.next_step),
        )
    if not usable:
        yield Check(
            label=f"{TRACE_COLLECTION} (artifact=torch_traces)",
            state="failed",
            fault=account,
            reason="no node gave a usable trace tree",
            next_step="check that profiling is on and that the run has more steps than the profiler's schedule",
        )
