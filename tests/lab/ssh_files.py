"""What sshd and its clients read: keys, addresses, settings. Nothing of the machine's own ~/.ssh is used."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .plan import PATH, Plan

# The first SetEnv wins: what is put into sshd_config.d later has to stand first.
SSHD_CONFIG = f"""\
Include /etc/ssh/sshd_config.d/*.conf
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 200:30:400
MaxSessions 100
PidFile /run/sshd.pid
Subsystem sftp /usr/lib/openssh/sftp-server
AcceptEnv LANG LC_*
SetEnv PATH={PATH}
"""

CLIENT_CONFIG = """\
Host {name} {address}
  HostName {address}
  User root
  IdentityFile {folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  LogLevel ERROR
  ConnectTimeout 5
"""


def write_ssh_files(plan: Plan) -> None:
    """Fill the lab's folder, with a `home` for clients that read $HOME/.ssh and a `bin/ssh` for those that do not."""
    folder = plan.folder
    _make_key(folder / "id", "lab")
    known_hosts = []
    for name, address in plan.hosts.items():
        key = folder / name / "ssh_host_ed25519_key"
        key.parent.mkdir()
        _make_key(key, name)
        known_hosts.append(f"{name},{address} {public_part(key)}\n")
    (folder / "known_hosts").write_text("".join(known_hosts), "utf-8")
    (folder / "hosts").write_text(
        "127.0.0.1 localhost\n"
        f"{plan.controller} controller\n" + "".join(f"{address} {name}\n" for name, address in plan.hosts.items()),
        "utf-8",
    )
    (folder / "sshd_config").write_text(SSHD_CONFIG, "utf-8")
    (folder / "ssh_config").write_text(
        "".join(
            CLIENT_CONFIG.format(name=name, address=address, folder=folder) for name, address in plan.hosts.items()
        ),
        "utf-8",
    )
    dot_ssh = folder / "home" / ".ssh"
    dot_ssh.mkdir(parents=True, mode=0o700)
    shutil.copy(folder / "ssh_config", dot_ssh / "config")
    shutil.copy(folder / "known_hosts", dot_ssh / "known_hosts")
    wrapper = folder / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n', "utf-8")
    wrapper.chmod(0o755)


def public_part(key: Path) -> str:
    """Kind and base64 of a key pair's public half, without its comment."""
    return " ".join(Path(f"{key}.pub").read_text("utf-8").split()[:2])


def _make_key(path: Path, comment: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)
