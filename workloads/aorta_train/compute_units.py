"""`tuning.max_sms`: how many compute units a matrix product may occupy, so that others find some free.

CUDA: cuBLASLt takes a target per product, which torch sets from what is to be left free. ROCm: stream-K kernels read
TENSILE_STREAMK_MAX_CUS when the library loads (`environment.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from aorta_train.refusal import Refusal


def cap_compute_units(max_units: int | None, kind: str, device: torch.device) -> None:
    """Cap the matrix products that are launched from now on.

    Raises:
        Refusal: the device has fewer units, or this torch cannot cap.
    """
    if max_units is None:
        return
    num_units = torch.cuda.get_device_properties(device).multi_processor_count
    if max_units > num_units:
        raise Refusal(f"tuning.max_sms: is {max_units}, but the device has {num_units} compute units; lower it")
    if kind == "rocm":
        return
    leave_free: Any = getattr(torch._C, "_set_sm_carveout_experimental", None)  # noqa: SLF001
    if leave_free is None:
        raise Refusal(
            f"tuning.max_sms: torch {torch.__version__} cannot cap matrix products on CUDA; take a newer one or leave "
            "it out"
        )
    torch.backends.cuda.preferred_blas_library("cublaslt")  # type: ignore[no-untyped-call, unused-ignore]
    leave_free(num_units - max_units)
