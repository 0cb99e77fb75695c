"""Rendezvous: where the ranks find each other, tried from every host before the launch."""

from __future__ import annotations

from pytest_aorta.errors import CommandFailed, FleetError, HostError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.stages.command import rendezvous_address, uses_torchrun
from pytest_aorta.stages.watch import Watch

REACH_SECONDS = 10
TAKEN = ("EADDRINUSE", "address already in use", "Address already in use")


def choose_port(run: RunContext) -> int:
    """Choose a port on the head, or take the configured one, and require that every host reaches it there.

    Without torchrun nothing is chosen: 0, or what is configured.

    Raises:
        FleetError: the port is taken, or a host cannot reach it.
    """
    configured = run.settings.config.multi_node.master_port
    if not uses_torchrun(run.settings):
        return configured
    try:
        port = int(run.ask_head(Ask("offer", {"port": configured}))["port"])
    except FleetError as error:
        if not configured or run.head.name not in error.by_host:
            raise
        advice = f"{error.by_host[run.head.name].reason}; set multi_node.master_port to 0, so that a free one is chosen"
        raise FleetError({run.head.name: CommandFailed(run.head.name, advice)}) from error
    try:
        _require_reachable(run, port)
    finally:
        run.ask_head(Ask("withdraw", {"port": port}))
    return port


def was_taken(watch: Watch) -> bool:
    """Tell whether torchrun found the port in use: somebody took it after it was chosen."""
    words = [word for seen in watch.failures.values() for word in (seen.unmarked_words, *seen.words.values())]
    return watch.step is None and any(taken in word for word in words for taken in TAKEN)


def _require_reachable(run: RunContext, port: int) -> None:
    address = rendezvous_address(run.settings)
    asked = Ask("reach", {"address": address, "port": port, "timeout_s": REACH_SECONDS}, timeout_s=REACH_SECONDS + 5)
    answers = run.ask_inside({host.name: asked for host in run.group})  # the head's own ranks go there, too
    problems: dict[str, HostError] = {}
    for host, answer in answers.items():
        if answer["why"]:
            problems[host] = CommandFailed(
                host,
                f"cannot reach the rendezvous at {address}:{port} on {run.head.name} ({answer['why']}); set "
                f"multi_node.master_addr, or vpc_ip of {run.head.name}, to an address that all hosts reach, and "
                "let the firewall pass it (multi_node.master_port fixes the port)",
            )
        else:
            log.info("%s reaches %s:%d (%s)", host, address, port, answer["peer"])
    if problems:
        raise FleetError(problems)
