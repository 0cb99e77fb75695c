"""Dossier: what goes to a vendor, of which hosts, and what does not."""

from __future__ import annotations

from pathlib import Path

from pytest_aorta.checks import Check
from pytest_aorta.run.dossier import write_dossiers
from tests.reporting.deck_runs import MadeRun, begin, broken_run

TOKEN = "planted-token-1234"  # noqa: S105 what the made configuration holds


def with_devices(run: MadeRun, host: str) -> None:
    gpu = {"address": "0000:c1:00.0", "kind": "display", "model": "H200", "serial": "165",
           "link_speed": "32.0 GT/s PCIe", "link_width": "8", "max_link_speed": "32.0 GT/s PCIe",
           "max_link_width": "16"}  # fmt: skip
    before = {"machine": {"product_serial": "SN-4711"}, "pci": [gpu], "counters": {"a ce": 5, "b ue": 0, "c down": 1}}
    run.folder.write_document(run.folder.devices(host), before)
    after = {**before, "counters": {"a ce": 5, "b ue": 2, "c down": 1, "d zero": 0}}
    run.folder.write_document(run.folder.devices(host, after=True), after)


def test_a_failing_host_has_a_folder_with_serials_addresses_counters_and_log_lines(tmp_path: Path) -> None:
    run = broken_run(tmp_path)
    host = "gpu-0002"
    with_devices(run, host)
    run.folder.kernel_log(host).write_text(f"[1.0] kern.err NVRM: Xid 79 {TOKEN} \x1b[31m\n", "utf-8")
    run.folder.tools(host).mkdir(parents=True)
    (run.folder.tools(host) / "nvidia-smi-q.txt").write_text("Serial Number : 165\n", "utf-8")
    run.folder.phase_log("benchmark", 2).write_text("".join(f"line {i}\n" for i in range(500)), "utf-8")
    run.folder.phase_log("benchmark", 1).write_text("of another host\n", "utf-8")

    (folder,) = write_dossiers(run.record, run.folder)

    assert folder == run.folder.path / "evidence" / host
    texts = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert set(texts) == {
        "summary.txt", "facts.json", "devices-before.json", "devices-after.json", "counters.txt", "kernel.log",
        "nvidia-smi-q.txt", "benchmark.log",
    }  # fmt: skip
    summary = texts["summary.txt"]
    assert "failed: gpu-0002: 7 GPUs are visible, 8 were configured" in summary
    assert "next: drain gpu-0002 and look for Xid 79" in summary
    assert "product serial: SN-4711" in summary
    assert "0000:c1:00.0  display  model H200, serial 165, link 32.0 GT/s PCIe x8 of 32.0 GT/s PCIe x16" in summary
    counted = [line.split() for line in texts["counters.txt"].splitlines()]
    assert counted == [
        ["counter", "before", "after"],
        ["b", "ue", "0", "2"],
        ["a", "ce", "5", "5"],
        ["c", "down", "1", "1"],
    ]
    assert texts["kernel.log"] == "[1.0] kern.err NVRM: Xid 79 <redacted> \n"
    assert texts["benchmark.log"].splitlines() == [f"line {i}" for i in range(300, 500)]
    assert TOKEN not in "".join(texts.values())


def test_only_hosts_on_the_clusters_account_have_one_and_names_are_safe(tmp_path: Path) -> None:
    run = begin(tmp_path, hosts=["a", "b"], ranks_per_host=2)
    assert write_dossiers(run.record, run.folder) == ()
    bad = Check(label="x", state="failed", host="../../etc/x")
    rig = Check(label="y", state="failed", host="b", fault="rig")
    run.stage(
        "test_launch_container", "failed", "measured, bad", (bad, rig, Check(label="z", state="warned", host="a"))
    )

    (folder,) = write_dossiers(run.record, run.folder)

    assert folder.parent == run.folder.path / "evidence"
    assert [path.name for path in folder.iterdir()] == ["summary.txt"]
