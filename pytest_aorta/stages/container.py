"""The containers of a run: what each is started with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from pytest_aorta.config.container import RuntimeArgs
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.spec import RUN_LABEL, STATE_LABEL, Login, Mount, Spec
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Accelerator
from pytest_aorta.run.state_dirs import state_dir_of
from pytest_aorta.stages.entering import enter, give_back, required

MEMLOCK = "memlock=-1"
GIVEN_BACK = "ownership given back"
DONE_WITH = {"per_run": "removed", "persistent": "kept", "no_launch": "left alone"}


def start_containers(
    run: RunContext,
    facts: Mapping[str, Answer],
    work_dirs: Mapping[str, str],
    accelerator: Accelerator,
    absent: Mapping[str, tuple[str, ...]],
) -> Mapping[str, str]:
    """Start the container of every host and the node program in it; say by host what is there."""
    lifetime = required(run.settings).lifetime
    specs = {
        host: spec_of(run, host, answer, work_dirs[host], accelerator, absent[host]) for host, answer in facts.items()
    }
    run.on_teardown(f"{run.engine.name}: containers {DONE_WITH[lifetime]}", run.engine.remove)
    described = run.engine.launch(run.fleet, specs)
    for host, text in described.items():
        log.info("%s: %s", host, text)
    entered = enter(run, work_dirs)
    owners = {host: (int(answer["uid"]), int(answer["gid"])) for host, answer in facts.items()}

    def hand_over() -> None:
        entered.end_left()
        give_back(run, work_dirs, owners)

    run.on_teardown(GIVEN_BACK, hand_over, is_inside=True)
    return described


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be started on each host."""
    container = required(settings)
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
    container = required(run.settings)
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
