"""The whole lifecycle over SSH: containers, one rank a host, everything brought back and nothing left."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from pytest_aorta.config.shipped import shipped
from tests.lab.cluster import CONTAINER, Cluster
from tests.lab.conftest import MakeLab, python_folders
from tests.lab.processes import wait_until

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]


@pytest.fixture(scope="module")
def green(labs: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cluster, str]:
    """One green run that the tests of this file look at; its output."""
    pytest.importorskip("torch", reason="torch is not installed")
    cluster = Cluster(tmp_path_factory.mktemp("green"), lab=labs(2, docker=True, binds=python_folders()))
    cluster.configure_cluster(container={"env": {"API_TOKEN": {"secret": "hush-hush-4711"}, "ODD": "a b $(id) 'c"}})
    return cluster, cluster.run(code=0)


def test_the_whole_lifecycle_is_green(green: tuple[Cluster, str]) -> None:
    cluster, output = green

    assert cluster.letters() == "PPPSPPSPPPP", output
    assert cluster.record()["products"]["Execution"]["ranks_seen"] == [0, 1]
    log = (cluster.reports / "aorta_distributed.log").read_text("utf-8")
    assert all(f"{name}: container {CONTAINER}" in log for name in cluster.names)
    traces = cluster.folder / "combined_traces"
    assert sorted(path.parent.name for path in traces.rglob("*.pt.trace.json")) == ["rank0", "rank1"]
    assert {path.relative_to(traces).parts[0] for path in traces.rglob("*.json")} == {"node_0", "node_1"}
    for rank in (0, 1):
        assert (cluster.folder / f"benchmark-node-{rank}.log").read_text("utf-8")
    assert {path.stem for path in (cluster.folder / "facts").iterdir()} >= set(cluster.names)


def test_nothing_is_left_on_any_host(green: tuple[Cluster, str]) -> None:
    green[0].assert_nothing_left()


def test_no_secret_is_in_anything_that_is_kept(green: tuple[Cluster, str]) -> None:
    cluster, output = green

    assert "hush-hush" not in output
    files = [path for path in cluster.path.rglob("*") if path.is_file() and path.name != "config.json"]
    assert len(files) > 10
    assert [path.name for path in files if b"hush-hush" in path.read_bytes()] == []


def test_values_reach_the_ranks_exactly(labs: MakeLab, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lab=labs(2, docker=True, binds=python_folders()))
    values = {"ODD": "a b  $(id) 'c' \"d\"\n-e", "EMPTY": "", "LANGUAGE": "äö"}
    script = "import json, os, pathlib; p = pathlib.Path('out/torch_profiler'); p.mkdir(parents=True, exist_ok=True); "
    script += f"(p / 'env.json').write_text(json.dumps({{n: os.environ.get(n) for n in {list(values)!r}}}))"
    fields = cluster.check_out()
    container = {**fields.pop("container"), "env": values}
    workload = {"command": [sys.executable, "-c", script], "traces": "out/torch_profiler/*", "launcher": "none"}
    cluster.configure_cluster(container=container, workload=workload, **fields)

    cluster.run(code=1)  # what it writes is no trace

    found = [json.loads(path.read_text("utf-8")) for path in cluster.folder.rglob("env.json")]
    assert found
    assert all(each == values for each in found)
    cluster.assert_nothing_left()


def test_without_containers_too(labs: MakeLab, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lab=labs(2, docker=True, binds=python_folders()))
    cluster.configure_cluster(container={})

    output = cluster.run(code=0)

    assert cluster.letters() == "PPPSPPSPPPP", output
    cluster.assert_nothing_left()


def test_files_on_a_shared_file_system_are_counted_once(labs: MakeLab, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lab=labs(2, docker=True, binds=python_folders()))
    shared = cluster.lab.shared / "aorta"
    shutil.copytree(shipped("workloads"), shared, ignore=shutil.ignore_patterns("__pycache__"))
    volumes = {"runtime": {"args": {"volumes": ["/shared/aorta:/mnt"]}}}
    cluster.configure_cluster(container=volumes, aorta_path="/shared/aorta", container_mount_path="/mnt")

    output = cluster.run(code=0)

    assert cluster.letters() == "PPPSPPSPPPP", output
    ranks = [
        rank["rank"] for rank in json.loads(cluster.aorta("traces", str(cluster.folder), "--json", code=0))["ranks"]
    ]
    assert ranks == [0, 1]
    found = [path.name for path in (cluster.folder / "combined_traces").rglob("*.pt.trace.json")]
    assert len(found) == len(set(found)) == 2
    shutil.rmtree(shared)
    cluster.assert_nothing_left()


def test_a_login_user_who_is_not_root_gets_its_files_back(labs: MakeLab, tmp_path: Path) -> None:
    lab = labs(2, docker=True, binds=python_folders())
    for host in lab.hosts:
        host.run(["sh", "-c", "chgrp lab /run/docker.sock && chmod g+rw /run/docker.sock"], check=True)
    cluster = Cluster(tmp_path, lab=lab)
    cluster.configure_cluster(kernel_log={"required": True})
    document = json.loads((cluster.path / "cluster.json").read_text("utf-8"))
    (cluster.path / "cluster.json").write_text(json.dumps({**document, "username": "lab"}), "utf-8")

    output = cluster.run(code=0)

    assert cluster.letters() == "PPPSPPSPPPP", output
    cluster.assert_nothing_left()
    for host in lab.hosts:
        assert list(host.path("/home/lab/.cache/pytest-aorta").iterdir()) == []


def test_the_crash_of_a_foreign_process_is_a_note(labs: MakeLab, tmp_path: Path) -> None:
    lab = labs(2, docker=True, binds=python_folders())
    cluster = Cluster(tmp_path, lab=lab)
    long = {"training.max_steps": 400, "scheduler.total_steps": 400}
    cluster.configure_cluster(kernel_log={"required": True}, training_overrides=long)
    child = cluster.start()
    wait_until(lambda: "step" in (child.stdout.readline() if child.stdout else ""), "a rank that trains", 60)

    lab.hosts[0].run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"])
    output, _ = child.communicate(timeout=120)

    assert child.returncode == 0, output
    logs = "".join(path.read_text("utf-8") for path in cluster.folder.rglob("*kernel*"))
    assert "segfault" in logs
    assert "PASSED test_run_benchmark" in output
