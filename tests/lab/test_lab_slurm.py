"""Slurm over the hosts of a lab: as much of it as the tests of others rely on."""

from __future__ import annotations

import pytest

from tests.lab import faults
from tests.lab.lab import Lab

pytestmark = pytest.mark.lab(2, slurm=True)


def test_a_step_runs_on_each_host(lab: Lab) -> None:
    done = lab.ssh("node1", "srun -N2 --ntasks-per-node=1 --label hostname")
    assert sorted(done.stdout.splitlines()) == ["0: node1", "1: node2"], done.stderr


def test_any_host_and_the_ordinary_user_may_submit(lab: Lab) -> None:
    assert lab.ssh("lab@node2", "srun -N1 -w node1 sh -c 'id -un; hostname'").stdout == "lab\nnode1\n"


def test_a_job_sees_the_gpus_that_it_asked_for(lab: Lab) -> None:
    done = lab.ssh("node1", "srun -N1 --gres=gpu:2 sh -c 'echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE'")
    assert done.stdout == "0,1 2\n", done.stderr


def test_exit_codes_come_back(lab: Lab) -> None:
    assert lab.ssh("node1", "srun -N1 sh -c 'exit 7'").returncode == 7


def test_a_nested_step_runs_beside_the_outer_one(lab: Lab) -> None:
    script = "srun -N2 -n2 sh -c 'sleep 30' & sleep 0.5; srun --overlap -w node2 -N1 -n1 hostname; kill %1; wait"
    done = lab.ssh("node1", f'salloc -N2 --quiet bash -c "{script}"')
    assert done.stdout == "node2\n", done.stderr


def test_a_node_returns_after_a_boot(lab: Lab) -> None:
    with faults.power_off(lab.host("node2")):
        assert lab.host("node1").running
    assert lab.ssh("node1", "srun -N2 --ntasks-per-node=1 hostname").returncode == 0
