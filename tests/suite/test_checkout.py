"""A checkout on the node: its own scripts for launch, RCCL build and analysis, all run for real."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = Path(__file__).with_name("sample_workload.py")
SCRIPTS = {
    "scripts/launch.sh": f'echo "started with $*; $AORTA_OVERRIDE_ARGS"; exec {sys.executable} {WORKLOAD}\n',
    "scripts/build.sh": 'mkdir -p lib; touch lib/librccl.so; echo commit abc123; echo "library $PWD/lib/librccl.so"\n',
    "scripts/analyze.sh": 'out="$(dirname "$1")/tracelens_analysis"; mkdir -p "$out"; echo a,b > "$out/t.csv"\n',
    "config/base.yaml": "a: 1\n",
}  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for name, text in SCRIPTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    return folder


def configure(rig: Any, checkout: Path, **fields: Any) -> None:
    path = rig.configure(
        aorta_path=str(checkout),
        base_config="config/base.yaml",
        experiment_script="scripts/launch.sh",
        build_script="scripts/build.sh",
        skip_rccl_build=False,
        training_overrides={"training.max_steps": 5, "odd": "a b'c"},
        analysis={"enable_tracelens": True, "tracelens_script": "scripts/analyze.sh"},
        **fields,
    )
    document = json.loads(path.read_text("utf-8"))
    del document["workload"]
    path.write_text(json.dumps(document), "utf-8")


def test_script_mode_build_and_analysis(rig: Any, checkout: Path) -> None:
    configure(rig, checkout)

    rig.run(code=0)

    assert rig.letters() == "PPPPPPPPPP"
    log = (rig.folder / "benchmark-node-0.log").read_text("utf-8")
    assert "started with config/base.yaml --override training.max_steps=5 odd=a b'c" in log
    assert (rig.folder / "rccl-node-0.log").read_text("utf-8").startswith("commit abc123")
    assert rig.record()["products"]["Rccl"]["commit"] == "abc123"
    assert (rig.folder / "analysis/tracelens_analysis/t.csv").read_text("utf-8") == "a,b\n"
    assert checkout.is_dir()


def test_missing_entry_point_is_named(rig: Any, checkout: Path) -> None:
    (checkout / "scripts/launch.sh").unlink()
    configure(rig, checkout)

    rig.run(code=1)

    assert rig.letters() == "FSSSSSSSSP"
    assert f"no file {checkout}/scripts/launch.sh" in rig.reason("test_launch_container")


def test_failed_build_gates_and_its_log_is_kept(rig: Any, checkout: Path) -> None:
    (checkout / "scripts/build.sh").write_text("echo going wrong >&2; exit 2\n", "utf-8")
    configure(rig, checkout)

    rig.run(code=1)

    assert rig.letters() == "PPFSSSSSSP"
    assert "scripts/build.sh ended with 2" in rig.reason("test_build_rccl")
    assert (rig.folder / "rccl-node-0.log").read_text("utf-8") == "going wrong\n"


def test_failed_analysis_warns_and_does_not_gate(rig: Any, checkout: Path) -> None:
    (checkout / "scripts/analyze.sh").write_text("echo no TraceLens >&2; exit 1\n", "utf-8")
    configure(rig, checkout)

    output = rig.run(code=0)

    assert rig.outcomes()["test_analyze"] == "passed"
    assert "note: test_analyze: scripts/analyze.sh exited 1" in output


def test_clone_where_the_checkout_is_missing(rig: Any, checkout: Path) -> None:
    configure(rig, rig.path / "made" / "here", aorta_auto_clone=True, aorta_clone_url=str(checkout))

    rig.run(code=0)

    assert (rig.path / "made/here/config/base.yaml").is_file()


def test_clone_from_nowhere_says_what_git_said(rig: Any) -> None:
    configure(rig, rig.path / "made", aorta_auto_clone=True, aorta_clone_url=str(rig.path / "no-such-repository"))

    rig.run(code=1)

    assert "git clone exited 128" in rig.reason("test_launch_container")


def test_a_secret_in_the_address_is_shown_nowhere(rig: Any) -> None:
    address = "https://bot:Tr0ub4dor,3@127.0.0.1:9/x.git"
    configure(rig, rig.path / "made", aorta_auto_clone=True, aorta_clone_url=address)

    output = rig.run(code=1)

    assert "cloning https://bot:<redacted>@127.0.0.1:9/x.git" in output
    assert "Tr0ub4dor" not in output


def test_workloads_own_log_is_brought_back(rig: Any) -> None:
    script = f"echo a line of its own > own.log; exec {sys.executable} {WORKLOAD}"
    rig.configure(workload={"command": ["sh", "-c", script], "traces": "out/torch_profiler/*/*", "log": "own.log"})

    rig.run(code=0)

    assert (rig.folder / "workload-node-0.log").read_text("utf-8") == "a line of its own\n"
