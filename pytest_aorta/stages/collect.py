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
from pytest_aorta.hostlist import told
from pytest_aorta.node.archives import unpack
from pytest_aorta.node.requests import CommandError
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.folder import file_name
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Artifacts, Execution
from pytest_aorta.stages.benchmark import PHASE
from pytest_aorta.stages.inventory import read_inventory
from pytest_aorta.stages.lacks import (
    RULES_OUT_STALE,
    Lack,
    not_brought,
    not_found,
    not_kept,
    of_the_lost,
    too_much,
    withheld,
    without_inventory,
    wrote_none,
)
from pytest_aorta.stages.outside import ask_about_files
from pytest_aorta.stages.phase import bring_logs, scrub_files
from pytest_aorta.stages.proof import Sightings, unproven, unread
from pytest_aorta.stages.search import STEP_LOGS, TRACE_FOLDER, is_trace, names_its_traces, newest_tree, search, tree_of
from pytest_aorta.stages.sizes import amount, fits, too_large

Layout = Literal["combined", "single"]
COPY_SECONDS = 3600
LARGER = "raise timeout_seconds, or narrow workload.traces to the traces"


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
    lacks: dict[str, Lack] = {}
    trees: dict[str, tuple[str, ...]] = {}
    sightings = Sightings()
    wanted = _search(run, execution, hosts, layout, lacks, sightings)
    calls = {host.name: lambda host=host: _bring(run, execution, host, wanted[host], layout) for host in wanted}
    failed = in_parallel("collecting traces", calls, 2 * run.settings.config.timeout_seconds + COPY_SECONDS)
    for host, found in wanted.items():
        if host.name in failed:
            lacks[host.name] = not_brought(failed[host.name])
            log.warning("%s: traces were not brought back: %s", host.name, lacks[host.name].said)
        else:
            trees[host.name] = found.trees
            log.info("%s: %d files, trees %s", host.name, len(found.files), ", ".join(found.trees))
    logs = bring_logs(run, PHASE, {h: f"{path}/{PHASE}.log" for h, path in execution.work_dirs.items()})
    workload = run.settings.config.workload
    if workload is not None and workload.log:
        logs |= bring_logs(run, "workload", {h: f"{root}/{workload.log}" for h, root in execution.roots.items()})
    usable = {host: names for host, names in trees.items() if names}
    lacks = dict(of_the_lost(run, lacks))
    root = run.folder.path / ("combined_traces" if layout == "combined" else "traces")
    doubts = unread(run) if layout == "single" else unproven(run, execution, sightings.only_shared())
    checks = (
        *_checks(hosts, lacks, usable, execution, doubts, _account(execution, hosts, lacks)),
        *_doubts({host: why for host, why in doubts.items() if host not in lacks}),
    )
    errors = {host: lack.said for host, lack in lacks.items()}
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
        + told(errors.items())
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
    lacks: dict[str, Lack],
    sightings: Sightings,
) -> dict[Host, Found]:
    """Look for fresh files on each host; `lacks` takes why there are none, `sightings` which hosts see the same."""
    known = {host.name: inventory for host in hosts if (inventory := read_inventory(run, host.name)) is not None}
    for host in hosts:
        if host.name not in known:
            lacks[host.name] = without_inventory(run.folder, host.name, execution.unlisted.get(host.name, ""))
    hosts = tuple(host for host in hosts if host.name in known)
    roots = {host.name: execution.roots[host.name] for host in hosts}
    times = {host: inventory.times for host, inventory in known.items()}
    answers = search(run, roots, since_ns=execution.floors_ns, known=times)
    lacks.update({host: not_found(run, host, error) for host, error in answers.failed.items()})
    found: dict[Host, Found] = {}
    for host in hosts:
        if host.name not in answers:
            continue
        files: list[dict[str, Any]] = [
            entry
            for entry in answers[host.name]["files"]
            if known[host.name].is_fresh(entry, is_trace=is_trace(run.settings, entry["path"]))
        ]
        num_stale = int(answers[host.name]["stale"]) + len(answers[host.name]["files"]) - len(files)
        files = sightings.counted(host.name, files, lambda path: is_trace(run.settings, path))
        named = [entry for entry in files if scrub_value(entry["path"], run.folder.secrets) == entry["path"]]
        telling = [entry["path"] for entry in files if entry not in named]
        if telling:
            log.warning("%s: %d files with a secret in their names were left there", host.name, len(telling))
        files = named
        traces = [entry for entry in files if fits(entry) and is_trace(run.settings, entry["path"])]
        if large := too_large(files):
            lacks[host.name] = too_much(host.name, large)
        elif telling_traces := [path for path in telling if is_trace(run.settings, path)]:
            lacks[host.name] = withheld(host.name, telling_traces, run.folder.secrets)
        elif not traces and host.name not in sightings.shared:
            seen = [entry for entry in answers[host.name]["files"] if is_trace(run.settings, entry["path"])]
            num_same = sum(known[host.name].is_redated(entry) for entry in seen)
            completed = execution.status == "completed"
            lacks[host.name] = wrote_none(run, host.name, roots[host.name], num_stale, num_same, completed=completed)
        if layout == "single" and traces and not names_its_traces(run.settings):
            tree = newest_tree(traces)
            traces = [entry for entry in traces if tree_of(entry["path"]) == tree]
        kept = traces + [entry for entry in files if fits(entry) and not is_trace(run.settings, entry["path"])]
        if kept:
            trees = tuple(sorted({tree_of(entry["path"]) for entry in traces}))
            found[host] = Found(tuple(entry["path"] for entry in kept), trees, amount(kept))
    return found


def collected_traces(settings: Settings, root: Path, layout: Layout) -> list[Path] | None:
    """Give a foreign workload's trace files, which may have any name; None lets the trace engine look for them."""
    workload = settings.config.workload
    if workload is None or not workload.traces:
        return None
    depth = 1 if layout == "combined" else 0
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [path for path in paths if is_trace(settings, "/".join(path.relative_to(root).parts[depth:]))]


def _bring(run: RunContext, execution: Execution, host: Host, found: Found, layout: Layout) -> None:
    """Bring what was found on a host to its place in the run folder.

    Raises:
        HostError, OSError: it did not come, or not whole.
    """
    archive = f"{execution.work_dirs[host.name]}/collect.tar.gz"
    destination = run.folder.traces(layout, host.rank)
    try:
        bring_files(run, host.name, execution.roots[host.name], found.files, archive, destination)
        scrub_files(destination.rglob(STEP_LOGS), run.folder.secrets)
    except FleetError as error:
        why = error.by_host[host.name]
        if isinstance(why, TimedOut):
            raise TimedOut(host.name, f"{why.reason}: {found.amount}; {LARGER}") from error
        raise why from error
    except CommandError as error:
        raise CommandFailed(host.name, error.message) from error
    except (HostError, OSError) as error:
        raise not_kept(host.name, run.folder.path, error) or error from error


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


def _innocent(execution: Execution) -> Callable[[str], bool]:
    """Give whether a host has no traces because the workload ended early, not by it: the verdict does not name it."""
    blamed = {check.host for check in execution.checks if check.failed and check.host is not None}
    return lambda host: host not in blamed and execution.status != "completed"


def _account(execution: Execution, hosts: tuple[Host, ...], lacks: Mapping[str, Lack]) -> Account:
    """Say on whose account missing traces go: where a workload ended well and wrote none anywhere, on its settings'."""
    none_anywhere = all(host.name in lacks and lacks[host.name].wrote_none for host in hosts)
    return "config" if none_anywhere and execution.status == "completed" else "rig"


def _doubts(doubts: Mapping[str, str]) -> Iterator[Check]:
    for host, why in doubts.items():
        label = f"{TRACE_COLLECTION} (host={host})"
        yield Check(label=label, state="not_judged", subtest=False, reason=why, host=host)


def _checks(
    hosts: tuple[Host, ...],
    lacks: Mapping[str, Lack],
    usable: Mapping[str, object],
    execution: Execution,
    doubts: Container[str],
    account: Account,
) -> Iterator[Check]:
    is_innocent = _innocent(execution)
    for host in hosts:
        lack = lacks.get(host.name)
        if host.name in doubts and lack is None:
            continue
        label = f"{TRACE_COLLECTION} (host={host.name})"
        if lack is None:
            yield Check(label=label, state="passed", host=host.name)
            continue
        yield Check(
            label=label,
            state="failed",
            reason=lack.said,
            host=None if lack.wrote_none and is_innocent(host.name) else lack.host,
            fault=account if lack.wrote_none else lack.fault,
            next_step=lack.next_step,
        )
    if not usable:
        is_workloads = execution.status == "completed" and any(lack.wrote_none for lack in lacks.values())
        step = "check that profiling is on and that the run has more steps than the profiler's schedule"
        yield Check(
            label=f"{TRACE_COLLECTION} (artifact=torch_traces)",
            state="failed",
            fault=account,
            reason="no node gave a usable trace tree",
            next_step=step if is_workloads else "",
        )
