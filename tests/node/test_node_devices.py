"""Devices: identities and counters, read from recorded trees of files, and from this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_aorta.fleet.ask import Answer
from pytest_aorta.node.devices import devices

AskNode = Callable[..., Answer]


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "utf-8")
    return root


def test_identities_and_counters_are_read_where_the_kernel_shows_them(tmp_path: Path) -> None:
    gpu, card, port = (
        "sys/bus/pci/devices/0000:c1:00.0", "sys/bus/pci/devices/0000:d1:00.0", "sys/class/infiniband/mlx5_0/ports/1",
    )  # fmt: skip
    root = tree(
        tmp_path,
        {
            "sys/class/dmi/id/product_serial": "SN-4711",
            "sys/class/dmi/id/product_name": "XE9680",
            f"{gpu}/class": "0x120000", f"{gpu}/vendor": "0x1002", f"{gpu}/serial_number": "692ABC",
            f"{gpu}/current_link_speed": "32.0 GT/s PCIe", f"{gpu}/max_link_width": "16",
            f"{gpu}/aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL 3", f"{gpu}/aer_dev_correctable": "damaged",
            f"{gpu}/ras/umc_err_count": "ue: 2\nce: 70",
            f"{card}/class": "0x020000", f"{card}/infiniband/mlx5_0/fw_ver": "28.39.1002",
            f"{card}/net/ens1/mtu": "9000",
            "sys/bus/pci/devices/0000:00:1f.0/class": "0x060100",
            f"{port}/counters/link_downed": "4", f"{port}/hw_counters/out_of_sequence": "9",
            f"{port}/counters/broken": "N/A",
            "sys/class/net/ens1/statistics/rx_errors": "5", "sys/class/net/ens1/device/vendor": "0x15b3",
            "sys/class/net/lo/statistics/rx_errors": "6",
            "proc/driver/nvidia/gpus/0000:c1:00.0/information": "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-12\nIRQ: 5",
        },
    )  # fmt: skip
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "sys/module/amdgpu/version").write_text("6.10.5\n", "utf-8")
    (tmp_path / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
    (root / gpu / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/amdgpu")

    found = devices(str(root))

    assert found["machine"] == {"product_name": "XE9680", "product_serial": "SN-4711"}
    first, second = found["pci"]
    assert first == {
        "address": "0000:c1:00.0", "kind": "accelerator", "vendor": "0x1002", "serial": "692ABC",
        "link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "driver": "amdgpu", "driver_version": "6.10.5",
        "model": "NVIDIA H200", "gpu_uuid": "GPU-12",
    }  # fmt: skip
    assert second == {
        "address": "0000:d1:00.0", "kind": "network", "rdma": "mlx5_0", "firmware": "28.39.1002", "interface": "ens1",
    }  # fmt: skip
    assert found["counters"] == {
        "0000:c1:00.0 aer_dev_fatal": 3, "0000:c1:00.0 umc ue": 2, "0000:c1:00.0 umc ce": 70,
        "mlx5_0/1 link_downed": 4, "mlx5_0/1 out_of_sequence": 9, "ens1 rx_errors": 5,
    }  # fmt: skip


def test_an_empty_machine_has_none(tmp_path: Path) -> None:
    assert devices(str(tmp_path)) == {"machine": {}, "pci": [], "counters": {}}


def test_this_machine_tells_what_sysfs_has(ask: AskNode) -> None:
    kinds = {path.parent.name: path.read_text()[:4] for path in Path("/sys/bus/pci/devices").glob("*/class")}
    wanted = {address for address, kind in kinds.items() if kind in {"0x02", "0x03", "0x12"}}
    assert {device["address"] for device in ask("devices")["pci"]} == wanted
