"""The device's peak rate of matrix products, measured or given: what utilisation is a share of."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

import torch

from aorta_train.clock import clock_of
from aorta_train.options import Options
from aorta_train.precision import low_precision

GPU_WIDTH = 8192
CPU_WIDTH = 256
NUM_WARMUP = 3
NUM_MEASURED = 10


@dataclass(frozen=True)
class Peak:
    """A rate in 10^12 operations a second, and where it comes from: measured, given or null."""

    tflops: float | None = None
    source: str | None = None


def peak_of(options: Options, device: torch.device) -> Peak:
    """Measure the peak or take the given one, as the configuration says."""
    if options.benchmark.measure_peak:
        return Peak(measured_tflops(low_precision(options.training) or torch.float32, device), "measured")
    given = options.benchmark.peak_tflops
    return Peak() if given is None else Peak(given, "given")


def measured_tflops(dtype: torch.dtype, device: torch.device) -> float:
    """Time products of two square matrices, each after the other, and take the median.

    Source: 2 N^3 operations a product; on the GPU N is large enough to fill it, on the CPU small enough not to matter.
    """
    width = CPU_WIDTH if device.type == "cpu" else GPU_WIDTH
    left, right = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))
    out = torch.empty(width, width, dtype=dtype, device=device)
    clock = clock_of(device)
    marks = []
    for _ in range(NUM_WARMUP + NUM_MEASURED + 1):
        marks.append(clock.mark())
        torch.mm(left, right, out=out)
    if device.type != "cpu":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)  # these matrices are none of the training's
    spans = [clock.elapsed_ms(begin, end) for begin, end in itertools.pairwise(marks)]
    return 2 * width**3 / statistics.median(spans[NUM_WARMUP:]) / 1e9
