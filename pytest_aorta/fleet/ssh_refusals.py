"""Refusals: why there is no connection, in one sentence: where, what was seen, what was expected, what to do next."""

from __future__ import annotations

import shlex
import socket

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from pytest_aorta.fleet.ssh_identity import mode_for_others
from pytest_aorta.fleet.ssh_keys import HostKeyRefused
from pytest_aorta.fleet.ssh_login import HungUp, SecondFactor
from pytest_aorta.fleet.ssh_proxy import ProxyEnded
from pytest_aorta.fleet.ssh_settings import Hop
from pytest_aorta.fleet.ssh_transport import NoGreeting

_SSH_PORT = 22
_PROHIBITED = 1  # why a channel is not opened. Source: RFC 4254, section 5.1
_IS_IT_UP = "is the host up, and may this machine reach its SSH port?"


class LinkBroken(OSError):
    """The connection to a host was there and is no more, or does not answer; what was asked may be asked once more."""


class Flooded(LinkBroken):
    """The other side prints without end, so that no answer can be told."""


def refusal(error: BaseException, hop: Hop, address: str) -> OSError:
    """Give the sentence for what kept us from connecting."""
    if hop.is_jump:
        way = f"through its jump host {hop.connection.original_host} ({hop.place})"
    else:
        way = f"({'' if address == hop.connection.host else f'{address} is '}{hop.place})"
    return OSError(f"no SSH connection {way}: {_reason(error, hop)}")


def is_passing(error: BaseException) -> bool:
    """Tell whether another try may help: a busy sshd hangs up on some of those that it has not let in yet."""
    if isinstance(error, (paramiko.AuthenticationException, paramiko.BadHostKeyException, HostKeyRefused)):
        return False
    cause = error.__cause__ if isinstance(error, NoGreeting) else error
    return isinstance(cause, (EOFError, ConnectionResetError, ProxyEnded))


def _reason(error: BaseException, hop: Hop) -> str:
    if isinstance(error, HostKeyRefused):
        return str(error)
    if isinstance(error, ProxyEnded):
        return f"the ProxyCommand of the ssh configuration ended {error}, expected a way to sshd; try it by hand"
    who = hop.proxy.name if hop.proxy else "it"
    if isinstance(error, NoGreeting):
        next_step = "try it by hand" if hop.proxy else "is the port right, or is it busy?"
        return f"{who} says '{error}', expected the greeting of sshd; {next_step}"
    if is_passing(error):
        return f"{who} hung up during the greeting, expected sshd; is it overloaded (MaxStartups), or no sshd at all?"
    if isinstance(error, paramiko.AuthenticationException):
        return _takes_no_keys(hop) or _not_let_in(error, hop)
    return _no_way(error, hop)


def _no_way(error: BaseException, hop: Hop) -> str:
    if isinstance(error, (socket.gaierror, UnicodeError)) and not isinstance(error, UnicodeDecodeError):
        return _unresolved(error, hop)
    if isinstance(error, TimeoutError) or "No existing session" in str(error):
        return _silent(hop)
    if isinstance(error, NoValidConnectionsError):
        words = ", ".join(sorted({reason.strerror or str(reason) for reason in error.errors.values()})).lower()
        return f"{words}, expected sshd; {'is it running, and is the port right?' if 'refused' in words else _IS_IT_UP}"
    if isinstance(error, paramiko.ChannelException) or "timeout opening channel" in str(error).lower():
        return _jump_in_vain(error, hop)
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return (
            f"it speaks SSH, and we have no algorithm in common ({words.lower()}), expected one that paramiko has; "
            "allow a usual one in its sshd_config (KexAlgorithms curve25519-sha256, Ciphers aes256-ctr)"
        )
    return f"{words.lower()}, expected sshd; does `ssh` get there?"


def _jump_in_vain(error: BaseException, hop: Hop) -> str:
    jump = _jump(hop)
    if not isinstance(error, paramiko.ChannelException):
        within = f"within {hop.connection.connect_timeout:g} s"
        return f"the jump host {jump} got no answer from there {within}, expected sshd; {_IS_IT_UP}"
    step = f"does sshd of {jump} permit it (AllowTcpForwarding)?" if error.code == _PROHIBITED else _IS_IT_UP
    return f"the jump host {jump} does not get there ({error.text.lower()}), expected sshd; {step}"


def _silent(hop: Hop) -> str:
    within = f"within {hop.connection.connect_timeout:g} s"
    if hop.is_bounded:
        within += ", the most that is waited whatever ConnectTimeout says"
    if hop.proxy:
        return f"{hop.proxy.name} let nothing through {within}, expected the greeting of sshd; try it by hand"
    return f"no answer {within}, expected sshd; {_IS_IT_UP}"


def _unresolved(error: socket.gaierror | UnicodeError, hop: Hop) -> str:
    field = "ProxyJump" if hop.is_jump else "node_dict"
    if isinstance(error, UnicodeError):
        return (
            f"{hop.connection.host!r} is no name that can be looked up, expected 1 to 63 characters between its dots; "
            f"correct {field}, or its HostName in ~/.ssh/config"
        )
    return (
        f"the name {hop.connection.host} does not resolve ({error.strerror}), expected a name or an address that "
        f"this machine knows; correct {field}, or give it a HostName in ~/.ssh/config"
    )


def _takes_no_keys(hop: Hop) -> str:
    wanted = hop.login.wanted
    if not wanted or hop.login.password:
        return ""
    by = ", ".join(filter(None, wanted)) or "nothing"
    return f"it lets nobody in by a key (by {by}), expected publickey; set PubkeyAuthentication yes in its sshd_config"


def _not_let_in(error: BaseException, hop: Hop) -> str:
    login = hop.login
    if isinstance(error, SecondFactor):
        return (
            "a second factor is asked for, expected to be let in by a key or a password alone; there is nobody to ask"
        )
    agent = f"the agent at {login.agent} {login.agent_fault}" if login.agent_fault else ""
    if "timeout" in str(error).lower():
        if agent:
            return f"{agent}, expected a signature; does it wait for a touch or a confirmation? Try it by `ssh`"
        return "it did not answer whether we are let in; is a directory service of that host slow?"
    tried = ", ".join(login.attempts())
    if isinstance(error, HungUp):
        tried = f"{tried}; {agent}" if agent else tried
        return (
            f"it hung up while keys were tried ({tried}), expected one to be let in before MaxAuthTries of its sshd; "
            f"{_after_too_many(hop)}"
        )
    if not tried and not any(login.with_flaw(flaw) for flaw in ("locked", "open to others")):
        return (
            f"user {login.user} was not let in: seen no key in ~/.ssh, by IdentityFile or in an agent"
            f"{f', and {agent}' if agent else ''}; "
            "name one by priv_key_file of the cluster or IdentityFile in ~/.ssh/config, or do `ssh-add`"
        )
    return (
        f"user {login.user} was not let in (tried {tried or 'nothing'}{f'; {agent}' if agent else ''}), "
        f"expected one of them to open it; {_after_login(hop)}"
    )


def _after_too_many(hop: Hop) -> str:
    """Say what to do where the host did not wait for the right key: name it, since that one comes first."""
    if hop.is_jump:
        return "name its key by IdentityFile and IdentitiesOnly in ~/.ssh/config"
    if hop.login.given:
        return f"{hop.login.given} was refused first, so check username and priv_key_file of the cluster"
    return "name the key by priv_key_file, or by IdentityFile and IdentitiesOnly in ~/.ssh/config"


def _after_login(hop: Hop) -> str:
    """Say what to do where no login worked: the same one by hand tells why."""
    login = hop.login
    for path in login.with_flaw("open to others"):
        return (
            f"do `chmod 600 {path}`, whose mode {mode_for_others(path)} is open to others, for which ssh leaves it out"
        )
    for path in login.with_flaw("locked"):
        return f"give {path}, which needs a passphrase, to the agent by `ssh-add {path}`"
    key = next((one.path for one in login.identities if not one.flaw), "")
    by_hand = ["ssh", "-v", *(["-i", key] if key else []), "-l", login.user]
    by_hand += [
        *(["-p", str(hop.connection.port)] if hop.connection.port != _SSH_PORT else []),
        str(hop.connection.original_host),
        "true",
    ]
    if hop.is_jump:
        where = "User and IdentityFile of that host in ~/.ssh/config"
    elif not login.given and login.password is None:
        where = "username of the cluster, IdentityFile in ~/.ssh/config and `ssh-add -l`, or set priv_key_file"
    elif login.password is None:
        where = "username and priv_key_file of the cluster"
    else:
        where = f"username{', password and priv_key_file' if login.given else ' and password'} of the cluster"
    return f"try `{shlex.join(by_hand)}`, and check {where}"


def _jump(hop: Hop) -> str:
    gateway = hop.connection.gateway
    return str(getattr(gateway, "original_host", "of the ssh configuration"))
