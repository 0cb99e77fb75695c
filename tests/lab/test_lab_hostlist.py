"""Host lists are read by the real scontrol as they were meant."""

from __future__ import annotations

import pytest

from pytest_aorta.hostlist import host_list
from tests.lab.lab import Lab

pytestmark = pytest.mark.lab(1, slurm=True)


@pytest.mark.parametrize(
    "hosts",
    [["node08", "node09", "node10", "node12", "login"], ["n001", "n002", "n010"], ["b1", "a1", "b2"], ["x2", "x1"]],
)
def test_slurm_reads_a_host_list_alike(lab: Lab, hosts: list[str]) -> None:
    seen = lab.hosts[0].run(["scontrol", "show", "hostnames", host_list(hosts)], check=True)

    assert seen.stdout.split() == hosts
