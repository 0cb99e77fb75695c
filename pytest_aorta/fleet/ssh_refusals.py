"""Refusals: why there is no connection, in one sentence: where, what was seen, what was expected, what to do next."""

from __future__ import annotations

import shlex
import socket

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from pytest_aorta.fleet.ssh_keys import HostKeyRefused
from pytest_aorta.fleet.ssh_proxy import ProxyEnded
from pytest_aorta.fleet.ssh_settings import HUNG_UP, Hop

_SSH_PORT = 22
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
    return isinstance(error, (EOFError, ConnectionResetError, ProxyEnded)) or "banner" in str(error)


def _reason(error: BaseException, hop: Hop) -> str:
    if isinstance(error, HostKeyRefused):
        return str(error)
    words = str(error)
    if isinstance(error, ProxyEnded):
        return f"the ProxyCommand of the ssh configuration ended {words}, expected a way to sshd; try it by hand"
    if isinstance(error, EOFError) or is_passing(error) or "shut down" in words:
        return "it hung up during the greeting, expected sshd; is it overloaded (MaxStartups), or no sshd at all?"
    if isinstance(error, paramiko.AuthenticationException):
        return _not_let_in(error, hop)
    return _no_way(error, hop)


def _no_way(error: BaseException, hop: Hop) -> str:
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return _unresolved(error, hop)
    if isinstance(error, TimeoutError) or "No existing session" in str(error):
        return f"no answer within {hop.connection.connect_timeout:g} s, expected sshd; {_IS_IT_UP}"
    if isinstance(error, NoValidConnectionsError):
        words = ", ".join(sorted({reason.strerror or str(reason) for reason in error.errors.values()})).lower()
        return f"{words}, expected sshd; {'is it running, and is the port right?' if 'refused' in words else _IS_IT_UP}"
    if isinstance(error, paramiko.ChannelException):
        return f"the jump host {_jump(hop)} does not get there ({error.text.lower()}), expected sshd; {_IS_IT_UP}"
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{words.lower()}, expected sshd; does `ssh` get there?"


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


def _not_let_in(error: BaseException, hop: Hop) -> str:
    if "second factor" in str(error):
        return f"{error}, expected to be let in by a key or a password alone; there is nobody to ask"
    if "timeout" in str(error).lower():
        return "it did not answer whether we are let in; is a directory service of that host slow?"
    if str(error) == HUNG_UP:
        return (
            f"{HUNG_UP}, expected one to be let in before MaxAuthTries of its sshd; name the key by priv_key_file, or "
            "by IdentityFile and IdentitiesOnly in ~/.ssh/config"
        )
    kwargs = hop.connection.connect_kwargs
    tried: list[str] = [path for path in hop.key_files if path not in hop.locked]
    if kwargs["look_for_keys"]:
        tried.append("the keys in ~/.ssh")
    if hop.agent:
        tried.append("the keys of the agent")
    if kwargs["password"] is not None:
        tried.append("the password")
    if "No authentication" in str(error) and not hop.locked:
        return (
            f"user {hop.connection.user} was not let in: seen no key in ~/.ssh, by IdentityFile or in an agent; "
            "name one by priv_key_file of the cluster or IdentityFile in ~/.ssh/config, or do `ssh-add`"
        )
    return (
        f"user {hop.connection.user} was not let in (tried {', '.join(tried) or 'nothing'}), expected one of them to "
        f"open it; {_after_login(hop)}"
    )


def _after_login(hop: Hop) -> str:
    """Say what to do where no login worked: the same one by hand tells why."""
    if hop.locked:
        return f"give {hop.locked[0]}, which needs a passphrase, to the agent by `ssh-add {hop.locked[0]}`"
    by_hand = ["ssh", "-v", *(["-i", hop.key_files[0]] if hop.key_files else []), "-l", hop.connection.user]
    by_hand += [
        *(["-p", str(hop.connection.port)] if hop.connection.port != _SSH_PORT else []),
        str(hop.connection.original_host),
        "true",
    ]
    if hop.is_jump:
        where = "User and IdentityFile of that host in ~/.ssh/config"
    elif not hop.is_key_given and hop.connection.connect_kwargs["password"] is None:
        where = "username of the cluster, IdentityFile in ~/.ssh/config and `ssh-add -l`, or set priv_key_file"
    elif hop.connection.connect_kwargs["password"] is None:
        where = "username and priv_key_file of the cluster"
    else:
        where = f"username{', password and priv_key_file' if hop.is_key_given else ' and password'} of the cluster"
    return f"try `{shlex.join(by_hand)}`, and check {where}"


def _jump(hop: Hop) -> str:
    gateway = hop.connection.gateway
    return str(getattr(gateway, "original_host", "of the ssh configuration"))
