"""Dossier: everything a run knows of a host that failed, in one folder to send to its vendor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_aorta.checks import Check
from pytest_aorta.config.redact import scrub
from pytest_aorta.config.settings import restore
from pytest_aorta.reporting.json_report import blamed_hosts, write_text
from pytest_aorta.reporting.text import clean, one_line
from pytest_aorta.run.folder import RunFolder, read_regular
from pytest_aorta.run.record import RunRecord

PHASES = ("rccl", "benchmark")
LOG_LINES = 200
MAX_LOG_BYTES = 256 * 1024
_MACHINE = ("sys_vendor", "product_name", "product_serial", "chassis_serial", "board_serial", "bios_version")
_DEVICE = (
    "model", "product", "hca", "vendor", "device", "serial", "unique_id", "gpu_uuid", "node_guid", "board", "firmware",
    "gpu_firmware", "vbios", "video_bios", "driver", "driver_version", "rdma", "interface", "numa_node",
)  # fmt: skip


def write_dossiers(record: RunRecord, folder: RunFolder) -> tuple[Path, ...]:
    """Write `evidence/<host>/` for each host that failed on the cluster's account; give the folders.

    Raises:
        OSError: one cannot be written.
    """
    checks = [check for stage in record.stages.values() for check in stage.checks]
    ranks = {host.name: host.rank for host in restore(record.config).hosts}
    return tuple(
        _write(record, folder, host, ranks.get(host), [check for check in checks if check.host == host])
        for host in blamed_hosts(checks)
    )


def _write(record: RunRecord, folder: RunFolder, host: str, rank: int | None, checks: Iterable[Check]) -> Path:
    target = folder.host_evidence(host)
    texts = dict(_files(folder, host, rank))
    before, after = _document(folder.devices(host)), _document(folder.devices(host, after=True))
    counters = tuple(_counters(before, after))
    if counters:
        texts["counters.txt"] = "\n".join(counters) + "\n"
    lines = [
        *_head(record, host, checks),
        *_identities(after or before),
        *(("", "Counters that are not 0 (name, before, after)", *counters[1:]) if counters else ()),
        "",
        "Files",
        *(f"  {name}" for name in sorted(texts)),
    ]
    texts["summary.txt"] = "\n".join(lines) + "\n"
    for name, text in texts.items():
        write_text(target / name, scrub(clean(text), folder.secrets))
    return target


def _head(record: RunRecord, host: str, checks: Iterable[Check]) -> Iterator[str]:
    yield f"Host     {host}"
    yield f"Run      {record.run_id}, begun {record.created}"
    yield f"Verdict  {record.verdict or 'not closed'}: {one_line(record.sentence)}"
    yield ""
    yield "What failed or warned on it"
    for check in checks:
        if check.state in {"failed", "warned"}:
            yield f"  {check.state}: {one_line(check.reason or check.label)}"
            if check.next_step:
                yield f"    next: {one_line(check.next_step)}"


def _identities(devices: Mapping[str, Any]) -> Iterator[str]:
    machine = devices.get("machine") or {}
    if machine:
        yield ""
        yield "Machine"
        yield from (f"  {name.replace('_', ' ')}: {machine[name]}" for name in _MACHINE if name in machine)
    if devices.get("pci"):
        yield ""
        yield "GPUs and network cards"
    for device in devices.get("pci") or ():
        told = [f"{name.replace('_', ' ')} {device[name]}" for name in _DEVICE if name in device]
        yield f"  {device['address']}  {device['kind']}  {', '.join([*told, *_link(device)])}"


def _link(device: Mapping[str, str]) -> Iterator[str]:
    if "link_speed" in device:
        most = f" of {device.get('max_link_speed', '?')} x{device.get('max_link_width', '?')}"
        yield f"link {device['link_speed']} x{device.get('link_width', '?')}{most}"


def _counters(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Give a line a counter that is not zero: those that grew during the run first."""
    old, new = before.get("counters") or {}, after.get("counters") or {}
    names = [name for name in {**old, **new} if old.get(name) or new.get(name)]
    if not names:
        return
    width = max(map(len, names))
    yield f"  {'counter':{width}}  {'before':>14}  {'after':>14}"
    for name in sorted(names, key=lambda name: not (name in old and new.get(name, 0) > old[name])):
        values = (str(counts.get(name, "—")) for counts in (old, new))
        yield f"  {name:{width}}  " + "  ".join(f"{value:>14}" for value in values)


def _files(folder: RunFolder, host: str, rank: int | None) -> Iterator[tuple[str, str]]:
    """Give (name in the folder, text) of what the run folder has of the host."""
    kept = {
        "facts.json": folder.facts(host),
        "devices-before.json": folder.devices(host),
        "devices-after.json": folder.devices(host, after=True),
        "kernel.log": folder.kernel_log(host),
    }
    kept |= {path.name: path for path in sorted(folder.tools(host).glob("*.txt"))}
    for name, path in kept.items():
        if text := _text(path):
            yield name, text
    for phase in PHASES if rank is not None else ():
        if text := _text(folder.phase_log(phase, rank or 0)):
            yield f"{phase}.log", "\n".join(text.splitlines()[-LOG_LINES:]) + "\n"


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_regular(path))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _text(path: Path) -> str:
    """Give the end of a file as text; empty where there is none."""
    try:
        return read_regular(path)[-MAX_LOG_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
