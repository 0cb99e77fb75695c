from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.kernel_log.judge import Finding, Line, judge, worst

BAD = {
    "NVRM: Xid (PCI:0000:4a:00): 31, pid=77, name=train, Ch 00000002, MMU Fault": (
        "nv_xid_app",
        "degrade",
        "restart job",
    ),
    "NVRM: Xid (PCI:0000:4a:00): 79, GPU has fallen off the bus.": ("nv_xid_bus", "fatal", "reboot"),
    "NVRM: Xid (PCI:0000:4a:00): 45, pid=9, Ch 3 caused by previous Xid 79": ("nv_xid_app", "note", "none"),
    "NVRM: Xid (PCI:0000:4a:00): 64, Row Remapper: failed": ("nv_xid_ecc", "fatal", "reset GPU"),
    "NVRM: Xid (PCI:0000:4a:00): 74, NVLink on link 2(0x0, 0x0, 0x1, 0x0, 0x0, 0x0, 0x0)": (
        "nv_xid_nvlink",
        "fatal",
        "reset GPU",
    ),
    "NVRM: Xid (PCI:0000:4a:00): 74, NVLink on link 2(0x1000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)": (
        "nv_xid_nvlink",
        "fatal",
        "check cable",
    ),
    "NVRM: Xid (PCI:0000:4a:00): 146, TLW_CTRL Nonfatal XC0 i0 Link 01 (0x1)": (
        "nv_xid_nvlink",
        "degrade",
        "restart job",
    ),
    "NVRM: Xid (PCI:0000:4a:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)": (
        "nv_xid_recovery",
        "fatal",
        "reboot",
    ),
    "NVRM: Xid (PCI:0000:4a:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)": (
        "nv_xid_recovery",
        "note",
        "none",
    ),
    "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 11 fault": ("nv_sxid", "fatal", "reboot"),
    "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 24001, Non-fatal, Link 11 ECC": ("nv_sxid", "note", "none"),
    "NVRM: GPU 0000:4a:00.0: RmInitAdapter failed! (0x1:0x2:3)": ("nv_driver", "fatal", "reset GPU"),
    "amdgpu 0000:4a:00.0: amdgpu: socket: 1, die: 0, 3 new uncorrectable hardware errors detected in gfx block": (
        "amd_ras_ue",
        "fatal",
        "reset GPU",
    ),
    "amdgpu 0000:4a:00.0: 2097120 uncorrectable hardware errors detected in umc block": (
        "amd_ras_ue",
        "degrade",
        "none",
    ),
    "amdgpu 0000:4a:00.0: 4 new correctable hardware errors detected in xgmi_wafl block": ("amd_xgmi", "note", "none"),
    "amdgpu 0000:4a:00.0: {3}[Hardware Error]: ACA[02/04].STATUS=0xa000000000000136": (
        "amd_ras_ue",
        "fatal",
        "reset GPU",
    ),
    "amdgpu 0000:4a:00.0: {3}[Hardware Error]: ACA[02/04].STATUS=0x9000100000000136": (
        "amd_ras_poison",
        "degrade",
        "drain",
    ),
    "amdgpu 0000:4a:00.0: amdgpu: RAS records:140 exceed threshold:128": ("amd_bad_page", "fatal", "replace"),
    "amdgpu 0000:4a:00.0: amdgpu: recorded 2 bad pages": ("amd_bad_page", "note", "none"),
    "amdgpu 0000:4a:00.0: amdgpu: GPU reset end with ret = 0": ("amd_gpu_reset_ok", "note", "none"),
    "amdgpu 0000:4a:00.0: amdgpu: GPU reset(4) failed": ("amd_gpu_reset_failed", "fatal", "reboot"),
    "amdgpu 0000:4a:00.0: amdgpu: ring comp_1.2.0 timeout, signaled seq=4, emitted seq=6": (
        "amd_ring_timeout",
        "fatal",
        "reset GPU",
    ),
    "amdgpu 0000:4a:00.0: amdgpu: ring gfx_1.0.0 timeout, but soft recovered": (
        "amd_ring_timeout",
        "degrade",
        "restart job",
    ),
    "amdgpu 0000:4a:00.0: amdgpu: VM_L2_PROTECTION_FAULT_STATUS:0x00000831": ("amd_page_fault", "fatal", "restart job"),
    "amdgpu 0000:4a:00.0: amdgpu: Queue preemption failed for queue with doorbell_id: 80004008": (
        "amd_queue_preempt",
        "fatal",
        "reset GPU",
    ),
    "amdgpu: qcm fence wait loop timeout expired": ("amd_queue_preempt", "fatal", "reset GPU"),
    "amdgpu: No more SDMA queue to allocate (16 total queues)": ("amd_oversubscribed", "degrade", "restart job"),
    "amdgpu: GPU hang detected": ("amd_gpu_reset", "fatal", "reset GPU"),
    "amdgpu: process python3 pid 4711 thread python3 pid 4711": ("amd_page_fault_detail", "note", "none"),
    "amdgpu 0000:4a:00.0: amdgpu: SMU: response:0xFFFFFFFE for index:7 param:0x00000001 message:X?": (
        "amd_smu_psp",
        "degrade",
        "none",
    ),
    "amdgpu: Fatal error during GPU init": ("amd_init_fatal", "fatal", "reboot"),
    "pcieport 0000:40:01.1: AER: Uncorrectable (Non-Fatal) error message received from 0000:4a:00.0": (
        "pcie_aer_uncorrected",
        "degrade",
        "none",
    ),
    "pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer": (
        "pcie_aer_uncorrected",
        "fatal",
        "reboot",
    ),
    "pcieport 0000:40:01.1: PCIe Bus Error: severity=Correctable, type=Physical Layer": (
        "pcie_aer_corrected",
        "note",
        "none",
    ),
    "{7}[Hardware Error]: event severity: recoverable": ("pcie_aer_uncorrected", "fatal", "reboot"),
    "pcieport 0000:40:01.1: pciehp: Slot(3): Card not present": ("pcie_dpc_hotplug", "fatal", "reboot"),
    "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 11: dc2040000000011b": ("mce_corrected", "note", "none"),
    "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 11: fa2000000000011b": ("mce_uncorrected", "fatal", "replace"),
    "[Hardware Error]: CPU:3 (19:1:1) MC17_STATUS[Over|CE|MiscV|-|-|-|CECC|-|-|-]: 0xdc2040000400011b": (
        "mce_corrected",
        "note",
        "none",
    ),
    "EDAC amd64 MC2: 1 CE on mc#2csrow#1channel#0 (csrow:1 channel:0)": ("edac_ce", "note", "none"),
    "EDAC MC2: 512 CE memory scrubbing error on CPU_SrcID#1": ("edac_ce", "degrade", "none"),
    "EDAC skx MC2: 1 UE memory read error on CPU_SrcID#1": ("edac_ue", "fatal", "replace"),
    "EDAC DEVICE0: UE: l3cache instance: cpu0": ("edac_ue", "fatal", "replace"),
    "mlx5_core 0000:4a:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001a address=0x10 flags=0x0000]": (
        "iommu_fault",
        "fatal",
        "drain",
    ),
    "DMAR: DRHD: handling fault status reg 3": ("iommu_fault", "fatal", "drain"),
    "amdgpu 0000:4a:00.0: {3}[Hardware Error]: ACA[02/04].STATUS=0x9000080000000136": (
        "amd_ras_ue",
        "fatal",
        "reset GPU",
    ),
    "EDAC MC1: 2 CE memory read error on unknown (page:0x1 - OVERFLOW area:DRAM)": ("edac_ce", "degrade", "none"),
    "foo 0000:4a:00.0: 3 uncorrectable parity errors": ("hardware_error", "fatal", "drain"),
    "foo 0000:4a:00.0: 0 corrected errors, 5 uncorrected errors": ("hardware_error", "fatal", "drain"),
    "foo 0000:4a:00.0: errors: no corrected, 10 new uncorrected": ("hardware_error", "fatal", "drain"),
    "foo 0000:4a:00.0: no corrected errors, an uncorrected error was seen": ("hardware_error", "fatal", "drain"),
    "foo 0000:4a:00.0: 5 corrected errors, 0 uncorrected errors": ("hardware_error", "note", "none"),
    "foo 0000:4a:00.0: correctable error in bank 2": ("hardware_error", "note", "none"),
    "foo 0000:4a:00.0: hardware failure": ("hardware_error", "fatal", "drain"),
    "mlx5_core 0000:4a:00.0: health: synd 0x1: firmware internal error": ("nic_fw_fatal", "fatal", "reboot"),
    "bond0: (slave eth3): link status definitely down, disabling slave": ("nic_link_down", "fatal", "check cable"),
    "ixgbe 0000:4a:00.0 ens9f0: NIC Link is Down": ("nic_link_down", "fatal", "check cable"),
    "mlx5_core 0000:4a:00.0: Port module event[error]: module 1, Cable error, Bus stuck": (
        "nic_module",
        "degrade",
        "check cable",
    ),
    "infiniband mlx5_3: mlx5_poll_one:530:(pid 9): syndrome 0x15, vendor syndrome 0x81": (
        "rdma_cq_error",
        "fatal",
        "check cable",
    ),
    "mlx5_core 0000:4a:00.0: CQ error on CQN 0x4a1, syndrome 0x1": ("rdma_cq_error", "fatal", "restart job"),
    "infiniband bnxt_re1: queue catastrophic event": ("rdma_cq_error", "fatal", "restart job"),
    "infiniband mlx5_2: ib_uverbs: could not destroy": ("rdma_cmd_error", "degrade", "none"),
    "bnxt_en 0000:4a:00.0 ens5: hwrm req_type 0x2a seq id 0x4 error 0x3": ("rdma_cmd_error", "degrade", "restart job"),
    "python3[4711]: segfault at 10 ip 00007f0000001000 sp 00007ffe00000000 error 4 in libx.so[7f0000000000+1000]": (
        "user_segfault",
        "fatal",
        "restart job",
    ),
    "traps: python3[4711] trap invalid opcode ip:55d sp:7ffd error:0 in python3.11[55d+1000]": (
        "user_segfault",
        "fatal",
        "restart job",
    ),
    "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP": (
        "kernel_crash",
        "fatal",
        "reboot",
    ),
    "Kernel panic - not syncing: Fatal exception": ("kernel_crash", "fatal", "reboot"),
    "watchdog: Watchdog detected hard LOCKUP on cpu 12": ("lockup", "fatal", "reboot"),
    "INFO: task kworker/3:1:881 blocked for more than 241 seconds.": ("hung_task", "fatal", "reboot"),
    "WARNING: CPU: 3 PID: 41 at kernel/workqueue.c:12 check_flush+0x1/0x2": ("kernel_warn", "degrade", "none"),
    "Call Trace:": ("kernel_trace", "note", "none"),
    "---[ end trace 0123456789abcdef ]---": ("kernel_trace", "note", "none"),
    "Traceback (most recent call last):": ("user_traceback", "note", "none"),
    "foo 0000:4a:00.0: microcode crashed": ("driver_crash", "degrade", "none"),
    "foo 0000:4a:00.0: Test failure in loop 3": ("test_failure", "degrade", "none"),
    "foo 0000:4a:00.0: bus fault seen": ("fault", "note", "none"),
    "Memory cgroup out of memory: Killed process 99 (python3) total-vm:1kB": ("oom_kill", "fatal", "restart job"),
    "nvme nvme3: I/O 12 QID 4 timeout, aborting": ("nvme_error", "degrade", "none"),
    "nvme nvme3: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10": ("nvme_error", "fatal", "reboot"),
    "I/O error, dev sdc, sector 4096 op 0x1:(WRITE)": ("disk_error", "degrade", "replace"),
    "XFS (nvme2n1): Metadata corruption detected at xfs_agf_read_verify": ("fs_error", "fatal", "reboot"),
    "EXT4-fs (sdb1): Remounting filesystem read-only": ("fs_error", "fatal", "reboot"),
    "nfs: server store7 not responding, still trying": ("nfs_stall", "degrade", "none"),
    "CPU3: Core temperature above threshold, cpu clock throttled (total events = 4)": (
        "cpu_thermal",
        "degrade",
        "none",
    ),
}

HARMLESS = [
    "amdgpu 0000:4a:00.0: 0 new uncorrectable hardware errors detected in umc block",
    "amdgpu 0000:4a:00.0: no correctable hardware errors detected in gfx block",
    "amdgpu 0000:4a:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00000000",
    "amdgpu 0000:4a:00.0: amdgpu:      WALKER_ERROR: 0x0",
    "amdgpu 0000:4a:00.0: amdgpu:      MAPPING_ERROR: 0x0",
    "amdgpu 0000:4a:00.0: amdgpu: ring sdma1 uses VM inv eng 7 on hub 8",
    "amdgpu 0000:4a:00.0: amdgpu: SMU is initialized successfully!",
    "amdgpu 0000:4a:00.0: {3}[Hardware Error]: ACA[02/04].STATUS=0x0000000000000000",
    "NVRM: GPU at PCI:0000:4a:00: GPU-00000000-0000-0000-0000-000000000000",
    "ata3: SATA link down (SStatus 0 SControl 300)",
    "IPv6: ADDRCONF(NETDEV_UP): ens4: link is not ready",
    "mlx5_core 0000:4a:00.0 ens4: Link up",
    "mlx5_core 0000:4a:00.0: Port module event: module 1, Cable plugged",
    "MLX5E: StrdRq(1) RqSz(16) StrdSz(512) RxCqeCmprss(1)",
    "Modules linked in: rdma_ucm ib_uverbs mlx5_ib nvidia_uvm amdgpu",
    "pcieport 0000:40:01.1: AER: enabled with IRQ 61",
    "pcieport 0000:40:01.1: DPC: error containment capabilities: Int Msg #0, RPExt+",
    "pcieport 0000:40:01.1: pciehp: Slot #19 AttnBtn- PwrCtrl- MRL-",
    "pci 0000:4a:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)",
    "ata4: SATA link down",
    "foo 0000:4a:00.0: 0 uncorrectable errors",
    "foo 0000:4a:00.0: 0 corrected errors, 00 uncorrected errors",
    "foo 0000:4a:00.0: bank 3 no uncorrectable errors",
    "EDAC MC: Ver: 3.0.0",
    "EDAC MC0: 0 CE on any memory",
    "EDAC MC0: Giving out device to module skx_edac controller",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "RAS: Correctable Errors collector initialized.",
    "[Firmware Bug]: the BIOS fault table has no entry",
    "OOM killer disabled.",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "Command line: BOOT_IMAGE=/vmlinuz oops=panic nmi_watchdog=1 amdgpu.gpu_recovery=1",
    "EXT4-fs (sdb2): re-mounted. Opts: errors=remount-ro",
    "EXT4-fs (sdb2): error count since last fsck: 0",
    "I/O error, dev sr0, sector 0 op 0x0:(READ)",
    "usb 2-3: reset SuperSpeed USB device number 3 using xhci_hcd",
    "RIP: 0033:0x7f0a0b0c0d0e",
    "page faults: 0",
    "Default domain type: Translated",
    "",
]


def _line(text: str, stamp_s: float = 0.0) -> Line:
    return Line(stamp_s, "kern", "err", text)


def _verdicts(findings: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    return [(finding.class_, finding.severity, finding.action) for finding in findings]


@pytest.mark.parametrize("text", BAD)
def test_each_kind_of_line_has_its_class_severity_and_action(text: str) -> None:
    assert _verdicts(judge([_line(text)])) == [BAD[text]]


@pytest.mark.parametrize("text", HARMLESS)
def test_lines_that_only_look_bad_are_no_finding(text: str) -> None:
    assert judge([_line(text)]) == ()


def test_equal_lines_of_one_device_are_counted_and_devices_kept_apart() -> None:
    reset = "amdgpu 0000:{}:00.0: amdgpu: GPU reset begin!. Source: {}"
    findings = judge(
        [_line(reset.format("41", 3), 7.0), _line(reset.format("51", 3), 6.0), _line(reset.format("41", 1), 5.0)]
    )

    assert [(finding.pci, finding.count, finding.first_stamp_s) for finding in findings] == [
        ("0000:41:00.0", 2, 5.0),
        ("0000:51:00.0", 1, 6.0),
    ]
    assert findings[0].text.endswith("Source: 1")


def test_a_message_split_over_lines_keeps_its_device() -> None:
    findings = judge(
        [
            _line("NVRM: The NVIDIA GPU 0000:4a:00.0"),
            _line("docker0: port 1(veth0) entered disabled state"),
            _line("NVRM: (PCI ID: 10de:0001) installed in this system has"),
            _line("NVRM: fallen off the bus and is not responding to commands."),
        ]
    )

    assert [(finding.class_, finding.pci) for finding in findings] == [("nv_xid_bus", "0000:4a:00.0")]


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("NVRM: Xid (PCI:0018:01:00): 79, GPU has fallen off the bus.", "0018:01:00.0"),
        ("pcieport 10000:E0:01.1: AER: device recovery failed", "10000:e0:01.1"),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=4a:00.1 domain=0x1]", "0000:4a:00.1"),
        ("mlx5_core 00000000:4a:00.0: TX timeout detected", "0000:4a:00.0"),
        ("Kernel panic - not syncing: 12:34:56", None),
    ],
)
def test_pci_addresses_are_written_in_one_form(text: str, pci: str | None) -> None:
    assert judge([_line(text)])[0].pci == pci


def test_what_a_program_writes_into_the_log_is_a_note() -> None:
    (finding,) = judge([Line(1.0, "user", "err", "amdgpu 0000:4a:00.0: amdgpu: GPU reset begin!")])

    assert (finding.class_, finding.severity, finding.action) == ("amd_gpu_reset", "note", "none")
    assert "program" in finding.reason


def test_the_crash_of_a_foreign_process_is_a_note_once_the_runs_processes_are_known() -> None:
    lines = [_line("python3[4711]: segfault at 10 ip 0f sp 0f error 4 in libx.so[7f+1]")]

    assert judge(lines)[0].severity == "fatal"
    assert judge(lines, job_threads={4711})[0].severity == "fatal"
    assert judge(lines, job_threads={12})[0].severity == "note"


def test_a_memory_limit_that_ended_somebody_elses_process_is_a_note() -> None:
    limited = [
        _line("python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        _line("Memory cgroup out of memory: Killed process 4711 (python3) total-vm:11964kB, anon-rss:4288kB"),
    ]
    everywhere = [_line("Out of memory: Killed process 4711 (python3) total-vm:11964kB, anon-rss:4288kB")]

    assert [finding.severity for finding in judge(limited)] == ["note", "fatal"]
    assert [finding.severity for finding in judge(limited, job_threads={4711})] == ["note", "fatal"]
    assert [finding.severity for finding in judge(limited, job_threads={12})] == ["note", "note"]
    assert [finding.severity for finding in judge(everywhere, job_threads={12})] == ["fatal"]


def test_worst_goes_by_severity_then_by_action() -> None:
    lines = [
        _line("nfs: server store7 not responding, still trying"),
        _line("amdgpu 0000:4a:00.0: amdgpu: ring sdma0 timeout, signaled seq=4, emitted seq=6"),
        _line("amdgpu 0000:4a:00.0: amdgpu: GPU reset begin!"),
    ]
    finding = worst(judge(lines))

    assert finding is not None
    assert finding.action == "drain"
    assert worst(()) is None


@pytest.mark.parametrize(
    "piece",
    [
        "amdgpu ring ",
        "AER: ",
        "nvme0 QID ",
        "NVRM: Xid (",
        "link ",
        "0000:00:00.",
        "a ",
        "DEVCMD ",
        "XFS ",
        "failed to create ",
    ],
)
def test_hostile_lines_of_a_hundred_kilobytes_end(piece: str) -> None:
    text = piece * (100_000 // len(piece))

    judge([_line(text)])


@given(st.randoms(use_true_random=False), st.floats(min_value=0, max_value=1e6), st.integers(0, 0xFE))
def test_unrelated_lines_stamps_and_addresses_change_fields_only(
    shuffler: random.Random, shift_s: float, bus: int
) -> None:
    bad = [_line(text, float(number)) for number, text in enumerate(BAD)]
    noise = [_line(text, shuffler.uniform(0, 100)) for text in HARMLESS]
    mixed = [
        replace(line, stamp_s=line.stamp_s + shift_s, text=line.text.replace(":4a:", f":{bus:02x}:")) for line in bad
    ]
    positions = sorted(shuffler.sample(range(len(bad) + len(noise)), len(bad)))
    shuffled = noise[:]
    shuffler.shuffle(shuffled)
    for position, line in zip(positions, mixed, strict=True):
        shuffled.insert(position, line)

    before, after = judge(bad), judge(shuffled)

    assert [(f.class_, f.severity, f.action, f.reason, f.count) for f in before] == [
        (f.class_, f.severity, f.action, f.reason, f.count) for f in after
    ]


@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    judge([_line(text)])
