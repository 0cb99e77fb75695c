"""Login: what is offered to a host, in the order in which ssh offers it, and what became of it.

paramiko's own order is another one: it passes over certificates that lie elsewhere than beside their key, and offers
all keys of the agent before those of them that are listed, until the host hangs up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import paramiko

from pytest_aorta.fleet.ssh_agent import Agent, HeldKey
from pytest_aorta.fleet.ssh_identity import Identity, private_key, signed_key

_FACTORS = frozenset({"keyboard-interactive", "password"})


class HungUp(paramiko.AuthenticationException):  # type: ignore[misc]
    """The host ended the connection while keys were tried."""


class SecondFactor(paramiko.AuthenticationException):  # type: ignore[misc]
    """The host wants what somebody would have to type."""


@dataclass(slots=True)
class Login:
    """The keys of one host and its password; `tried`, `agent_fault` and `wanted` tell afterwards how it went.

    `wanted`: by what a host lets in that takes no keys at all.

    The key of the cluster file comes first. The rest is ssh's order: certificates that are listed, listed keys that the
    agent holds, its other keys, and keys in files. Source: pubkey_prepare() of OpenSSH.
    """

    user: str
    identities: tuple[Identity, ...]
    certificates: tuple[Identity, ...] = ()
    agent: str = ""
    is_only_listed: bool = False
    password: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    tried: list[str] = field(default_factory=list)
    num_of_agent: int = 0
    agent_fault: str = ""
    wanted: tuple[str, ...] = ()

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Offer one after the other until the host lets us in.

        Raises:
            paramiko.AuthenticationException: it does not.
        """
        with contextlib.closing(Agent(self.agent, self.timeout_s)) as agent:
            try:
                left = self._offer_keys(transport, agent)
            finally:
                self.agent_fault = agent.fault
        if transport.is_authenticated():
            return
        if self.password is not None:
            self.tried.append("the password")
            with _telling(transport):
                left = set(transport.auth_password(self.user, self.password))
        if transport.is_authenticated():
            return
        raise SecondFactor if left & _FACTORS else paramiko.AuthenticationException

    def offers(self, agent: Agent) -> Iterator[tuple[str, Any]]:
        """Give name and key of each, once; those of the agent alone have no name."""
        listed = {identity.public: identity for identity in (*self.certificates, *self.identities)}
        held = {public: key for public, key in agent.held().items() if public in listed or not self.is_only_listed}
        order = [identity.public for identity in self.identities if identity.is_given]
        order += [identity.public for identity in self.certificates]
        order += [*sorted(held, key=lambda public: public not in listed), *listed]
        for public in dict.fromkeys(order):
            key = held.get(public) or self._opened(listed[public], held)
            if key is not None:
                yield (listed[public].path if public in listed else ""), key

    def with_flaw(self, flaw: str) -> list[str]:
        """Give the private files that were of no use for one reason, unless the agent held their keys."""
        paths = (identity.path for identity in self.identities if identity.flaw == flaw)
        return list(dict.fromkeys(path for path in paths if path not in self.tried))

    @property
    def given(self) -> str:
        """Give the key of the cluster file, if it names one."""
        return next((identity.path for identity in self.identities if identity.is_given), "")

    def attempts(self) -> list[str]:
        """Name what was tried; keys that nobody listed are counted."""
        number = self.num_of_agent
        of_agent = [f"{number} key{'' if number == 1 else 's'} of the agent"] if number else []
        password = [name for name in self.tried if name == "the password"]
        return [*dict.fromkeys(name for name in self.tried if name not in password), *of_agent, *password]

    def _offer_keys(self, transport: paramiko.Transport, agent: Agent) -> set[str]:
        """Give what the host wants besides the key that it took; nothing when it took none."""
        for name, key in self.offers(agent):
            if name:
                self.tried.append(name)
            else:
                self.num_of_agent += 1
            try:
                with _telling(transport):
                    left = set(transport.auth_publickey(self.user, key))
            except paramiko.BadAuthenticationType as error:
                self.wanted = tuple(error.allowed_types)
                break
            except paramiko.AuthenticationException as error:
                if isinstance(error, HungUp) or "timeout" in str(error).lower():
                    raise
                continue
            if transport.is_authenticated() or left & _FACTORS:
                return left
        return set()

    def _opened(self, identity: Identity, held: Mapping[bytes, HeldKey]) -> Any:
        """Give the key that signs for an identity which the agent does not hold as such; None where there is none."""
        if identity.certificate is None:
            return private_key(identity.path, self.password) if not identity.flaw else None
        public = signed_key(identity.certificate)
        key: Any = None
        if public in held:
            key = HeldKey(held[public].agent, public)  # another one than that which is offered by itself
        else:
            files = (one for one in self.identities if one.public == public and not (one.flaw or one.certificate))
            key = next((private_key(one.path, self.password) for one in files), None)
        if key is not None:
            key.public_blob = identity.certificate
        return key


@contextlib.contextmanager
def _telling(transport: paramiko.Transport) -> Iterator[None]:
    """Tell what ends the connection as HungUp, and all else as not let in."""
    try:
        yield
    except (paramiko.SSHException, OSError, EOFError) as error:
        if not transport.is_active():
            raise HungUp from error
        if isinstance(error, paramiko.AuthenticationException):
            raise
        raise paramiko.AuthenticationException(str(error)) from error
