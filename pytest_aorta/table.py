"""STAGES: the validation, one row a stage, in order. To add a stage: write its function, add its row."""

from __future__ import annotations

from typing import Final

from pytest_aorta.run.gating import AfterFailure, Stage, Suite, check_table
from pytest_aorta.run.products import (
    Analysis,
    Artifacts,
    Containers,
    Execution,
    Fabric,
    Rccl,
    Removed,
    Report,
    Result,
    Verdicts,
    WorkloadTree,
)
from pytest_aorta.stages import (
    analyze,
    benchmark,
    clone,
    collect,
    launch,
    parse,
    rccl,
    rdma,
    report,
    teardown,
    thresholds,
)

SKIP, RECOVER, ALWAYS = AfterFailure.SKIP, AfterFailure.RECOVER, AfterFailure.ALWAYS

# fmt: off
STAGES: Final = check_table((
    Stage(test="test_launch_container", label="container_launch", does=launch.launch_containers, plan=launch.plan,
          needs=(), gives=Containers, after_failure=SKIP),
    Stage(test="test_clone_aorta", label="clone", does=clone.clone_workload, plan=clone.plan,
          needs=(Containers,), gives=WorkloadTree, after_failure=SKIP),
    Stage(test="test_setup_rdma", label="rdma_setup", does=rdma.set_up_rdma, plan=rdma.plan,
          needs=(Containers, WorkloadTree), gives=Fabric, after_failure=SKIP,
          suites=("distributed",), without=rdma.one_node),
    Stage(test="test_build_rccl", label="rccl_build", does=rccl.build_rccl, plan=rccl.plan,
          needs=(Containers, WorkloadTree, Fabric), gives=Rccl, after_failure=SKIP, without=rccl.build_is_skipped),
    Stage(test="test_run_benchmark", label="benchmark", does=benchmark.run_benchmark, plan=benchmark.plan,
          needs=(Containers, WorkloadTree, Fabric, Rccl), gives=Execution, after_failure=SKIP),
    Stage(test="test_collect_traces", label="collect_traces", does=collect.collect_traces, plan=collect.plan,
          needs=(Execution,), gives=Artifacts, after_failure=RECOVER),
    Stage(test="test_analyze", label="analysis", does=analyze.analyze, plan=analyze.plan,
          needs=(Execution, Artifacts), gives=Analysis, after_failure=SKIP, without=analyze.analysis_is_off),
    Stage(test="test_parse_results", label="parse", does=parse.parse_results, plan=parse.plan,
          needs=(Artifacts,), gives=Result, after_failure=RECOVER),
    Stage(test="test_validate_thresholds", label="thresholds", does=thresholds.validate_thresholds,
          plan=thresholds.plan, needs=(Result,), gives=Verdicts, after_failure=SKIP, without=thresholds.not_enforced),
    Stage(test="test_generate_report", label="report", does=report.generate_report, plan=report.plan,
          needs=(Result,), gives=Report, after_failure=RECOVER, absent=report.ABSENT),
    Stage(test="test_teardown", label="teardown", does=teardown.tear_down, plan=teardown.plan,
          needs=(), gives=Removed, after_failure=ALWAYS),
))
# fmt: on


def stages_of(suite: Suite) -> tuple[Stage, ...]:
    """Give the rows of a suite, in order."""
    return tuple(stage for stage in STAGES if suite in stage.suites)
