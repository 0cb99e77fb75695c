"""test_clone_aorta: the workload's files on every host, the same everywhere, and proven so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pytest_aorta.config.settings import Settings
from pytest_aorta.config.shipped import shipped
from pytest_aorta.errors import CommandFailed, FleetError, HostError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.node.archives import pack
from pytest_aorta.node.files import tree_digest
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Containers, WorkloadTree
from pytest_aorta.stages.checkout import CORRECT_THE_NAMES, require_entry_points, require_none
from pytest_aorta.stages.command import entry_points, own_script
from pytest_aorta.stages.kept import require_same_folder
from pytest_aorta.stages.same_code import require_same_files, same_commit

IGNORED = ("__pycache__", ".git", ".ruff_cache", ".mypy_cache", "artifacts")  # the last: what a run by hand wrote


def clone_workload(run: RunContext, containers: Containers) -> WorkloadTree:
    """Send the bundled tree, or find the given checkout, and check that every entry point is there."""
    if run.settings.config.workload is not None:
        tree = _foreign(run)
    else:
        is_ours = run.settings.config.aorta_path is None
        tree = _send_bundled(run, containers) if is_ours else _find_checkout(run, foreign_folder(run.settings))
        require_entry_points(run.settings, run.inside, tree.root, advice=_advice(run.settings))
        if not is_ours:
            require_same_files(run, foreign_folder(run.settings), entry_points(run.settings))
    require_same_folder(run)
    return tree


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be sent or looked for on each host."""
    config = settings.config
    for host in settings.cluster.hosts:
        if config.workload is not None:
            yield Step(host.name, f"nothing to send: the workload is started in {foreign_folder(settings)}")
            if (script := own_script(settings)) is not None:
                yield Step(host.name, f"require the file {PurePosixPath(foreign_folder(settings)) / script}")
            continue
        if config.aorta_path is None:
            yield Step(host.name, "send the bundled workload tree to <work_dir>/<run-id>/tree and compare its hash")
        where = "<tree>" if config.aorta_path is None else foreign_folder(settings)
        for name in entry_points(settings):
            yield Step(host.name, f"require the file {where}/{name}")


def foreign_folder(settings: Settings) -> str:
    """Give the folder in which a workload of one's own runs: aorta_path, else the folder pytest was started in.

    In a container it is where aorta_path is mounted.
    """
    if settings.uses_container and settings.config.aorta_path is not None:
        return settings.config.container_mount_path
    return settings.config.aorta_path or str(Path.cwd())


def _advice(settings: Settings) -> str:
    """Say what to do about missing files; those of a checkout were seen on the host, before its container started."""
    if not settings.uses_container or settings.config.aorta_path is None:
        return CORRECT_THE_NAMES
    mount = f"{settings.config.aorta_path}:{settings.config.container_mount_path}"
    return f"the host has them: does the container mount {mount}, and nothing over it?"


def _foreign(run: RunContext) -> WorkloadTree:
    """Look whether the folder is there, and in it the script that the command names."""
    folder = foreign_folder(run.settings)
    script = str(PurePosixPath(folder) / (own_script(run.settings) or ""))
    found = run.ask_inside(Ask("stat", {"paths": [folder, script]}))
    kinds = {host: {path: each["kind"] for path, each in answer["files"].items()} for host, answer in found.items()}
    without = {host: f"{folder} is no folder there" for host, kind in kinds.items() if kind[folder] != "dir"}
    advice = "put the workload there" if len(without) < len(found) else "set aorta_path to where the workload is"
    require_none(without, found, advice)
    lacking = {host: f"no file {script}" for host, kind in kinds.items() if kind[script] == "absent"}
    require_none(lacking, found, "correct workload.command, or put the file there on each host")
    if len(run.group) > 1:
        same_commit(run, folder)
    if PurePosixPath(script).is_relative_to(folder) and all(kind[script] == "file" for kind in kinds.values()):
        require_same_files(run, folder, [script])
    return WorkloadTree(source="foreign", root=dict.fromkeys(found, folder), identity="")


def _send_bundled(run: RunContext, containers: Containers) -> WorkloadTree:
    source = shipped("workloads")
    digest, count = tree_digest(str(source), IGNORED)
    with tempfile.TemporaryDirectory(prefix="aorta-") as folder:
        archive = Path(folder) / "workloads.tar.gz"
        files = [
            p.relative_to(source).as_posix()
            for p in sorted(source.rglob("*"))
            if p.is_file() and not _ignored(p, source)
        ]
        packed = pack(str(source), files, str(archive))
        remote = {host: f"{path}/workloads.tar.gz" for host, path in containers.work_dirs.items()}
        run.fleet.send(archive, remote)
    root = {host: f"{path}/tree" for host, path in containers.work_dirs.items()}
    answers = run.ask_inside(
        {
            host: Ask("unpack", {"archive": remote[host], "sha256": packed["sha256"], "into": root[host]})
            for host in root
        }
    )
    differing: dict[str, HostError] = {
        host: CommandFailed(
            host, f"the workload tree arrived with hash {answer['tree_sha256'][:12]}, sent was {digest[:12]}"
        )
        for host, answer in answers.items()
        if answer["tree_sha256"] != digest
    }
    if differing:
        raise FleetError(differing)
    log.info("bundled workload: %d files, sha256 %s, on %d hosts", count, digest[:12], len(root))
    return WorkloadTree(source="bundled", root=root, identity=f"sha256:{digest}")


def _ignored(path: Path, root: Path) -> bool:
    return any(part in IGNORED for part in path.relative_to(root).parts)


def _find_checkout(run: RunContext, folder: str) -> WorkloadTree:
    """Look at the checkout where the workload lives."""
    commit = same_commit(run, folder)
    root = dict.fromkeys((host.name for host in run.group), folder)
    return WorkloadTree(source="checkout", root=root, identity=f"git:{commit}" if commit else "not a git checkout")
