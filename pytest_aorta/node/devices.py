"""Devices: what identifies this machine, its GPUs and network cards, and what their error counters show."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Callable, Iterable, Iterator

CLASSES = {"0x02": "network", "0x03": "display", "0x12": "accelerator"}  # PCI base classes
_DMI = (
    "sys_vendor", "product_name", "product_serial", "product_uuid", "board_vendor", "board_name", "board_serial",
    "chassis_serial", "bios_version", "bios_date",
)  # fmt: skip
_PCI = {
    "vendor": "vendor", "device": "device", "subsystem_vendor": "subsystem_vendor",
    "subsystem_device": "subsystem_device", "revision": "revision", "numa_node": "numa_node",
    "current_link_speed": "link_speed", "current_link_width": "link_width", "max_link_speed": "max_link_speed",
    "max_link_width": "max_link_width", "serial_number": "serial", "unique_id": "unique_id",
    "vbios_version": "vbios", "product_name": "product", "product_number": "product_number",
}  # fmt: skip
_RDMA = {"fw_ver": "firmware", "board_id": "board", "hca_type": "hca", "node_guid": "node_guid"}
_NET = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped", "tx_dropped")
_TOTAL = re.compile(r"^TOTAL_ERR_\w+ (\d+)$", re.MULTILINE)
_BLOCK = re.compile(r"^(ue|ce|de): (\d+)$", re.MULTILINE)


def devices(root: str = "/", check: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Read identities and counters below `root`; what is not there or may not be read is left out.

    `check` is called for each device and may raise.
    """
    addresses = [path for path in sorted(glob.glob(os.path.join(root, "sys/bus/pci/devices/*"))) if _is_wanted(path)]
    found = []
    counters: dict[str, int] = {}
    for path in addresses:
        check()
        found.append(_pci(path, root))
        counters.update(_pci_counters(path))
    for path in sorted(glob.glob(os.path.join(root, "sys/class/infiniband/*/ports/*"))):
        check()
        counters.update(_port_counters(path))
    for path in sorted(glob.glob(os.path.join(root, "sys/class/net/*"))):
        if os.path.exists(os.path.join(path, "device")):
            check()
            counters.update(_net_counters(path))
    return {"machine": _texts(os.path.join(root, "sys/class/dmi/id"), zip(_DMI, _DMI)), "pci": found,
            "counters": counters}  # fmt: skip


def _is_wanted(path: str) -> bool:
    return _read(os.path.join(path, "class"))[:4] in CLASSES


def _pci(path: str, root: str) -> dict[str, str]:
    address = os.path.basename(path)
    kind = CLASSES[_read(os.path.join(path, "class"))[:4]]
    told = {"address": address, "kind": kind, **_texts(path, _PCI.items())}
    driver = os.path.basename(os.path.realpath(os.path.join(path, "driver")))
    if os.path.exists(os.path.join(path, "driver")):
        told["driver"] = driver
        version = _read(os.path.join(root, "sys/module", driver, "version"))
        told.update({"driver_version": version} if version else {})
    for device in sorted(glob.glob(os.path.join(path, "infiniband/*"))):
        told["rdma"] = os.path.basename(device)
        told.update(_texts(device, _RDMA.items()))
    interfaces = [os.path.basename(name) for name in sorted(glob.glob(os.path.join(path, "net/*")))]
    told.update({"interface": ", ".join(interfaces)} if interfaces else {})
    for line in _read(os.path.join(root, "proc/driver/nvidia/gpus", address, "information")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"Model", "GPU UUID", "Video BIOS", "GPU Firmware"}:
            told[name.strip().lower().replace(" ", "_")] = value.strip()
    return told


def _pci_counters(path: str) -> Iterator[tuple[str, int]]:
    address = os.path.basename(path)
    for name in ("aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable"):
        total = _TOTAL.search(_read(os.path.join(path, name)))
        if total is not None:
            yield f"{address} {name}", int(total.group(1))
    for block in sorted(glob.glob(os.path.join(path, "ras/*_err_count"))):
        for kind, count in _BLOCK.findall(_read(block)):
            yield "{} {} {}".format(address, os.path.basename(block)[: -len("_err_count")], kind), int(count)


def _port_counters(path: str) -> Iterator[tuple[str, int]]:
    device, _, port = path.split(os.sep)[-3:]
    for counter in sorted(glob.glob(os.path.join(path, "*counters/*"))):
        value = _read(counter)
        if value.isdigit():
            yield f"{device}/{port} {os.path.basename(counter)}", int(value)


def _net_counters(path: str) -> Iterator[tuple[str, int]]:
    names = [(name, os.path.join(path, "statistics", name)) for name in _NET]
    for name, file in (*names, ("carrier_down_count", os.path.join(path, "carrier_down_count"))):
        value = _read(file)
        if value.isdigit():
            yield f"{os.path.basename(path)} {name}", int(value)


def _texts(folder: str, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    read = ((name, _read(os.path.join(folder, file))) for file, name in names)
    return {name: text for name, text in read if text}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024).strip()
    except OSError:
        return ""
