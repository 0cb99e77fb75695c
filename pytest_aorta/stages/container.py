"""The containers of a run: what each is started with, and the node program inside it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pytest_aorta.config.container import Container, RuntimeArgs
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.spec import RUN_LABEL, STATE_LABEL, Login, Mount, Spec
from pytest_aorta.errors import CommandFailed, ConfigError, FleetError, HostError, Misnamed
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.inside import InsideTransport
from pytest_aorta.fleet.program import NAME, program_bytes
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Accelerator
from pytest_aorta.run.state_dirs import state_dir_of
from pytest_aorta.stages.command import SET_PYTHON, python_command

GIVE_SECONDS = 600
MEMLOCK = "memlock=-1"
GIVEN_BACK = "ownership given back"
DONE_WITH = {"per_run": "removed", "persistent": "kept", "no_launch": "left alone"}
_NO_PROGRAM = re.compile(r"executable file .*not found|exec: \S+ stat \S+ no such file")


def start_containers(
    run: RunContext,
    facts: Mapping[str, Answer],
    work_dirs: Mapping[str, str],
    accelerator: Accelerator,
    absent: Mapping[str, tuple[str, ...]],
) -> Mapping[str, str]:
    """Start the container of every host and the node program in it; say by host what is there."""
    lifetime = _required(run.settings).lifetime
    specs = {
        host: spec_of(run, host, answer, work_dirs[host], accelerator, absent[host]) for host, answer in facts.items()
    }
    run.on_teardown(f"{run.engine.name}: containers {DONE_WITH[lifetime]}", run.engine.remove)
    described = run.engine.launch(run.fleet, specs)
    for host, text in described.items():
        log.info("%s: %s", host, text)
    _enter(run, work_dirs)
    owners = {host: (int(answer["uid"]), int(answer["gid"])) for host, answer in facts.items()}
    run.on_teardown(GIVEN_BACK, lambda: _give_back(run, work_dirs, owners), is_inside=True)
    return described


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be started on each host."""
    container = _required(settings)
    for host in settings.cluster.hosts:
        how = {"per_run": "start", "persistent": "find or start", "no_launch": "find running"}[container.lifetime]
        yield Step(host.name, f"{container.runtime.name}: {how} container {container.name} of {container.image}")
        yield Step(host.name, "start the node program inside the container")


def absent_devices(run: RunContext) -> dict[str, tuple[str, ...]]:
    """Look which of the configured devices each host lacks."""
    container = run.settings.config.container
    wanted = [device.partition(":")[0] for device in container.runtime.args.devices] if container is not None else []
    if not wanted or not run.settings.uses_container:
        return {host.name: () for host in run.group}
    answers = run.ask(Ask("stat", {"paths": wanted}))
    return {
        host: tuple(path for path in wanted if answer["files"][path]["kind"] == "absent")
        for host, answer in answers.items()
    }


def spec_of(
    run: RunContext,
    host: str,
    facts: Answer,
    work_dir: str,
    accelerator: Accelerator,
    absent: tuple[str, ...],
) -> Spec:
    """Say what the container of one host is started with."""
    container = _required(run.settings)
    args = container.runtime.args
    kept = container.lifetime != "per_run"
    # A container that outlives the run must see the work folders of later ones too.
    ours = str(PurePosixPath(work_dir).parent) if kept else work_dir
    login = args.registry
    return Spec(
        name=str(container.name),
        image=str(container.image),
        labels={RUN_LABEL: run.folder.run_id, STATE_LABEL: state_dir_of(work_dir)},
        env=_public_environment(run),
        mounts=(*(_mount(volume) for volume in args.volumes), Mount(ours, ours)),
        devices=_devices(args, facts, accelerator, absent),
        gpus=accelerator == "cuda",
        network=args.network,
        ipc=args.ipc,
        privileged=args.privileged,
        cap_add=args.cap_add,
        security_opt=args.security_opt,
        groups=_groups(args, facts, accelerator),
        ulimits=_ulimits(args),
        user="" if args.user is None else str(args.user),
        shm_size="" if args.shm_size is None else str(args.shm_size),
        login=Login(login.username, login.password_file, login.server) if login and login.username else None,
    )


def _required(settings: Settings) -> Container:
    if settings.config.container is None:
        raise ConfigError("this configuration has no container")
    return settings.config.container


def _public_environment(run: RunContext) -> dict[str, str]:
    """Give the configured variables without secrets: whoever may use the engine can read a container's environment.

    What we start inside is given all of them anyhow.
    """
    secrets = run.settings.secrets()
    return {
        name: value
        for name, value in run.settings.environment.items()
        if not any(secret in value for secret in secrets)
    }


def _mount(volume: str) -> Mount:
    source, _, rest = volume.partition(":")
    target, _, options = rest.partition(":")
    return Mount(source, target or source, tuple(option for option in options.split(",") if option))


def _devices(args: RuntimeArgs, facts: Answer, accelerator: Accelerator, absent: tuple[str, ...]) -> tuple[str, ...]:
    rocm = (*(("/dev/kfd",) if facts["kfd"] else ()), *(("/dev/dri",) if facts["dri"] else ()))
    given = tuple(device for device in args.devices if device.partition(":")[0] not in absent)
    fabric = () if accelerator == "cpu" else tuple(facts["infiniband"])
    return tuple(dict.fromkeys((*(rocm if accelerator == "rocm" else ()), *fabric, *given)))


def _groups(args: RuntimeArgs, facts: Answer, accelerator: Accelerator) -> tuple[str, ...]:
    """Give groups by number where the host knows them: an image often has no such name."""
    ids = {name: str(number) for name, number in facts["group_ids"].items() if number is not None}
    wanted = ("video",) if accelerator == "rocm" else ()
    found = [ids.get(name, "") for name in wanted]
    found += [ids.get(str(group), str(group)) for group in args.group_add]
    found += [ids.get("render", "")] if accelerator == "rocm" else []
    return tuple(dict.fromkeys(group for group in found if group))


def _ulimits(args: RuntimeArgs) -> tuple[str, ...]:
    given = args.ulimit
    return given if any(limit.startswith("memlock=") for limit in given) else (MEMLOCK, *given)


def _enter(run: RunContext, work_dirs: Mapping[str, str]) -> None:
    """Start the node programs inside and have the workload live there from now on."""
    programs = {host: f"{path}/{NAME}" for host, path in work_dirs.items()}
    with tempfile.TemporaryDirectory(prefix="aorta-") as folder:
        program = Path(folder) / NAME
        program.write_bytes(program_bytes())
        program.chmod(0o644)
        run.fleet.send(program, programs)
    _require_visible(run, programs)
    inside = _inside(run, programs)
    run.on_teardown("node programs in the containers ended", inside.close, is_inside=True)
    try:
        inside.open({host: f"{path}/inside.node" for host, path in work_dirs.items()})
    except FleetError as error:
        raise FleetError({host: _told(run.settings, each) for host, each in error.by_host.items()}) from error
    run.enter(inside)


def _told(settings: Settings, error: HostError) -> HostError:
    """Give why the node program did not start in a container, with what to do where the image has no such Python."""
    if not _NO_PROGRAM.search(error.reason):
        return error
    image, (python, *_) = _required(settings).image, python_command(settings)
    return Misnamed(error.host, f"the image {image} has no program {python!r}; {SET_PYTHON}")


def _inside(run: RunContext, programs: Mapping[str, str]) -> Fleet:
    (python, *_) = python_command(run.settings)
    return Fleet(
        {host: InsideTransport(run.fleet, host, run.engine.argv, path, python) for host, path in programs.items()},
        lease_seconds=run.settings.config.lease_seconds,
    )


def _require_visible(run: RunContext, programs: Mapping[str, str]) -> None:
    """Require that the containers see our work folder; one that we did not start may not mount it."""
    answers = run.ask(
        {
            host: Ask("run", {"argv": run.engine.argv(host, ["test", "-r", path]), "timeout_s": 60}, timeout_s=70)
            for host, path in programs.items()
        }
    )
    container = _required(run.settings)
    problems: dict[str, HostError] = {}
    for host, answer in answers.items():
        if answer["exit_code"] == 0:
            continue
        said = str(answer["stderr"]).strip()
        next_step = _how_to_read(container, PurePosixPath(programs[host]).parents[1])
        said = f" ({said})" if said else ""
        problems[host] = CommandFailed(host, f"the container cannot read {programs[host]}{said}; {next_step}")
    if problems:
        raise FleetError(problems)


def _how_to_read(container: Container, folder: PurePosixPath) -> str:
    """Say what to do about a container that cannot read our files; one that we have just started does mount them."""
    user = container.runtime.args.user
    if container.lifetime != "per_run":
        return f"mount {folder} into it at the same path, or set work_dir to a folder that it mounts so"
    if user is None:
        return "it is there, for its owner and root only: does the image run as another user, or SELinux forbid it?"
    whose = f"it is for its owner and root only, and user {user} (container.runtime.args.user) is neither"
    return f"{whose}; leave user out, or give the login user's number"


def _give_back(run: RunContext, work_dirs: Mapping[str, str], owners: Mapping[str, tuple[int, int]]) -> None:
    """Give what the workload wrote as another user to the login user of each host.

    Only who wrote it may do so, so a container that was ended meanwhile is started once more.
    """
    paths = {host: [path] for host, path in work_dirs.items()}
    if run.settings.config.aorta_path is not None:
        for given in paths.values():
            given.append(run.settings.config.container_mount_path)
    asks = {
        host: Ask("give", {"paths": paths[host], "uid": uid, "gid": gid}, timeout_s=GIVE_SECONDS)
        for host, (uid, gid) in owners.items()
        if uid != 0
    }
    ended = [host for host in asks if run.inside.loss(host) is not None and run.fleet.loss(host) is None]
    answers = run.inside.perform({host: ask for host, ask in asks.items() if host not in ended})
    failed = {**answers.failed, **_give_again(run, {host: asks[host] for host in ended}, work_dirs)}
    if failed:
        raise FleetError(failed)


def _give_again(run: RunContext, asks: Mapping[str, Ask], work_dirs: Mapping[str, str]) -> dict[str, HostError]:
    """Ask containers that are started again for it; gives what failed."""
    failed: dict[str, HostError] = {}
    for host, why in run.engine.revive(asks).items():
        said = f"what its container wrote as root stays root's: it has ended and cannot be started again ({why})"
        failed[host] = CommandFailed(host, said)
    hosts = [host for host in asks if host not in failed]
    if not hosts:
        return failed
    again = _inside(run, {host: f"{work_dirs[host]}/{NAME}" for host in hosts})
    try:
        failed |= again.open_reachable({host: f"{work_dirs[host]}/again.node" for host in hosts})
        failed |= again.perform({host: asks[host] for host in hosts if host not in failed}).failed
    finally:
        again.close()
    return failed
