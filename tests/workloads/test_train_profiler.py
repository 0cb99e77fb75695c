from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

from aorta_train.job import Job
from aorta_train.loading import load
from aorta_train.profiler import Recorder

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CUDA is not available")]


@pytest.mark.parametrize(("force", "ending"), [("false", ".pt.trace.json"), ("true", "named.json")])
def test_on_rocm_the_file_name_is_used_when_forced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, force: str, ending: str
) -> None:
    config = tmp_path / "options.yaml"
    config.write_text("profiling: {enabled: true, wait: 0, warmup: 1, active: 1, trace_filename: named.json}")
    options = load(config, [f"profiling.force_chrome_trace={force}"])
    job = Job(rank=0, world_size=1, local_rank=0, local_world_size=1, launched=False)
    with Recorder(options, job, "rocm", tmp_path) as recorder:
        for _ in range(2):
            recorder.end_step()
    (trace,) = (tmp_path / "torch_profiler/rank0").iterdir()
    assert trace.name.endswith(ending)
    assert ("profiling.trace_filename is not used on ROCm" in caplog.text) == (force == "false")
