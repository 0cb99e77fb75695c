"""Configuration: what the user's and the system's ssh configuration say of one host, as ssh itself reads them.

OpenSSH's own client is asked (`ssh -G`). It takes the home of the list of users, whatever HOME says, and refuses users
who are not in that list: where HOME is another one, it reads copies in which that home is written out.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_aorta.fleet.ssh_config_plain import DIRECTIVE, INCLUDE_DEPTH, Found, included_files, plain_look_up
from pytest_aorta.fleet.ssh_paths import in_home

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
ANSWER_TIMEOUT_S = 30.0  # a `Match exec` may take its time, and a name that is to become canonical
_LISTS = frozenset({"userknownhostsfile", "globalknownhostsfile"})
_HOME = re.compile(r"""(?<![^\s=,"'])~(?=/)|%.""")


def look_up(host: str, user: str | None = None, port: int | None = None, key_file: str | None = None) -> Found:
    """Give what holds for a host, by keyword in small letters; `key_file` comes before the keys of the configuration.

    Raises:
        OSError: the configuration cannot be read.
    """
    own = in_home("~/.ssh/config")
    if not (own.is_file() or SYSTEM_CONFIG.is_file()):
        return {}
    client = shutil.which("ssh")
    try:
        real_home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        client = None
    if client is None:
        return plain_look_up(host, own, SYSTEM_CONFIG)
    argv = [client, "-G", "-o", "LogLevel=ERROR"]
    argv += [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    argv += ["-i", str(in_home(key_file))] if key_file else []
    end = ["--", host, "true"]  # with a command, as `ssh HOST true`: Match looks at that
    if in_home("~") == Path(real_home):
        return _found(_answer([*argv, *end], host, {}))
    with tempfile.TemporaryDirectory(prefix="aorta-ssh-") as folder:
        main, names = _copied(own, Path(folder))
        return _found(_answer([*argv, "-F", str(main), *end], host, names))


def _answer(argv: Sequence[str], host: str, names: Mapping[str, str]) -> str:
    """Ask ssh; nobody is at a terminal. `names` has what stands in the copies that it reads for other names."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as asked:
        try:
            output, errors = asked.communicate(timeout=ANSWER_TIMEOUT_S)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise OSError(
                f"what the ssh configuration says of {host} was not known within {ANSWER_TIMEOUT_S:g} s; try "
                f"`ssh -G {host}`, does a Match exec wait, or the look-up of a name?"
            ) from error
    if asked.returncode:
        lines = _renamed(errors.decode("utf-8", "replace"), names).strip().splitlines()
        words = next(iter(lines), f"ssh -G ended with status {asked.returncode}").strip()
        raise OSError(f"ssh refuses its configuration for {host}: {words}; correct it until `ssh -G {host}` takes it")
    return _renamed(os.fsdecode(output), names)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for copy, name in names.items():
        text = text.replace(copy, name)
    return text


def _found(output: str) -> Found:
    found: Found = {}
    for line in output.splitlines():
        keyword, _, value = line.partition(" ")
        if keyword in {"identityfile", "certificatefile"}:
            found.setdefault(keyword, []).append(value)
        elif keyword in _LISTS:
            found[keyword] = _listed(value)
        elif value != "none" or keyword not in {"connecttimeout", "proxycommand", "proxyjump"}:
            found[keyword] = value
    return found


def _listed(value: str) -> list[str]:
    """Give the names of a list, which ssh prints without the quotes: a word that begins no path belongs to the last."""
    names: list[str] = []
    for word in value.split(" "):
        if names and not word.startswith(("/", "~")):
            names[-1] += f" {word}"
        else:
            names.append(word)
    return names


def _copied(own: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """Write copies of the configuration in which HOME is written out; give the first, and the names for theirs."""
    home = folder / "home"  # in its name no blank needs quotes
    home.symlink_to(in_home("~"))
    names = {str(home): str(in_home("~"))}

    def in_words(found: re.Match[str]) -> str:
        return str(home) if found[0] in {"~", "%d"} else found[0]

    def copy(path: Path, base: Path, depth: int) -> Path:
        target = folder / f"{len(names)}.conf"
        names[str(target)] = str(path)
        lines = []
        for line in path.read_text("utf-8", "replace").splitlines():
            directive = DIRECTIVE.match(line)
            if directive is None or directive[1].lower() != "include":
                lines.append(_HOME.sub(in_words, line))
                continue
            if not depth:
                raise OSError(f"ssh refuses its configuration: {path} includes itself, over and over; correct it")
            copies = [copy(each, base, depth - 1) for each in included_files(directive[2], base)]
            lines.append(f"Include {' '.join(map(str, copies))}" if copies else "")
        target.write_text("\n".join([*lines, ""]), "utf-8")
        return target

    copies = [copy(path, path.parent, INCLUDE_DEPTH) for path in (own, SYSTEM_CONFIG) if path.is_file()]
    main = folder / "config"
    usual = f"UserKnownHostsFile {home}/.ssh/known_hosts {home}/.ssh/known_hosts2"
    main.write_text("\n".join([*(f"Include {path}" for path in copies), usual, ""]), "utf-8")
    return main, names
