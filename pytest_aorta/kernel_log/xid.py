"""Xid and SXid: NVIDIA's error numbers with their published resolutions.

Source: NVIDIA "Analyzing Xid Errors with the Xid Catalog" (immediate action) and "Fabric Manager User Guide" (SXid).
RESTART_APP is degrade, RESET_GPU and RESTART_BM are fatal, IGNORE is a note, CONTACT_SUPPORT without more is degrade.
"""

from __future__ import annotations

import re

from pytest_aorta.kernel_log.verdict import Action, Severity, Verdict

_APP, _ECC, _GSP = "nv_xid_app", "nv_xid_ecc", "nv_xid_gsp"
_NVLINK, _BUS, _RECOVERY = "nv_xid_nvlink", "nv_xid_bus", "nv_xid_recovery"

_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO_ENGINES = (60, 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139)

_Entry = tuple[str, Severity, Action, str]

XIDS: dict[int, _Entry] = {
    **dict.fromkeys(_COPY_ENGINES, (_APP, "degrade", "restart job", "copy engine exception")),
    **dict.fromkeys(_VIDEO_ENGINES, (_APP, "degrade", "restart job", "exception of a video engine")),
    8: (_APP, "degrade", "restart job", "the GPU stopped processing this channel"),
    13: (_APP, "degrade", "restart job", "a kernel of the job raised an exception"),
    14: (_APP, "note", "none", "an error injected from user space"),
    25: (_APP, "degrade", "restart job", "illegal push buffer"),
    31: (_APP, "degrade", "restart job", "a kernel of the job touched memory that is not mapped"),
    32: (_APP, "degrade", "restart job", "corrupted push buffer"),
    37: (_APP, "note", "none", "method that the driver's firmware does not know"),
    38: (_APP, "note", "none", "watchdog of the driver's firmware"),
    43: (_APP, "note", "none", "the job stopped by its own fault, the GPU is fine"),
    44: (_APP, "note", "none", "fault during a context switch"),
    45: (_APP, "note", "none", "clean-up after another event"),
    46: (_GSP, "fatal", "reset GPU", "the GPU stopped processing"),
    48: (_ECC, "fatal", "drain", "uncorrectable memory error"),
    54: (_BUS, "degrade", "check cable", "auxiliary power of the GPU board is not connected"),
    61: (_GSP, "degrade", "reset GPU", "breakpoint of an internal micro-controller"),
    62: (_GSP, "fatal", "reset GPU", "an internal micro-controller halted"),
    63: (_ECC, "note", "none", "a memory row or page was recorded for retirement"),
    64: (_ECC, "fatal", "reset GPU", "a memory row or page could not be retired"),
    66: (_APP, "note", "none", "illegal access by the driver"),
    67: (_APP, "note", "none", "illegal access by the driver"),
    69: (_APP, "degrade", "restart job", "class error of the graphics engine"),
    78: (_APP, "degrade", "none", "virtual GPU could not start"),
    79: (_BUS, "fatal", "reboot", "the GPU has fallen off the bus"),
    80: (_APP, "degrade", "restart job", "corrupted data was sent to the GPU"),
    92: (_ECC, "note", "none", "high rate of corrected memory errors"),
    93: (_APP, "note", "none", "write limit of the InfoROM"),
    94: (_ECC, "degrade", "restart job", "contained memory error, one job was killed"),
    95: (_ECC, "fatal", "reset GPU", "uncontained memory error"),
    106: (_APP, "note", "none", "test message"),
    107: (_APP, "note", "none", "test message"),
    108: (_NVLINK, "note", "none", "remote translation error, follow Xid 137"),
    109: (_GSP, "fatal", "reset GPU", "a context switch timed out"),
    110: (_GSP, "fatal", "reset GPU", "security fault"),
    119: (_GSP, "fatal", "reset GPU", "the GPU's system processor does not answer"),
    120: (_GSP, "fatal", "reset GPU", "the GPU's system processor crashed"),
    121: (_NVLINK, "note", "none", "corrected error of the link to the CPU"),
    136: (_NVLINK, "fatal", "reset GPU", "link training failed"),
    137: (_NVLINK, "note", "none", "illegal peer access by the job"),
    140: (_ECC, "fatal", "reset GPU", "uncorrectable memory error that could not be retired"),
    141: (_APP, "note", "none", "fast-path error"),
    142: (_APP, "degrade", "none", "error of a video encoder"),
    143: (_GSP, "fatal", "reset GPU", "the GPU could not be initialised"),
    151: (_GSP, "fatal", "reboot", "key rotation failed"),
    152: (_APP, "note", "none", "translation error of an accelerator"),
    153: (_APP, "note", "none", "timeout of an accelerator"),
    155: (_NVLINK, "fatal", "reset GPU", "a link was taken down by software"),
    156: (_ECC, "fatal", "reset GPU", "a resource was retired, the reset activates it"),
    157: (_ECC, "degrade", "none", "a resource could not be retired, the error may come again"),
    158: (_GSP, "fatal", "reset GPU", "fatal timeout of the GPU"),
    159: (_NVLINK, "degrade", "restart job", "error of the coherent link to the CPU"),
    160: (_ECC, "note", "none", "a memory channel was retired"),
    161: (_ECC, "degrade", "none", "a memory channel could not be retired"),
    162: (_APP, "note", "none", "power smoothing is active again"),
    163: (_APP, "note", "none", "power smoothing was switched off"),
    164: (_APP, "degrade", "none", "power smoothing hardware is near its end of life"),
    165: (_APP, "degrade", "replace", "power smoothing hardware is at its end of life"),
    166: (_NVLINK, "degrade", "none", "encrypted link carried traffic too early"),
    167: (_BUS, "fatal", "reboot", "fatal PCIe timeout"),
    168: (_ECC, "degrade", "reboot", "errors in the protected memory region"),
    169: (_GSP, "fatal", "reset GPU", "a security micro-controller halted"),
    170: (_NVLINK, "degrade", "none", "interrupt of an encrypted link"),
    171: (_ECC, "fatal", "drain", "uncorrectable DRAM error (detail of Xid 48)"),
    172: (_ECC, "fatal", "drain", "uncorrectable SRAM error (detail of Xid 48)"),
    173: (_NVLINK, "fatal", "reset GPU", "fatal error of the link to the CPU"),
}

_RECOVERY_ACTION = re.compile(r"\bto 0x(?P<code>[0-9a-f]+)", re.IGNORECASE)
_RECOVERY_ACTIONS: dict[int, tuple[Severity, Action, str]] = {
    0: ("note", "none", "no recovery is needed any more"),
    1: ("fatal", "reset GPU", "the driver asks for a GPU reset"),
    2: ("fatal", "reboot", "the driver asks for a reboot of the node"),
    3: ("fatal", "drain", "the driver asks to drain peer-to-peer traffic"),
    4: ("fatal", "drain", "the driver asks to drain and reset"),
    5: ("fatal", "reset GPU", "the driver asks to recover the memory exchange domain"),
    6: ("fatal", "reboot", "the driver asks for a reset of the PCIe bus"),
    7: ("fatal", "reboot", "the driver asks for a reboot of the system"),
}

_FIRST_REGISTER = re.compile(r"\(0x(?P<value>[0-9a-f]+),", re.IGNORECASE)
_MECHANICAL_BITS = sum(1 << bit for bit in (8, 9, 12, 16, 17, 21, 22, 24, 28))

_SXID_REBOOT_THOUGH_NON_FATAL = {11004: "wrong fabric partition", 12028: "traffic of a GPU stalls", 19084: "heartbeat"}
_SXID_MECHANICAL = 20012


def judge_xid(match: re.Match[str], _: Verdict) -> Verdict:
    """Judge a line with an Xid (groups `number` and `rest`)."""
    number, rest = int(match["number"]), match["rest"]
    if number == 74:
        return _judge_nvlink_registers(rest)
    if 144 <= number <= 150:
        return _judge_nvlink5(number, rest)
    if number == 154:
        return _judge_recovery(rest)
    class_, severity, action, reason = XIDS.get(number, (_APP, "degrade", "none", "no published resolution"))
    return Verdict(class_, severity, action, f"Xid {number}: {reason}")


def judge_sxid(match: re.Match[str], _: Verdict) -> Verdict:
    """Judge a line of an NVSwitch with an SXid (groups `number` and `rest`); lines that only add data are notes."""
    number, rest = int(match["number"]), match["rest"].lower()
    if number in _SXID_REBOOT_THOUGH_NON_FATAL and "atal" in rest:
        return Verdict("nv_sxid", "fatal", "reboot", f"SXid {number}: {_SXID_REBOOT_THOUGH_NON_FATAL[number]}")
    if re.match(r"(always[- ])?fatal\b", rest):
        return Verdict("nv_sxid", "fatal", "reboot", f"SXid {number}: fatal error of the switch")
    if number == _SXID_MECHANICAL and rest.startswith("non-fatal"):
        return Verdict("nv_sxid", "degrade", "check cable", f"SXid {number}: check the link's connections")
    return Verdict("nv_sxid", "note", "none", f"SXid {number}: not fatal, or detail of another line")


def _judge_nvlink_registers(rest: str) -> Verdict:
    first = _FIRST_REGISTER.search(rest)
    if first is not None and int(first["value"], 16) & _MECHANICAL_BITS:
        return Verdict(_NVLINK, "fatal", "check cable", "Xid 74: the link's registers point at its connections")
    return Verdict(_NVLINK, "fatal", "reset GPU", "Xid 74: NVLink error")


def _judge_nvlink5(number: int, rest: str) -> Verdict:
    """Xid 144 to 150 say in words whether they are fatal; a bit-error-rate event has no consequence of its own."""
    if not re.search(r"\bnon-?fatal\b", rest, re.IGNORECASE):
        return Verdict(_NVLINK, "fatal", "reset GPU", f"Xid {number}: fatal NVLink error")
    if number == 149:
        return Verdict(_NVLINK, "degrade", "none", f"Xid {number}: NVLink bit errors, not fatal")
    return Verdict(_NVLINK, "degrade", "restart job", f"Xid {number}: NVLink error, not fatal")


def _judge_recovery(rest: str) -> Verdict:
    found = _RECOVERY_ACTION.search(rest)
    code = int(found["code"], 16) if found is not None else -1
    severity, action, reason = _RECOVERY_ACTIONS.get(code, ("fatal", "drain", "the driver asks for a recovery"))
    return Verdict(_RECOVERY, severity, action, f"Xid 154: {reason}")
