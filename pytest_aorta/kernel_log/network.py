"""Rows for network cards and RDMA: mlx5, bnxt, ionic, and what every driver prints."""

from __future__ import annotations

import re

from pytest_aorta.kernel_log.verdict import Family, Verdict, row

_MLX5 = "Linux mlx5 driver"
_BNXT = "Linux bnxt driver"
_IONIC = "Linux ionic driver"
_NETDEV = "Linux network devices"
_RDMA = "Linux RDMA drivers"

_SYNDROME_FLUSHED = 0x05
_SYNDROME_RETRIES_EXCEEDED = 0x15

_FIRMWARE = Verdict("nic_fw_fatal", "fatal", "reboot", "the network card's firmware stopped or does not answer")
_FIRMWARE_BACK = Verdict("nic_fw_fatal", "note", "none", "the network card's firmware answers again")
_FIRMWARE_RESET = Verdict("nic_fw_fatal", "degrade", "none", "the network card restarts its firmware by itself")
_LINK_DOWN = Verdict("nic_link_down", "fatal", "check cable", "a network link went down")
_UNPLUGGED = Verdict("nic_link_down", "degrade", "check cable", "no module or cable in the cage")
_MODULE = Verdict("nic_module", "degrade", "check cable", "a network module, its cable or its power is not right")
_TX_TIMEOUT = Verdict("nic_tx_timeout", "degrade", "none", "a send queue was stuck, the driver recovers by itself")
_CQ_ERROR = Verdict("rdma_cq_error", "fatal", "restart job", "an RDMA queue failed")
_CQE_ERROR = Verdict("rdma_cq_error", "degrade", "restart job", "an RDMA transfer ended with an error")
_RDMA_UNUSABLE = Verdict("rdma_cmd_error", "fatal", "reboot", "RDMA cannot be used on this port")
_COMMAND_REFUSED = Verdict("rdma_cmd_error", "degrade", "restart job", "the network card refused a command")
_VERBS = Verdict("rdma_cmd_error", "degrade", "none", "the kernel's RDMA interface reports a problem")

# Firmware answers these with an error when a ring is being freed; upstream calls it no concern for the user.
_RING_REQUESTS = (0x51, 0x52, 0x53)


def _weigh_health_syndrome(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    if int(match["value"], 16) == 0:
        return None
    words = match["words"].lower()
    if "unrecoverable hardware" in words:
        return verdict.but("fatal", "replace", "the network card's hardware is broken")
    if "temperature" in words:
        return verdict.but("fatal", "drain", "the network card is too hot")
    return verdict


def _weigh_queue_syndrome(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    """Completion syndromes of mlx5: 5 is a flushed request, 0x15 means that the other side did not answer."""
    syndrome = int(match["value"], 16)
    if syndrome == 0:
        return None
    if syndrome == _SYNDROME_FLUSHED:
        return verdict.but("degrade", "restart job", "requests were flushed, their queue pair had failed before")
    if syndrome == _SYNDROME_RETRIES_EXCEEDED:
        return verdict.but("fatal", "check cable", "the other side did not answer an RDMA transfer")
    return verdict


def _weigh_ring_request(match: re.Match[str], verdict: Verdict) -> Verdict:
    if int(match["value"], 16) in _RING_REQUESTS:
        return verdict.but("note", "none", "known race when a ring is freed")
    return verdict


def _weigh_command(match: re.Match[str], verdict: Verdict) -> Verdict:
    if match["command"].upper().startswith(("ACCESS_REG", "QUERY_")):
        return verdict.but("note", "none", "the network card could not answer a question")
    return verdict


_FIRMWARE_ROWS = (
    row(r"\bsynd 0x(?P<value>[0-9a-f]+): (?P<words>.{1,80})", _FIRMWARE, _MLX5, _weigh_health_syndrome),
    row(r"\bhealth compromised\b|\benter_error_state\b|\berror_sw_reset\b|\bhealth poll failed\b", _FIRMWARE, _MLX5),
    row(r"\bhandling bad device\b|\bfirmware internal error\b|\bFatal error \d+ detected\b", _FIRMWARE, _MLX5),
    row(r"\bwill cause a leak of a command resource\b|\bno done completion\b", _FIRMWARE, _MLX5),
    row(r"\bFW heartbeat stalled\b|\bFW (?:is )?down\b|\bDEVCMD\b.{0,60}\btimeout\b", _FIRMWARE, _IONIC),
    row(r"\bFW heartbeat restored\b|\bFW (?:is )?up\b", _FIRMWARE_BACK, _IONIC),
    row(r"\bnon-?fatal reset event\b", _FIRMWARE_RESET, _BNXT),
    row(r"\bfatal reset event\b|\bfirmware (?:is )?(?:not responding|in unhealthy state)", _FIRMWARE, _BNXT),
    row(r"\bhwrm\b.{0,60}\bError \(timeout\b|\babandoning msg\b", _FIRMWARE, _BNXT),
)

_LINK_ROWS = (
    row(r"\bmodule \d+, cable unplugged\b", _UNPLUGGED, _MLX5),
    row(r"\bport module event ?\[error\]|\binsufficient power on the PCIe slot\b", _MODULE, _MLX5),
    row(r"\bmodule \d+, .{0,40}\b(?:error|high temperature|shorted|unsupported)\b", _MODULE, _MLX5),
    row(r"\bunqualified (?:optical )?module\b", _MODULE, _NETDEV),
    row(r"\blink status definitely down\b", _LINK_DOWN, "Linux bonding"),
    row(r"(?<!SATA )\blink (?:is )?down\b", _LINK_DOWN, _NETDEV),
    row(r"\bTX timeout\b|\bNETDEV WATCHDOG\b|\btransmit queue \d+ timed out\b", _TX_TIMEOUT, _NETDEV),
)

_RDMA_ROWS = (
    row(r"\bsyndrome 0x(?P<value>[0-9a-f]+), vendor syndrome\b", _CQ_ERROR, _MLX5, _weigh_queue_syndrome),
    row(r"\b(?:respond|request)er error cqe\b|\berror cqe on cqn\b|\bdump error cqe\b", _CQE_ERROR, _MLX5),
    row(r"\bCQ (?:error|overrun|catastrophic)\b|\b(?:queue|QP|WQ) catastrophic\b", _CQ_ERROR, _RDMA),
    row(
        r"\bfailed to (?:create|alloc(?:ate)?|register|modify) (?:\w{1,8} )?(?:CQ|QP|SRQ|MR|PD|AH|CNQ)\b",
        _RDMA_UNUSABLE,
        _RDMA,
    ),
    row(r"\bcouldn't create ib_mad\b", _RDMA_UNUSABLE, "Linux RDMA core"),
    row(r"\bopcode \w{1,40} \(\d+\) error \w{1,40} \(\d+\)", _RDMA_UNUSABLE, _IONIC),
    row(
        r"\bhwrm req_type 0x(?P<value>[0-9a-f]+) seq id 0x[0-9a-f]+ error 0x",
        _COMMAND_REFUSED,
        _BNXT,
        _weigh_ring_request,
    ),
    row(
        r"\b(?P<command>[A-Z][A-Z0-9_]{2,40})\(0x[0-9a-f]+\) .{0,40}failed, status\b",
        _COMMAND_REFUSED,
        _MLX5,
        _weigh_command,
    ),
    row(r"\bib_uverbs?: ", _VERBS, "Linux RDMA core"),
)

NETWORK = Family(
    "network",
    (
        *("link", "mlx5", "mlx4", "bnxt", "ionic", "infiniband", "netdev", "tx timeout", "timed out", "hwrm"),
        *("ib_uverb", "catastrophic", "cqe", "cq ", "qp", "module"),
    ),
    (*_FIRMWARE_ROWS, *_LINK_ROWS, *_RDMA_ROWS),
)
