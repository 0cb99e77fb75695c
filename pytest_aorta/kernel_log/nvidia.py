"""Rows for NVIDIA's driver: Xid, SXid, and its messages without a number."""

from __future__ import annotations

from pytest_aorta.kernel_log.verdict import Family, Verdict, row
from pytest_aorta.kernel_log.xid import judge_sxid, judge_xid

_CATALOG = "NVIDIA Xid catalog"
_DRIVER = "NVIDIA driver text"

_BY_NUMBER = Verdict("nv_xid_app", "degrade", "none", "judged by its number")
_FALLEN = Verdict("nv_xid_bus", "fatal", "reboot", "the GPU has fallen off the bus")
_GSP_SILENT = Verdict("nv_xid_gsp", "fatal", "reset GPU", "the GPU's system processor does not answer")
_BAD_STATE = Verdict("nv_driver", "fatal", "reset GPU", "the driver says that the GPU may need a reset")
_NO_INIT = Verdict("nv_driver", "fatal", "reset GPU", "the driver could not initialise the GPU")
_NO_DRIVER = Verdict("nv_driver", "fatal", "reboot", "the driver did not load on this GPU")
_PEERMEM = Verdict("nv_driver", "degrade", "restart job", "a GPUDirect RDMA mapping went away under the job")

NVIDIA = Family(
    "nvidia",
    ("nvrm", "nvidia"),
    (
        row(
            r"\bSXid \([^)]{1,40}\): (?P<number>\d+)\b,?\s*(?P<rest>.*)", _BY_NUMBER, "Fabric Manager guide", judge_sxid
        ),
        row(r"\bXid \([^)]{1,40}\): (?P<number>\d+)\b(?P<rest>.*)", _BY_NUMBER, _CATALOG, judge_xid),
        row(r"\bfallen off the bus\b", _FALLEN, _DRIVER),
        row(r"\bGSP RPC error prints|RPC response from GPU\d{0,3} ?GSP|rpcRecvPoll timed ?out", _GSP_SILENT, _DRIVER),
        row(r"\bGSP\b.{0,80}\b(?:timeout|timed out)\b", _GSP_SILENT, _DRIVER),
        row(r"\blikely in a bad state\b|\bneeds? to be reset\b", _BAD_STATE, _DRIVER),
        row(r"\brm_?init_?adapter failed\b", _NO_INIT, _DRIVER),
        row(r"\bprobe of \S{1,40} failed with error -\d+|\bAPI mismatch\b", _NO_DRIVER, _DRIVER),
        row(r"\bnvidia-peermem\b.{0,80}\bERROR\b", _PEERMEM, _DRIVER),
    ),
)
