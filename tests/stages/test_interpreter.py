"""The Python that starts the workload: what it tells of its torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pytest_aorta.run.products import Accelerator
from pytest_aorta.stages.interpreter import PROBE, built_without


def test_the_probe_tells_the_builds_version_without_importing_it() -> None:
    torch = pytest.importorskip("torch")
    checked = PROBE + "assert 'torch' not in sys.modules\n"
    found = json.loads(subprocess.run([sys.executable, "-c", checked], capture_output=True, check=True).stdout)

    assert found["torch"] == torch.__version__
    assert (found["cuda"], found["rocm"]) == (torch.version.cuda, torch.version.hip)
    assert bool(built_without("cuda", found)) is (torch.version.cuda is None)
    assert bool(built_without("rocm", found)) is (torch.version.hip is None)


@pytest.mark.parametrize(
    ("accelerator", "rocm", "cuda", "said"),
    [
        ("rocm", None, None, "torch 2.11, built for the CPU only, and accelerator is rocm; install one for rocm there"),
        ("rocm", None, "13.0", "torch 2.11, built for cuda, and accelerator is rocm; install one for rocm there"),
        ("cuda", "6.4", None, "torch 2.11, built for rocm, and accelerator is cuda; install one for cuda there"),
        ("cuda", None, "13.0", ""),
        ("cpu", None, None, ""),
        ("rocm", "", "", ""),  # it does not tell
    ],
)
def test_a_torch_that_was_built_for_something_else(
    accelerator: Accelerator, rocm: str | None, cuda: str | None, said: str
) -> None:
    told = built_without(accelerator, {"torch": "2.11", "rocm": rocm, "cuda": cuda})
    assert told.startswith(said)
    assert bool(told) is bool(said)
