"""Rows for AMD's GPU driver (amdgpu, its compute part KFD, RAS, XGMI)."""

from __future__ import annotations

import re

from pytest_aorta.kernel_log.verdict import Family, Verdict, is_all_ones, row, unless_zero

_DRIVER = "Linux amdgpu driver"
_RAS = "Linux amdgpu RAS code"
_KFD = "Linux amdkfd driver"

# A suspended GPU answers each query with 16 channels of 0xFFFF; the driver adds them up as errors.
_COUNT_OF_A_SUSPENDED_GPU = 16 * 0xFFFF
_MANY_LINK_ERRORS = 100

_UE = Verdict("amd_ras_ue", "fatal", "reset GPU", "uncorrectable hardware error")
_CE = Verdict("amd_ras_ce", "note", "none", "corrected hardware error")
_ATHUB = Verdict("amd_ras_ue", "fatal", "replace", "uncorrectable error of the GPU's host interface")
_POISON_USED = Verdict("amd_ras_poison", "fatal", "reset GPU", "corrupted data was used, the driver resets the GPU")
_POISON_MADE = Verdict("amd_ras_poison", "fatal", "drain", "uncorrectable data was stored and not yet used")
_DEFERRED = Verdict("amd_ras_poison", "degrade", "drain", "deferred error: corrupted data waits in memory")
_XGMI = Verdict("amd_xgmi", "degrade", "drain", "errors of a link between GPUs")
_PAGES_FULL = Verdict("amd_bad_page", "fatal", "replace", "as many bad memory pages as the GPU may have")
_PAGE_LOST = Verdict("amd_bad_page", "fatal", "drain", "uncorrected memory error, or a bad page that stayed in use")
_PAGE_RETIRED = Verdict("amd_bad_page", "note", "none", "a bad memory page was recorded")
_RESET = Verdict("amd_gpu_reset", "fatal", "drain", "a GPU reset began, jobs on the node are lost")
_RESET_PART = Verdict("amd_gpu_reset", "note", "none", "part of a reset that is counted already")
_RESET_FAILED = Verdict("amd_gpu_reset_failed", "fatal", "reboot", "a reset failed")
_RESET_DONE = Verdict("amd_gpu_reset_ok", "note", "none", "a reset ended well")
_HANG = Verdict("amd_gpu_reset", "fatal", "reset GPU", "the GPU hangs")
_RING = Verdict("amd_ring_timeout", "fatal", "reset GPU", "an engine of the GPU hung")
_RING_SOFT = Verdict("amd_ring_timeout", "degrade", "restart job", "a job was killed, the engine went on")
_PAGE_FAULT = Verdict("amd_page_fault", "fatal", "restart job", "a kernel of the job touched memory that is not mapped")
_FAULT_DETAIL = Verdict("amd_page_fault_detail", "note", "none", "detail of a fault that is counted already")
_ILLEGAL = Verdict("amd_illegal_access", "fatal", "restart job", "a job used a register or an instruction it may not")
_MES = Verdict("amd_mes", "fatal", "reset GPU", "the GPU's scheduler does not answer")
_PREEMPT = Verdict("amd_queue_preempt", "fatal", "reset GPU", "a queue could not be taken off the GPU")
_EVICTED = Verdict("amd_queue_preempt", "note", "none", "clean-up after a process that ended")
_OVERSUBSCRIBED = Verdict("amd_oversubscribed", "degrade", "none", "more queues than the GPU has, the run is slower")
_NO_QUEUE = Verdict("amd_oversubscribed", "degrade", "restart job", "no hardware queue was left")
_NO_INIT = Verdict("amd_init_fatal", "fatal", "reboot", "the driver did not load on this GPU")
_FIRMWARE_GONE = Verdict("amd_smu_psp", "fatal", "reboot", "power or security firmware does not answer")
_FIRMWARE_REFUSED = Verdict("amd_smu_psp", "degrade", "none", "power or security firmware refused a command")
_THROTTLED = Verdict("amd_throttle", "degrade", "none", "the GPU is too hot and slower")
_TOO_HOT = Verdict("amd_throttle", "fatal", "drain", "the GPU is above its temperature limit")


def _weigh_ras_count(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    count, kind, block = int(match["count"]), match["kind"].lower(), match["block"].lower()
    if count == 0:
        return None
    if kind == "deferred":
        return _DEFERRED
    if "xgmi" in block or "wafl" in block:
        return _weigh_link_errors(count, is_corrected=kind == "correctable")
    return _CE if kind == "correctable" else _weigh_uncorrectable(count, block, verdict)


def _weigh_uncorrectable(count: int, block: str, verdict: Verdict) -> Verdict:
    if count % _COUNT_OF_A_SUSPENDED_GPU == 0:
        return verdict.but("degrade", "none", f"a count of {count} is what a suspended GPU reports, not an error")
    if block == "umc":
        return verdict.but("fatal", "drain", "uncorrectable memory error")
    return verdict


def _weigh_link_errors(count: int, *, is_corrected: bool) -> Verdict:
    if not is_corrected:
        return _XGMI.but("fatal", "reboot", "uncorrected error of a link between GPUs")
    if count < _MANY_LINK_ERRORS:
        return _XGMI.but("note", "none", "few corrected errors of a link between GPUs")
    return _XGMI.but("degrade", "drain", "many corrected errors of a link between GPUs")


def _weigh_bank_status(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    """Bits of a machine-check bank: 61 uncorrected, 44 deferred, 43 poison. Source: AMD64 APM volume 2, chapter 9."""
    status = int(match["value"], 16)
    if status == 0:
        return None
    if status >> 61 & 1 or status >> 43 & 1:
        return verdict
    return _DEFERRED if status >> 44 & 1 else _CE


def _weigh_share(match: re.Match[str], verdict: Verdict) -> Verdict:
    return (
        verdict.but("degrade", "drain", "close to as many bad pages as the GPU may have") if match["share"] else verdict
    )


def _weigh_reset_code(match: re.Match[str], verdict: Verdict) -> Verdict:
    return verdict if int(match["code"]) else _RESET_DONE


def _weigh_response(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    if is_all_ones(match["value"]):
        return _FIRMWARE_GONE.but("fatal", "reboot", "registers read all ones: the GPU does not answer on PCIe")
    return verdict


_RAS_ROWS = (
    row(r"\bno (?:new )?(?:un)?correctable hardware errors?\b", None, _RAS),
    row(
        r"(?P<count>\d+) (?:new )?(?P<kind>uncorrectable|correctable|deferred) hardware errors? detected "
        r"(?:in total )?in (?P<block>\w+) block",
        _UE,
        _RAS,
        _weigh_ras_count,
    ),
    row(r"\buncorrectable hardware error ?\(", _ATHUB, _RAS),
    row(r"\baca(?: entry)?\[[^\]]{1,12}\]\.STATUS=0x(?P<value>[0-9a-f]+)", _UE, _RAS, _weigh_bank_status),
    row(r"\bpoison is consumed\b|\bpoison consum(?:ption|ed)\b", _POISON_USED, _RAS),
    row(r"\bpoison is created\b|\bpoison creation\b", _POISON_MADE, _RAS),
    row(r"\b(?:XGMI|WAFL) PCS \w{1,40}Err detected", _XGMI, _RAS),
    row(r"\bbad pages \d+ reach(?:es)? threshold", _PAGES_FULL, _RAS),
    row(r"\bRAS records: ?\d+ exceeds? (?P<share>\d+% of )?threshold", _PAGES_FULL, _RAS, _weigh_share),
    row(r"\bError Address ?\((?:PA|MCA)\):", _PAGE_LOST, _RAS),
    row(r"\bfailed to (?:reserve|retire|save|write|record) (?:\w+ )?bad page", _PAGE_LOST, _RAS),
    row(r"\b(?:reserve|retire)[a-z]* (?:bad )?pages? .{0,40}\bfail", _PAGE_LOST, _RAS),
    row(r"\b(?:reserv|retir|record|sav)(?:ed|ing) (?:\d+ )?(?:bad )?pages?\b", _PAGE_RETIRED, _RAS),
)

_RESET_ROWS = (
    row(r"\bGPU reset end with ret = (?P<code>-?\d+)", _RESET_FAILED, _DRIVER, _weigh_reset_code),
    row(r"\bGPU (?:recovery|reset(?: ?\(\d+\))?) failed\b|\bASIC reset failed\b", _RESET_FAILED, _DRIVER),
    row(r"\bring \S{1,40} reset failed\b|\bresume of IP block <[^>]{1,40}> failed", _RESET_FAILED, _DRIVER),
    row(r"\bGPU reset(?: ?\(\d+\))? succeeded\b|\bring \S{1,40} reset succe", _RESET_DONE, _DRIVER),
    row(r"\bSMU is resumed successfully\b|\brecover vram bo from shadow done\b", _RESET_DONE, _DRIVER),
    row(r"\bGPU reset begin\b", _RESET, _DRIVER),
    row(r"\bVRAM is lost due to GPU reset\b|\b(?:MODE ?[0-9]|BACO) reset\b|\bSMU is resuming\b", _RESET_PART, _DRIVER),
    row(r"\bstarting \S{1,40} ring reset\b", _RESET_PART, _DRIVER),
    row(r"\bring \S{1,40} timeout, but soft recovered\b", _RING_SOFT, _DRIVER),
    row(r"\bring \S{1,40} timeout\b", _RING, _DRIVER),
    row(r"\bMES(?: ?\(\d+\))? (?:might be in (?:an )?unrecoverable|failed|ring buffer is full)", _MES, _DRIVER),
    row(r"\bhardware queue (?:to|from) MES\b", _MES, _DRIVER),
    row(r"\bGPU hang\b", _HANG, _DRIVER),
)

_JOB_ROWS = (
    row(r"\[\w{0,12}hub\d*\] (?:no-retry |retry )?page fault\b|\bVM fault \(0x", _PAGE_FAULT, _DRIVER),
    row(r"PROTECTION_FAULT_STATUS ?[:=]? ?0x(?P<value>[0-9a-f]+)", _PAGE_FAULT, _DRIVER, unless_zero),
    row(
        r"\b(?:MORE_FAULTS|WALKER_ERROR|PERMISSION_FAULTS|MAPPING_ERROR|RW): ?0x(?P<value>[0-9a-f]+)",
        _FAULT_DETAIL,
        _DRIVER,
        unless_zero,
    ),
    row(r"\bUTCL2 client ID\b|\bin page starting at address\b|PROTECTION_FAULT_ADDR", _FAULT_DETAIL, _DRIVER),
    row(r"\bProcess information: process\b|\bprocess (?:\S{1,40} )?pid \d+", _FAULT_DETAIL, _DRIVER),
    row(r"\billegal (?:register access|instruction|opcode)\b|\bbad opcode\b", _ILLEGAL, _DRIVER),
    row(r"\bcp might be in an unrecoverable state\b|\bfence wait loop timeout\b", _PREEMPT, _KFD),
    row(r"\bqueues? preemption (?:failed|time ?d? ?out)\b|\bunsuccessful queues? preemption\b", _PREEMPT, _KFD),
    row(r"\bfailed to (?:evict|preempt|suspend|unmap) (?:process )?(?:all )?queues?\b", _PREEMPT, _KFD),
    row(r"\bqueue evicted\b|\bfreeing queue vital buffer\b", _EVICTED, _KFD),
    row(r"\brunlist is getting oversubscribed\b|\bexpect reduced ROCm performance\b", _OVERSUBSCRIBED, _KFD),
    row(r"\bno more SDMA queue to allocate\b", _NO_QUEUE, _KFD),
)

_DEVICE_ROWS = (
    row(r"\b(?:hw|sw|early|late)_init of IP block <[^>]{1,40}> failed", _NO_INIT, _DRIVER),
    row(r"\bfatal error\b|\bprobe of \S{1,40} failed with error -\d+|_ip_init failed", _NO_INIT, _DRIVER),
    row(r"\bring \S{1,40} test failed\b|\bIB test failed\b", _NO_INIT, _DRIVER),
    row(
        r"\bpsp gfx command [^()]{1,40}\([^)]{1,20}\) failed and response status is \(0x(?P<value>[0-9a-f]+)\)",
        _FIRMWARE_REFUSED,
        _DRIVER,
        _weigh_response,
    ),
    row(r"\bSMU: response: ?0x0*1 ", None, _DRIVER),
    row(r"\bSMU: response: ?0x(?P<value>[0-9a-f]+) ", _FIRMWARE_REFUSED, _DRIVER, _weigh_response),
    row(r"\bI'm not done with your previous command\b", _FIRMWARE_GONE, _DRIVER),
    row(r"\bPSP (?:create ring|load \w{1,20}|firmware loading) failed\b", _FIRMWARE_GONE, _DRIVER),
    row(r"\bfailed to export SMU metrics\b", _FIRMWARE_REFUSED.but("degrade", "none", "telemetry is lost"), _DRIVER),
    row(r"\bfailed to (?:enable|disable) gfxoff\b|\bfailed to power (?:un)?gate\b", _FIRMWARE_REFUSED, _DRIVER),
    row(r"\bover temperature range\b|\bGPU SW CTF\b", _TOO_HOT, _DRIVER),
    row(r"\bthermal throttling\b|\bGPU throttled\b|\bexpect performance decrease\b", _THROTTLED, _DRIVER),
)

AMD = Family("amd", ("amdgpu", "[drm", "kfd"), (*_RAS_ROWS, *_RESET_ROWS, *_JOB_ROWS, *_DEVICE_ROWS))
