"""Rows for the parts below every device: PCIe, memory controllers, machine checks, the IOMMU."""

from __future__ import annotations

import re

from pytest_aorta.kernel_log.verdict import Family, Verdict, row, unless_zero

_AER_CODE = "Linux PCIe error reporting"
_HOTPLUG_CODE = "Linux PCIe containment and hotplug"
_MCE_CODE = "Linux machine checks"
_EDAC_CODE = "Linux EDAC"
_IOMMU_CODE = "Linux IOMMU drivers"

_MANY_CORRECTED = 100
_NUMBER = r"(?<![\w.])(?P<number>no|\d+) (?:(?!no )[a-z]{1,12} )?"
_MENTION = re.compile(
    rf"(?:{_NUMBER})?\b(?P<un>un)?correct(?:able|ed)\b(?P<errors> (?:\w{{1,12}} )?errors?\b)?",
    re.IGNORECASE | re.ASCII,
)

_PCIE_CORRECTED = Verdict("pcie_aer_corrected", "note", "none", "corrected hardware error")
_PCIE_NON_FATAL = Verdict("pcie_aer_uncorrected", "degrade", "none", "a PCIe transaction was lost, the link works on")
_PCIE_FATAL = Verdict("pcie_aer_uncorrected", "fatal", "reboot", "uncorrected PCIe error, the device is lost")
_PCIE_RECOVERED = Verdict("pcie_aer_uncorrected", "note", "none", "a device recovered from a PCIe error")
_CONTAINED = Verdict(
    "pcie_dpc_hotplug", "fatal", "reboot", "a PCIe port was closed, what is behind it cannot be reached"
)
_VANISHED = Verdict("pcie_dpc_hotplug", "fatal", "reboot", "a device vanished from its slot")
_APPEARED = Verdict("pcie_dpc_hotplug", "note", "none", "a device appeared in its slot")
_NARROW = Verdict("pcie_link_degraded", "degrade", "check cable", "a PCIe link is narrower or slower than it can be")
_CPU_UNCORRECTED = Verdict("mce_uncorrected", "fatal", "replace", "uncorrected error of CPU or memory")
_CPU_DEFERRED = Verdict("mce_corrected", "degrade", "drain", "deferred error: corrupted data waits in memory")
_CPU_CORRECTED = Verdict("mce_corrected", "note", "none", "corrected error of CPU or memory")
_CPU_STORM = Verdict("mce_corrected", "degrade", "none", "very many corrected errors of CPU or memory")
_DIMM_UNCORRECTED = Verdict("edac_ue", "fatal", "replace", "uncorrected error of a memory module")
_DIMM_CORRECTED = Verdict("edac_ce", "note", "none", "corrected error of a memory module")
_IOMMU = Verdict("iommu_fault", "fatal", "drain", "a device accessed memory that it may not")
_IOMMU_STUCK = Verdict("iommu_fault", "fatal", "reboot", "the IOMMU does not answer")
_HARDWARE = Verdict("hardware_error", "fatal", "drain", "a driver reports broken hardware")
_UNCORRECTED = Verdict("hardware_error", "fatal", "drain", "a driver reports an uncorrected error")
_CORRECTED = Verdict("hardware_error", "note", "none", "a driver reports a corrected error")
_RAS_ERROR = Verdict("hardware_error", "degrade", "drain", "a driver reports an error of its hardware")


def _weigh_bank_status(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    """Bits of a machine-check bank: 61 uncorrected, 44 deferred. Source: AMD64 APM volume 2, Intel SDM volume 3B."""
    status = int(match["value"], 16)
    if status == 0:
        return None
    if status >> 61 & 1:
        return verdict
    return _CPU_DEFERRED if status >> 44 & 1 else _CPU_CORRECTED


def _weigh_bank_flags(match: re.Match[str], verdict: Verdict) -> Verdict:
    flags = match["flags"].lower().split("|")
    if "ue" in flags or "uc" in flags:
        return verdict
    return _CPU_DEFERRED if "deferred" in flags else _CPU_CORRECTED


def _weigh_memory_count(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    count = int(match["count"])
    if count == 0:
        return None
    if match["kind"].upper() == "UE":
        return _DIMM_UNCORRECTED
    if count >= _MANY_CORRECTED or "OVERFLOW" in match["rest"]:
        return verdict.but("degrade", "none", "many corrected errors of a memory module")
    return verdict


def _weigh_counts(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    """Look at every count of the line, and at errors without one: harmless is it only when all are zero."""
    told = [each for each in _MENTION.finditer(match.string) if each["number"] or each["errors"]]
    bad = [each for each in told if each["number"] is None or each["number"].lower().strip("0") not in ("", "no")]
    if any(each["un"] for each in bad):
        return verdict
    return _CORRECTED if bad else None


def _weigh_device_kind(match: re.Match[str], verdict: Verdict) -> Verdict:
    return _DIMM_UNCORRECTED if match["kind"].upper() == "UE" else verdict


def _weigh_severity(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    match match["severity"].lower():
        case "corrected":
            return _PCIE_CORRECTED
        case "info" | "informational":
            return None
        case _:
            return verdict.but("fatal", "reboot", "firmware reports an uncorrected hardware error")


_PCIE_ROWS = (
    row(r"\bAER: (?:Multiple )?Correct(?:ed|able) error\b|\bseverity=Correct(?:ed|able)\b", _PCIE_CORRECTED, _AER_CODE),
    row(
        r"\bAER: (?:Multiple )?Uncorrect(?:ed|able) \(Non-?Fatal\)|\bseverity=Uncorrect(?:ed|able) \(Non-?Fatal\)",
        _PCIE_NON_FATAL,
        _AER_CODE,
    ),
    row(r"\bAER: (?:Multiple )?Uncorrect(?:ed|able)\b|\bseverity=Uncorrect(?:ed|able)\b", _PCIE_FATAL, _AER_CODE),
    row(r"\bAER: (?:can't recover\b|device recovery failed\b)", _PCIE_FATAL, _AER_CODE),
    row(r"\bAER: device recovery successful\b", _PCIE_RECOVERED, _AER_CODE),
    row(r"\bDPC: (?:containment event|unmasked uncorrectable error|ERR_(?:NON)?FATAL)\b", _CONTAINED, _HOTPLUG_CODE),
    row(r"\bSlot ?\([^)]{1,24}\): (?:Link Down|Card not present)\b", _VANISHED, _HOTPLUG_CODE),
    row(r"\bSlot ?\([^)]{1,24}\): (?:Link Up|Card present)\b", _APPEARED, _HOTPLUG_CODE),
    row(r"\bpower state\b.{0,60}\bdevice inaccessible\b", _VANISHED, _HOTPLUG_CODE),
    row(r"\bavailable PCIe bandwidth, limited by\b", _NARROW, "Linux PCI core"),
)

_CPU_ROWS = (
    row(r"\bevent severity: (?P<severity>[\w-]+)", _PCIE_FATAL, "ACPI platform error interface", _weigh_severity),
    row(r"\bcorrected by h/w\b", _PCIE_CORRECTED, "ACPI platform error interface"),
    row(
        r"\bMachine Check(?: Exception)?: \S{1,20} Bank \d{1,3}: (?:0x)?(?P<value>[0-9a-f]{1,16})\b",
        _CPU_UNCORRECTED,
        _MCE_CODE,
        _weigh_bank_status,
    ),
    row(
        r"\bMC\d{1,3}_STATUS\[[^\]]{0,120}\]: ?0x(?P<value>[0-9a-f]{1,16})",
        _CPU_UNCORRECTED,
        _MCE_CODE,
        _weigh_bank_status,
    ),
    row(r"\bMC\d{1,3}_STATUS\[(?P<flags>[^\]]{0,120})\]", _CPU_UNCORRECTED, _MCE_CODE, _weigh_bank_flags),
    row(r"\[Hardware Error\]: Corrected\b|\bMachine check events logged\b", _CPU_CORRECTED, _MCE_CODE),
    row(r"\[Hardware Error\]: Deferred error\b", _CPU_DEFERRED, _MCE_CODE),
    row(r"\[Hardware Error\]: Uncorrected\b|\buncorrected hardware memory error\b", _CPU_UNCORRECTED, _MCE_CODE),
    row(r"\bProcessor context corrupt\b|\bfatal machine check\b|\bMCE: Killing\b", _CPU_UNCORRECTED, _MCE_CODE),
    row(r"\bMemory failure: 0x[0-9a-f]+: ", _CPU_UNCORRECTED, _MCE_CODE),
    row(r"\bCMCI storm detected\b", _CPU_STORM, _MCE_CODE),
    row(
        r"\bEDAC (?:\w{1,24} )?MC\d+: (?P<count>\d+) (?P<kind>CE|UE)\b(?P<rest>.*)",
        _DIMM_CORRECTED,
        _EDAC_CODE,
        _weigh_memory_count,
    ),
    row(r"\bEDAC (?:\w{1,24} )?(?:DEVICE|MC)\d+: (?P<kind>CE|UE)\b", _DIMM_CORRECTED, _EDAC_CODE, _weigh_device_kind),
)

_OTHER_ROWS = (
    row(
        r"\bIO_PAGE_FAULT\b|\bAMD-Vi: Event logged \[(?:INVALID|ILLEGAL|DEV_TAB|PAGE_TAB|COMMAND)", _IOMMU, _IOMMU_CODE
    ),
    row(r"\bDMAR: .{0,80}\bfault addr\b|\bUnhandled context fault\b", _IOMMU, _IOMMU_CODE),
    row(r"\bhandling fault status reg (?P<value>[0-9a-f]+)", _IOMMU, _IOMMU_CODE, unless_zero),
    row(r"\bCompletion-Wait loop timed out\b", _IOMMU_STUCK, _IOMMU_CODE),
    row(rf"^(?=.*\berror).*?{_NUMBER}\b(?:un)?correct(?:able|ed)\b", _UNCORRECTED, "any driver", _weigh_counts),
    row(
        r"\b(?:no|0) (?:\w{1,12} )?(?:un)?correct(?:able|ed)\b|\bcorrectable errors? .{0,40}\binitiali[sz]ed",
        None,
        "any driver",
    ),
    row(r"\buncorrect(?:able|ed) (?:\w{1,12} )?errors?\b", _UNCORRECTED, "any driver"),
    row(r"\bcorrect(?:able|ed) (?:\w{1,12} )?errors?\b", _CORRECTED, "any driver"),
    row(r"(?<!no )\bhardware fail(?:ure|ed)?\b", _HARDWARE, "any driver"),
    row(r"(?<!no )\bras error\b", _RAS_ERROR, "any driver"),
)

HARDWARE = Family(
    "hardware",
    (
        *("hardware error", "corrected by h/w", "mce", "machine check", "edac", "memory failure", "context corrupt"),
        *(
            "aer",
            "pcie",
            "dpc",
            "slot",
            "device inaccessible",
            "amd-vi",
            "dmar",
            "fault",
            "hardware",
            "ras error",
            "correct",
        ),
    ),
    (*_PCIE_ROWS, *_CPU_ROWS, *_OTHER_ROWS),
)
