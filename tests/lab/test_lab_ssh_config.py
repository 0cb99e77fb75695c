"""The ssh configuration of a user whose home is that of the list of users: ssh reads it by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.lab.conftest import python_folders
from tests.lab.lab import Lab

pytestmark = pytest.mark.lab(1, binds=python_folders())

WAY = """
import sys
from pytest_aorta.fleet.ssh_settings import Access, way_to
for name in sys.argv[1:]:
    [hop] = way_to(name, Access("me"), 7)
    print(hop.place, *(key.path for key in hop.login.identities), hop.known.files[0])
"""


def test_a_user_s_own_configuration_and_that_of_the_system(lab: Lab) -> None:
    host = lab.hosts[0]
    texts = {
        "/home/lab/.ssh/config": 'Match HOST gpu1\n  Include "con fig"\nHost gpu[12]\n  Port 24\n',
        "/home/lab/.ssh/con fig": "HostName 192.0.2.1\nIdentityFile ~/keys/%n\n",
        "/etc/ssh/ssh_config": "Host *\n  Port 25\n",
    }
    for path, text in texts.items():
        host.path(path).write_text(text)
    make_key = ["sh", "-c", "mkdir ~/keys; ssh-keygen -q -t ed25519 -N '' -f ~/keys/gpu1"]
    host.run(["env", "HOME=/home/lab", *make_key], user="lab", check=True)
    python = [f"PYTHONPATH={Path(__file__).parents[2]}", sys.executable, "-c", WAY]
    done = host.run(["env", "HOME=/home/lab", *python, "gpu1", "gpu2"], user="lab", check=True)
    assert done.stdout.splitlines() == [
        "192.0.2.1 port 25 as me /home/lab/keys/gpu1 /home/lab/.ssh/known_hosts",
        "gpu2 port 25 as me /home/lab/.ssh/known_hosts",
    ]
