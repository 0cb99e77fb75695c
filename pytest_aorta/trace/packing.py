"""Packing: the columns of one rank as at most 100 KB of bytes, so that judgements can be made far from the traces."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.collectives import VERSION, KernelTimes, RankColumns, latest
from pytest_aorta.trace.intervals import Cover
from pytest_aorta.trace.links import Message

MAX_PACKED_BYTES = 100_000
_FINEST_NS, _COARSEST_NS = 1_000, 100_000
_HEADER = ("rank", "device", "world_size", "num_steps", "step_times_ms", "num_dropped", "version")
_RISING = ("start_ns", "host_wait_ns", "copy_ns", "computation_at_ns", "computation_covered_ns", "kernel_key")


def packed(columns: RankColumns) -> bytes:
    """Give columns as bytes: a compressed NumPy archive, what rises as differences."""
    header: dict[str, Any] = {name: getattr(columns, name) for name in _HEADER}
    header["messages"] = [astuple(message) for message in columns.messages]
    header["kernels_all_ns"] = columns.kernels.all_ns
    header["kernels_num_steps"] = columns.kernels.num_steps
    arrays: dict[str, NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
        "message": columns.message,
        "seq": np.diff(columns.seq, prepend=0),
        "step": np.diff(columns.step, prepend=0),
        "window": columns.window,
        "start_ns": columns.start_ns,
        "duration_ns": columns.end_ns - columns.start_ns,
        "host_wait_ns": columns.host_wait_ns.T.ravel(),
        "copy_ns": columns.copy_ns.T.ravel(),
        "computation_at_ns": columns.computation.at_ns,
        "computation_covered_ns": columns.computation.covered_ns,
        "kernel_key": columns.kernels.key,
        "kernel_total_ns": columns.kernels.total_ns,
        "kernel_count": columns.kernels.count,
        "kernel_median_ns": columns.kernels.median_ns,
    }
    arrays |= {name: np.diff(arrays[name], prepend=0) for name in _RISING}
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def unpacked(content: bytes) -> RankColumns:
    """Give the columns back.

    Raises:
        TraceError: the bytes are of another version, or no columns at all.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays["header"].tobytes())
        version = header["version"]
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise TraceError(f"columns of collectives: cannot be read ({error}); expected what packed() gave") from error
    if version != VERSION:
        raise TraceError(f"columns of collectives: version {version}, expected {VERSION}; analyze the traces again")
    arrays |= {name: np.cumsum(arrays[name]) for name in (*_RISING, "seq", "step")}
    return RankColumns(
        **{name: header[name] for name in _HEADER if name != "step_times_ms"},
        step_times_ms=tuple(header["step_times_ms"]),
        messages=tuple(Message(*message) for message in header["messages"]),
        message=arrays["message"],
        seq=arrays["seq"],
        step=arrays["step"],
        window=arrays["window"],
        start_ns=arrays["start_ns"],
        end_ns=arrays["start_ns"] + arrays["duration_ns"],
        host_wait_ns=arrays["host_wait_ns"].reshape(-1, 2).T,
        copy_ns=arrays["copy_ns"].reshape(-1, 2).T,
        computation=Cover(arrays["computation_at_ns"], arrays["computation_covered_ns"]),
        kernels=KernelTimes(
            key=arrays["kernel_key"],
            total_ns=arrays["kernel_total_ns"],
            count=arrays["kernel_count"],
            median_ns=arrays["kernel_median_ns"],
            all_ns=header["kernels_all_ns"],
            num_steps=header["kernels_num_steps"],
        ),
    )


def fitted(columns: RankColumns) -> RankColumns:
    """Make columns small enough: computation inside of collectives coarser first (by 1 µs to 64 µs), then fewer steps.

    What is left out is the beginning, because windows are matched from their ends.
    """
    exact, tolerance_ns = columns.computation, _FINEST_NS
    while (size_bytes := len(packed(columns))) > MAX_PACKED_BYTES:
        if tolerance_ns < _COARSEST_NS:
            columns = replace(columns, computation=exact.coarser(tolerance_ns))
            tolerance_ns *= 4
        else:
            columns = latest(columns, int(columns.num_collectives * 0.9 * MAX_PACKED_BYTES / size_bytes))
    return columns
