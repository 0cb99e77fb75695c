"""A workload of one's own on several hosts, configured as docs/own-workload.md shows it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.lab.cluster import CHECKOUT, IMAGE, Cluster
from tests.lab.conftest import python_folders
from tests.lab.lab import Lab

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]

PAGE = Path(__file__).parents[2] / "docs" / "own-workload.md"


def test_as_the_page_shows_it(lab: Lab, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    page = PAGE.read_text("utf-8")
    [shown] = (
        json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if '"container"' in block
    )
    [training, _] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    cluster = Cluster(tmp_path, lab=lab)
    for host in lab.hosts:
        host.run(["mkdir", "-p", shown["aorta_path"]], check=True)
        host.path(f"{shown['aorta_path']}/my_training.py").write_text(training, "utf-8")
    fields = {name: shown[name] for name in ("aorta_path", "container_mount_path", "workload")}
    cluster.configure_cluster(container={**shown["container"], "image": IMAGE}, **fields)

    output = cluster.run(code=0)

    assert cluster.letters() == "PPPSPPSPPPP", output
    metrics = json.loads((cluster.folder / "metrics.json").read_text("utf-8"))["metrics"]
    assert metrics["step_time_ms_median"]["value"] > 0
    traces = (cluster.folder / "combined_traces").rglob("trace.json")
    assert sorted(path.parent.name for path in traces) == ["rank0", "rank1"]
    cluster.assert_nothing_left()


def test_a_python_that_the_image_lacks_is_a_fault_of_the_configuration(lab: Lab, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lab=lab)
    cluster.configure_cluster(python="pythn")

    output = cluster.run(code=1)

    reason = cluster.reason("test_launch_container")
    assert f"node1, node2: the image {IMAGE} has no program 'pythn'; set `python`" in reason
    assert "\nnext: set `python` to the full path of one that has torch there\n" in output
    assert json.loads((cluster.reports / "verdict.json").read_text("utf-8"))["fault"] == "config"
    cluster.assert_nothing_left()


def test_hosts_with_different_code_do_not_train_together(lab: Lab, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lab=lab)
    cluster.configure_cluster(**cluster.check_out())
    first, second = lab.hosts
    script = second.path(f"{CHECKOUT}/train.py")
    script.write_text(f"{script.read_text('utf-8')}# tuned\n", "utf-8")

    cluster.run(code=1)

    told = r"/mnt/train\.py differs between the hosts: node1 [0-9a-f]{12}, node2 [0-9a-f]{12}; make them equal"
    assert re.fullmatch(f"could not measure: {told}", cluster.reason("test_clone_aorta"))
    assert cluster.verdict()["hosts"] == []

    commit = "git init -q && git add . && git -c user.name=x -c user.email=x commit -qm"
    for host, message in ((first, "one"), (second, "two")):
        host.run(["sh", "-c", f"cd {CHECKOUT} && {commit} {message}"], check=True)
    output = cluster.run(code=1)

    assert re.search(r"different checkouts in /mnt: node1 [0-9a-f]{12}, node2 [0-9a-f]{12}; make them equal", output)
    cluster.assert_nothing_left()
    for host in lab.hosts:
        shutil.rmtree(host.path(CHECKOUT))
