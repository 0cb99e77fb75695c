"""Logins: registry logins that last for one pull, in a folder of their own on each host."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from pytest_aorta.containers.commands import Command, Program, outputs
from pytest_aorta.containers.driver import LOGIN_TIMEOUT_S, PROBE_TIMEOUT_S
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.containers.spec import Login
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet

# A shell only for the redirections; whatever comes from outside is a positional parameter.
MAKE = ("sh", "-c", 'umask 077 && mkdir -- "$1" && printf %s "$2" >"$1/$3"', "sh")
WITH_PASSWORD = (
    "sh",
    "-c",
    'file=$1; shift; case $file in "~/"*) file=$HOME/${file#"~/"};; esac; exec "$@" <"$file"',
    "sh",
)
# Without an entry docker would look for a credential helper, and the login would stay in that.
BEGINNING = {"docker": '{"auths":{"nowhere.invalid":{}}}', "podman": '{"auths":{}}'}


def passwords(fleet: Fleet, logins: Mapping[str, Login]) -> Outcome[str]:
    """Read passwords from their files, in the same way in which a program is given one; also through links."""
    commands = {
        host: Command((*WITH_PASSWORD, login.password_file, "cat"), PROBE_TIMEOUT_S) for host, login in logins.items()
    }
    read = outputs(fleet, commands)
    return Outcome(
        {host: text.rstrip("\r\n") for host, text in read.good.items()},
        {host: f"the registry's password cannot be read: {why}" for host, why in read.failed.items()},
    )


class Logins:
    """Folders that hold a login each; the host removes them should we not come to it."""

    def __init__(self, fleet: Fleet, name: str, programs: Mapping[str, Program]) -> None:
        self._fleet = fleet
        self._name = name
        self._programs = programs
        self._folder = f"/tmp/aorta-login-{secrets.token_hex(8)}"  # noqa: S108  # made anew or not at all
        self._hosts: list[str] = []

    def enter(self, logins: Mapping[str, Login]) -> Outcome[str]:
        """Log in where that is asked for; the password goes from its file to the program's input, on the host."""
        self._hosts = list(logins)
        undo = Ask("undo", {"name": self._folder, "argv": self._removing, "timeout_s": PROBE_TIMEOUT_S})
        promised = self._fleet.perform(dict.fromkeys(logins, undo))
        failed = {host: error.reason for host, error in promised.failed.items()}
        make = (*MAKE, self._folder, BEGINNING[self._name], "config.json")
        made = outputs(self._fleet, {host: Command(make, PROBE_TIMEOUT_S) for host in promised})
        entered = outputs(
            self._fleet,
            {
                host: Command(
                    (*WITH_PASSWORD, logins[host].password_file, *self._entering(host, logins[host])), LOGIN_TIMEOUT_S
                )
                for host in made.good
            },
        )
        failed |= made.failed
        failed |= {host: f"the login did not work: {why}" for host, why in entered.failed.items()}
        return Outcome(entered.good, failed)

    def pulling(self, host: str) -> list[str]:
        """Give the beginning of a pull on a host, with its login where there is one."""
        if host not in self._hosts:
            return [*self._programs[host], "pull"]
        return [*self._configured(host, "pull")]

    def leave(self) -> None:
        """Remove the folders."""
        removed = outputs(self._fleet, dict.fromkeys(self._hosts, Command(tuple(self._removing), PROBE_TIMEOUT_S)))
        self._fleet.perform(dict.fromkeys(removed.good, Ask("undone", {"name": self._folder})))

    @property
    def _removing(self) -> list[str]:
        return ["rm", "-rf", "--", self._folder]

    def _entering(self, host: str, login: Login) -> list[str]:
        words = [f"--username={login.username}", "--password-stdin", *([login.server] if login.server else [])]
        return [*self._configured(host, "login"), *words]

    def _configured(self, host: str, command: str) -> list[str]:
        if self._name == "podman":
            return [*self._programs[host], command, f"--authfile={self._folder}/config.json"]
        return [*self._programs[host], "--config", self._folder, command]
