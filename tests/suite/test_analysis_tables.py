"""The tables of kernels and of matrix products that a run writes of its own traces."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from tests.trace import synthetic
from tests.trace.synthetic import kernel


def table(rig: Any, name: str) -> list[tuple[str, ...]]:
    with Path(rig.folder / "analysis" / name).open(encoding="utf-8", newline="") as stream:
        return [tuple(row) for row in csv.reader(stream)]


def test_the_tables_hold_every_kernel_and_every_matrix_product(rig: Any) -> None:
    elementwise = [kernel(100 * number, 50, f"elementwise_{number}") for number in range(10)]
    products = [kernel(2000, 40, "Cijk_Alik_Bljk"), kernel(2100, 30, "my_gemm"), kernel(2200, 40, "Cijk_Alik_Bljk")]
    made = rig.path / "made"
    synthetic.write(
        made / "rank0" / "of.my.profiler", synthetic.document([*elementwise, *products], rank=0, world_size=1)
    )
    copy = f"import shutil; shutil.copytree({str(made)!r}, 'out/torch_profiler', copy_function=shutil.copyfile)"
    rig.configure(
        workload={"command": [sys.executable, "-c", copy], "traces": "out/torch_profiler/*/*"},
        gpus_per_node=1,
        analysis={"enable_tracelens": True, "enable_gemm_analysis": True},
    )

    rig.run(code=0)

    header, *gemms = table(rig, "gemms.csv")
    assert header == ("rank", "device", "kernel", "num_calls", "total_us")
    assert gemms == [("0", "0", "Cijk_Alik_Bljk", "2", "80.0"), ("0", "0", "my_gemm", "1", "30.0")]
    assert len(table(rig, "kernels.csv")) == 1 + 12
