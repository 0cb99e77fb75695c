from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

LINK = re.compile(r'(?:href|src)="([^"#:?]+)[^"]*"')


def the_bundle(rig: Any) -> Path:
    (found,) = rig.reports.glob("*.zip")
    return Path(found)


def test_reports_are_packed_with_links_that_work(rig: Any, tmp_path: Path) -> None:
    rig.configure(container={"runtime": {"name": "none"}, "env": {"API_TOKEN": "hush-4711"}})

    output = rig.run(code=0)

    bundle = the_bundle(rig)
    assert re.fullmatch(r"aorta_single_\d{4}-\d\d-\d\dT\d{6}\.zip", bundle.name)
    assert f"bundle: {bundle}" in output
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "out")
    assert {"aorta_single.html", "aorta_single.xml", "aorta_single-gates.xml", "verdict.json", "run.json"} <= set(names)
    assert not [name for name in names if "trace" in name.lower() and name.endswith((".pt.trace.json", ".gz"))]
    page = (tmp_path / "out" / "aorta_single.html").read_text("utf-8")
    linked = {link for link in LINK.findall(page) if not link.startswith(("/", "http"))}
    assert linked
    assert [link for link in linked if not (tmp_path / "out" / link).is_file()] == []
    assert [p.name for p in (tmp_path / "out").rglob("*") if p.is_file() and b"hush-4711" in p.read_bytes()] == []
    assert json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))["verdict"] == "passed"


def test_a_bundle_of_an_interrupted_or_failed_run_is_there_too(rig: Any) -> None:
    rig.configure("--exit", "3")

    rig.run(code=1)

    with zipfile.ZipFile(the_bundle(rig)) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("run.json"))["verdict"] == "failed"


def test_a_host_that_fails_is_drained_by_a_printed_command_and_its_evidence_is_packed(rig: Any) -> None:
    rig.configure(accelerator="rocm", skip_rccl_build=True)

    output = rig.run(code=1)

    host = socket.gethostname()
    folder = rig.folder / "evidence" / host
    assert f"evidence for the vendor: {folder}" in output
    (line,) = [line for line in output.splitlines() if line.startswith("drain, in a Slurm cluster: ")]
    words = shlex.split(line.partition(": ")[2])
    assert words[:4] == ["scontrol", "update", f"nodename={host}", "state=drain"]
    assert words[4].startswith(f"reason=aorta {rig.folder.name[:13]}: shows 0 rocm devices")
    assert "state=drain" in (rig.reports / "aorta_single.html").read_text("utf-8")
    with zipfile.ZipFile(the_bundle(rig)) as archive:
        packed = {name.removeprefix(f"evidence/{host}/") for name in archive.namelist() if name.startswith("evidence/")}
        assert {PurePosixPath(name).suffix for name in packed} <= {".txt", ".json", ".log"}  # no page, no markup
        assert {"summary.txt", "facts.json", "devices-before.json", "devices-after.json"} <= packed
        has_log = subprocess.run(["dmesg"], capture_output=True, check=False).returncode == 0
        assert ("kernel-since-boot.txt" in packed) == has_log
        assert archive.read("failing_nodes.txt").decode() == f"{host}\n"


def test_without_reports_there_is_no_bundle(rig: Any) -> None:
    rig.configure()

    rig.run("--aorta-no-reports", code=0)

    assert list(rig.path.rglob("*.zip")) == []
