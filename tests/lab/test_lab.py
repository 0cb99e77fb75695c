"""The lab itself: hosts are machines of their own, share nothing by accident, and see what tests bind."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.lab.conftest import MakeLab, python_folders
from tests.lab.lab import Lab
from tests.lab.processes import LabError, wait_until

pytestmark = pytest.mark.lab(2, docker=True, binds=python_folders())


def test_ssh_reaches_each_host_by_name_and_by_address(lab: Lab) -> None:
    for host in lab.hosts:
        for destination in (host.name, host.address, f"lab@{host.name}"):
            assert lab.ssh(destination, "hostname").stdout == f"{host.name}\n"


def test_clients_that_read_home_or_path_find_the_hosts(lab: Lab) -> None:
    done = subprocess.run(
        ["sh", "-c", 'ssh node2 hostname; cat "$HOME/.ssh/config"'],
        env=lab.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "node2\n" + lab.ssh_config.read_text("utf-8")


def test_the_ordinary_user_may_read_the_kernel_log_and_little_else(lab: Lab) -> None:
    assert lab.ssh("lab@node1", "id -un; sudo -n dmesg | head -c1").stdout.startswith("lab\n")
    assert lab.ssh("lab@node1", "sudo -n id").returncode == 1
    assert lab.hosts[0].run(["id", "-un"], user="lab").stdout == "lab\n"


def test_hosts_reach_each_other(lab: Lab) -> None:
    first, second = lab.hosts
    shown = first.run(["ssh-keyscan", "-t", "ed25519", second.name], check=True).stdout.split()[1:3]
    assert " ".join(shown) in lab.known_hosts.read_text("utf-8")


def test_hosts_have_no_way_out(lab: Lab) -> None:
    assert lab.hosts[0].run(["ip", "route", "show", "default"]).stdout == ""


@pytest.mark.parametrize("folder", ["/tmp", "/run", "/dev/shm", "/root", "/var/tmp", "/home/lab"])
def test_files_stay_in_their_host(lab: Lab, folder: str) -> None:
    first, second = lab.hosts
    name = f"{folder}/{uuid.uuid4()}"
    assert lab.ssh(first.name, f"echo here >{name}").returncode == 0
    assert first.path(name).read_text("utf-8") == "here\n"
    assert not second.path(name).exists()
    assert not Path(name).exists()


def test_one_folder_is_shared_by_all(lab: Lab) -> None:
    lab.ssh("node1", "echo here >/shared/file")
    assert lab.ssh("node2", "cat /shared/file").stdout == "here\n"
    assert (lab.shared / "file").read_text("utf-8") == "here\n"


def test_this_python_is_seen_in_hosts_and_protected(lab: Lab) -> None:
    for destination in ("root@node1", "lab@node2"):
        done = lab.ssh(destination, sys.executable, "-c", "'import pytest_aorta; print(pytest_aorta.__file__)'")
        assert done.returncode == 0, done.stderr
    assert "Read-only" in lab.ssh("node1", f"touch {sys.prefix}/file").stderr


def test_a_bound_folder_of_tmp_is_seen(labs: MakeLab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("bound", "utf-8")
    with Lab.up(1, binds=[tmp_path]) as lab:
        assert lab.ssh("node1", f"cat {tmp_path}/file; ls {tmp_path.parent}").stdout == f"bound{tmp_path.name}\n"


def test_a_container_sees_this_machine_and_writes_for_itself(lab: Lab) -> None:
    host = lab.hosts[1]
    name = f"/var/tmp/{uuid.uuid4()}"
    code = f"import pytest; open({name!r}, 'w').write('x'); print('seen', pytest.__version__)"
    done = lab.ssh(host.name, f'docker run --rm --network=host lab/machine:1 {sys.executable} -c "{code}"')
    assert done.stdout == f"seen {pytest.__version__}\n", done.stderr
    assert not host.path(name).exists()
    assert not Path(name).exists()


def test_containers_and_processes_are_seen_from_outside(lab: Lab) -> None:
    first, second = lab.hosts
    lab.ssh(first.name, "docker run -d --name box --label of=us --init lab/machine:1 sleep 1234")
    [box] = first.containers()
    assert (box.name, box.image, box.state, box.labels["of"]) == ("box", "lab/machine:1", "running", "us")
    assert second.containers() == []
    wait_until(lambda: ("sleep", "1234") in {each.argv for each in first.processes()}, "the container's process", 10)
    assert ("sleep", "1234") not in {process.argv for process in second.processes()}
    lab.ssh(first.name, "docker rm -f box")
    assert first.containers() == []
    assert ("sleep", "1234") not in {process.argv for process in first.processes()}


def test_privileged_containers_start_where_root_lacks_capabilities(lab: Lab) -> None:
    options = "--privileged --ulimit memlock=-1 --ulimit nofile=1048576 --oom-score-adj=-500 --device /dev/kfd"
    done = lab.ssh("node1", f"docker run --rm {options} lab/machine:1 echo fine")
    assert done.stdout == "fine\n", done.stderr


def test_a_command_inside_says_how_it_ended(lab: Lab) -> None:
    host = lab.hosts[0]
    assert host.run(["sh", "-c", "cat; exit 3"], stdin="words").returncode == 3
    with pytest.raises(LabError, match=r"exit 2: .*no-such-file"):
        host.run(["ls", "/no-such-file"], check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        host.run(["sleep", "4321"], timeout_s=0.3)
    wait_until(lambda: ("sleep", "4321") not in {each.argv for each in host.processes()}, "its end", 5)


def test_a_kernel_log_line_is_read_in_hosts(lab: Lab) -> None:
    mark = f"lab test {uuid.uuid4()}"
    lab.hosts[0].log_kernel(mark)
    assert mark in lab.ssh("lab@node1", "sudo -n dmesg --level=err").stdout


def test_two_labs_live_side_by_side(lab: Lab) -> None:
    with Lab.up(1) as other:
        assert other.hosts[0].address != lab.hosts[0].address
        other.ssh("node1", "touch /run/other")
        assert not lab.hosts[0].path("/run/other").exists()
        assert lab.ssh("node1", "hostname").returncode == other.ssh("node1", "hostname").returncode == 0
    assert lab.ssh("node1", "hostname").stdout == "node1\n"


def test_a_lab_that_cannot_come_up_says_why_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="missing"):
        Lab.up(1, binds=[tmp_path / "missing"])
    assert keepers_of_this_process() == [lab.keeper.pid]


def keepers_of_this_process() -> list[int]:
    """Each lab has one, and it is the last to go: other test processes may have theirs."""
    ours = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    return [int(pid) for pid in ours if "tests.lab.keeper" in Path(f"/proc/{pid}/cmdline").read_text("utf-8")]
