"""Hints about classes of kernel-log findings; what each line means and the action are the scan's own."""

from __future__ import annotations

from pytest_aorta.reporting.hints.hint import Hint, Severity

_NVIDIA = "NVIDIA's Xid catalog"
_AMD = "the amdgpu driver's documentation"
_LINUX = "the Linux kernel's documentation"


def _told(key: str, severity: Severity, classes: tuple[str, ...], cause: str, next_step: str, source: str) -> Hint:
    return Hint(f"kernel_{key}", severity, cause, next_step, source, classes=frozenset(classes))


# The gravest first: a GPU that fell off the bus also shows as resets, links and crashed processes.
KERNEL = (
    _told(
        "nv_bus",
        "fatal",
        ("nv_xid_bus",),
        "the GPU fell off the bus: power, seating, PCIe or the GPU itself",
        "reboot and test it (power cycle rather than warm reset); replace it when it comes again",
        _NVIDIA,
    ),
    _told(
        "pcie",
        "fatal",
        ("pcie_aer_uncorrected", "pcie_dpc_hotplug"),
        "a PCIe link failed or a device vanished from it",
        "look at slot, riser and card that the address names; reboot before the next run",
        _LINUX,
    ),
    _told(
        "cpu_or_dimm",
        "fatal",
        ("mce_uncorrected", "edac_ue"),
        "a processor or memory module gave data that cannot be corrected",
        "drain the host and have the module that the line names replaced",
        _LINUX,
    ),
    _told(
        "gpu_memory",
        "fatal",
        ("amd_ras_ue", "amd_ras_poison", "amd_bad_page", "nv_xid_ecc"),
        "memory or logic of a GPU gave data that cannot be corrected",
        "reset the GPU, see its error and retirement counters, replace it near the limit",
        _AMD,
    ),
    _told(
        "gpu_links",
        "fatal",
        ("nv_xid_nvlink", "nv_sxid", "amd_xgmi"),
        "the links between the GPUs of a host gave errors",
        "reset all GPUs of that host together; then its link tests, and a switch board or GPU to replace",
        _NVIDIA,
    ),
    _told(
        "gpu_firmware",
        "fatal",
        ("nv_xid_gsp", "amd_smu_psp", "amd_mes", "amd_init_fatal", "amd_gpu_reset_failed"),
        "a processor inside the GPU does not answer any more, or did not start",
        "reboot the host; compare driver and firmware with hosts that run well",
        _AMD,
    ),
    _told(
        "page_fault",
        "fatal",
        ("amd_page_fault", "amd_illegal_access", "nv_xid_app", "nv_xid_recovery", "nv_driver"),
        "a kernel of the job did something that the GPU does not permit, or the GPU stopped it",
        "run the job on other hosts: if it fails there too it is the job or its libraries, else this GPU",
        _NVIDIA,
    ),
    _told(
        "gpu_reset",
        "fatal",
        ("amd_gpu_reset", "amd_ring_timeout", "amd_queue_preempt"),
        "the GPU hung and was reset, or a queue did not come off it; jobs on it are lost",
        "see the lines before it for the cause; drain the host when it comes again with another job",
        _AMD,
    ),
    _told(
        "oom",
        "fatal",
        ("oom_kill", "memory_pressure"),
        "the host or the container's limit had too little memory, and the kernel ended a process",
        "see which process and how large; fewer loader workers or ranks, or a higher limit",
        _LINUX,
    ),
    _told(
        "network_card",
        "fatal",
        ("nic_fw_fatal", "rdma_cmd_error", "nic_tx_timeout"),
        "firmware of a network card stopped answering",
        "reset or reboot; update the firmware to that of cards that run well; replace it when it comes again",
        _LINUX,
    ),
    _told(
        "network_link",
        "fatal",
        ("nic_link_down", "nic_module", "rdma_cq_error"),
        "a link went down or its module complains: cable, module, or the port of the switch",
        "look at that cable and module, clean or swap them; see the switch's log for the same time",
        _LINUX,
    ),
    _told(
        "iommu",
        "fatal",
        ("iommu_fault",),
        "a device used an address that it was not given: driver, firmware or settings of the IOMMU",
        "compare kernel, driver and iommu= of the command line with hosts that run well",
        _LINUX,
    ),
    _told(
        "storage",
        "fatal",
        ("fs_error", "nvme_error", "disk_error", "nfs_stall"),
        "a disk or file server did not deliver, and what reads from it stands still",
        "check the health of the disk (`nvme smart-log`), or the load and network of the server",
        _LINUX,
    ),
    _told(
        "crash",
        "fatal",
        ("kernel_crash", "lockup", "hung_task", "driver_crash"),
        "the kernel or a driver crashed, or a CPU or task is stuck in it",
        "reboot the host; keep the trace for the maker of the module that stands on top of it",
        _LINUX,
    ),
    _told(
        "process_crash",
        "fatal",
        ("user_segfault",),
        "a process of the run crashed in its own code or a library",
        "see which library the line names, and that rank's last lines",
        _LINUX,
    ),
    _told(
        "heat",
        "degrade",
        ("amd_throttle", "cpu_thermal"),
        "a GPU or CPU is too hot and runs slower",
        "look at fans, air or water and the load of neighbours",
        _AMD,
    ),
    _told(
        "hardware",
        "fatal",
        ("hardware_error", "pcie_link_degraded", "mce_corrected"),
        "the hardware reports an error that no other row knows",
        "have the device that the line names tested",
        _LINUX,
    ),
)
