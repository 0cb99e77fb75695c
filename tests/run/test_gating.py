"""Gating: lifecycle.md 2.2, with stages that do what the test tells them to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_aorta.checks import Check
from pytest_aorta.config.load import load
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.bare import Bare
from pytest_aorta.errors import CommandFailed, Defect, FleetError, StageError
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.folder import RunFolder, new_run_id
from pytest_aorta.run.gating import AfterFailure, NotNeeded, Pipeline, Stage, Step, check_table
from pytest_aorta.run.interruption import Interrupted, Interruption
from pytest_aorta.run.products import Artifacts, Execution, Fabric, Product, Removed, Report, Result, Verdicts
from pytest_aorta.run.record import RecordKeeper, read
from pytest_aorta.table import STAGES, stages_of

CONFIG = Path(__file__).parents[2] / "configs" / "local_cpu.json"


@pytest.fixture
def run(tmp_path: Path) -> RunContext:
    settings = load(CONFIG, output=tmp_path / "results")
    folder = RunFolder.create(settings.output_dir, new_run_id())
    keeper = RecordKeeper.begin(folder, suite="single", plan=(), config=settings.document(), inputs={}, environment={})
    return RunContext(
        settings=settings,
        folder=folder,
        record=keeper,
        fleet=Fleet({}, lease_seconds=5),
        engine=Bare(),
        interruption=Interruption(),
    )


EXECUTION = Execution(
    started=True, status="completed", roots={}, work_dirs={}, floors_ns={}, accelerator="cpu", exit_codes={"a": 0}
)
ARTIFACTS = Artifacts(layout="single", torch_traces="traces", accelerator="cpu")
RESULT = Result(source="x", num_profiled_steps=1, ranks=())
FAILED = Check(label="[execution] (phase=benchmark)", state="failed", reason="a: rank 1 exited 13", subtest=False)


def nothing(settings: Settings) -> Iterator[Step]:
    return iter(())


class Script:
    """Stage functions that give or raise what the test wrote down, and remember that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.does: dict[str, Product | BaseException | Callable[[RunContext], Product]] = {
            "launch": Fabric(),
            "benchmark": EXECUTION,
            "collect": ARTIFACTS,
            "parse": RESULT,
            "thresholds": Verdicts(enforced=True),
            "report": Report(files=()),
            "teardown": Removed(what=()),
        }

    def _do(self, name: str, run: RunContext) -> Product:
        self.ran.append(name)
        what = self.does[name]
        if isinstance(what, BaseException):
            raise what
        return what if isinstance(what, Product) else what(run)

    def table(self) -> tuple[Stage, ...]:
        def launch(run: RunContext) -> Fabric:
            return self._do("launch", run)  # type: ignore[return-value]

        def benchmark(run: RunContext, fabric: Fabric) -> Execution:
            return self._do("benchmark", run)  # type: ignore[return-value]

        def collect(run: RunContext, execution: Execution) -> Artifacts:
            return self._do("collect", run)  # type: ignore[return-value]

        def parse(run: RunContext, artifacts: Artifacts) -> Result:
            return self._do("parse", run)  # type: ignore[return-value]

        def judge(run: RunContext, result: Result) -> Verdicts:
            return self._do("thresholds", run)  # type: ignore[return-value]

        def report(run: RunContext, result: Result) -> Report:
            return self._do("report", run)  # type: ignore[return-value]

        def teardown(run: RunContext) -> Removed:
            return self._do("teardown", run)  # type: ignore[return-value]

        skip, recover, always = AfterFailure.SKIP, AfterFailure.RECOVER, AfterFailure.ALWAYS
        rows: list[tuple[str, Callable[..., Product], tuple[type[Product], ...], type[Product], AfterFailure]] = [
            ("launch", launch, (), Fabric, skip),
            ("benchmark", benchmark, (Fabric,), Execution, skip),
            ("collect", collect, (Execution,), Artifacts, recover),
            ("parse", parse, (Artifacts,), Result, recover),
            ("thresholds", judge, (Result,), Verdicts, skip),
            ("report", report, (Result,), Report, recover),
            ("teardown", teardown, (), Removed, always),
        ]
        return tuple(
            Stage(
                test=name,
                label=name,
                does=does,
                needs=needs,
                gives=gives,
                after_failure=after,
                plan=nothing,
                absent="No parsed benchmark result available" if name == "report" else None,
            )
            for name, does, needs, gives, after in rows
        )


def outcomes(run: RunContext, script: Script, *only: str) -> dict[str, str]:
    table = script.table()
    pipeline = Pipeline(run, table)
    for stage in table:
        if not only or stage.test in only:
            pipeline.perform(stage)
    return {name: outcome.outcome[0].upper() for name, outcome in pipeline.outcomes.items()}


def reasons(run: RunContext, script: Script, *only: str) -> dict[str, str]:
    table = script.table()
    pipeline = Pipeline(run, table)
    for stage in table:
        if not only or stage.test in only:
            pipeline.perform(stage)
    return {name: outcome.reason for name, outcome in pipeline.outcomes.items()}


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({}, "PPPPPPP"),
        ({"launch": CommandFailed("a", "no")}, "FSSSSSP"),
        # An Execution exists from just before the launch: what survived is still collected, parsed and reported.
        ({"benchmark": EXECUTION.model_copy(update={"checks": (FAILED,)})}, "PFPPSPP"),
        # Launch never attempted: nothing to collect.
        ({"benchmark": StageError("no port")}, "PFSSSSP"),
        # One host gave traces, another did not.
        ({"collect": ARTIFACTS.model_copy(update={"checks": (FAILED,)})}, "PPFPSPP"),
        # No host gave any.
        ({"collect": ARTIFACTS.model_copy(update={"checks": (FAILED,), "torch_traces": None})}, "PPFSSSP"),
        ({"parse": StageError("unreadable")}, "PPPFSSP"),
        ({"parse": RESULT.model_copy(update={"checks": (FAILED,)})}, "PPPFSPP"),
        ({"thresholds": Verdicts(enforced=True, checks=(FAILED,))}, "PPPPFPP"),
        ({"report": StageError("disk")}, "PPPPPFP"),
        ({"teardown": Removed(what=(), checks=(FAILED,))}, "PPPPPPF"),
    ],
)
def test_what_still_runs_after_a_failure(
    run: RunContext, broken: dict[str, Product | BaseException], expected: str
) -> None:
    script = Script()
    script.does.update(broken)

    assert "".join(outcomes(run, script).values()) == expected


def test_launch_exception_after_the_execution_was_given_still_permits_collection(run: RunContext) -> None:
    def launch_then_break(run: RunContext) -> Product:
        run.give(EXECUTION)
        raise CommandFailed("a", "bash: not found")

    script = Script()
    script.does["benchmark"] = launch_then_break

    assert "".join(outcomes(run, script).values()) == "PFPPSPP"


def test_skip_reason_names_the_root_cause_and_not_the_last_skip(run: RunContext) -> None:
    script = Script()
    script.does["launch"] = CommandFailed("a", "no space left")

    found = reasons(run, script)

    assert found["launch"] == "could not measure: a: no space left"
    assert found["report"] == "a prior lifecycle stage failed: launch: a: no space left"


def test_hosts_of_an_error_are_checks_on_the_rigs_account(run: RunContext) -> None:
    script = Script()
    script.does["launch"] = FleetError({host: CommandFailed(host, "no space left") for host in ("b", "c")})

    outcomes(run, script)

    checks = read(run.folder).stages["launch"].checks
    assert [(check.host, check.reason, check.fault, check.subtest) for check in checks] == [
        ("b", "b: no space left", "rig", False),
        ("c", "c: no space left", "rig", False),
    ]


def test_bad_measurement_and_broken_rig_are_worded_apart(run: RunContext) -> None:
    script = Script()
    script.does["benchmark"] = EXECUTION.model_copy(update={"checks": (FAILED,)})
    assert reasons(run, script)["benchmark"] == "measured, bad: a: rank 1 exited 13"

    rig = FAILED.model_copy(update={"fault": "rig"})
    script.does["benchmark"] = EXECUTION.model_copy(update={"checks": (rig,)})
    assert reasons(run, script)["benchmark"].startswith("could not measure: ")


def test_deselected_stage_is_no_failure_but_who_needs_it_says_so(run: RunContext) -> None:
    found = reasons(run, Script(), "launch", "collect", "teardown")

    assert found["collect"] == (
        "could not measure: it needs what benchmark gives, which was not selected; select it too, or drop -k"
    )
    assert found["teardown"] == ""


def test_report_without_a_result_skips_with_the_documented_reason(run: RunContext) -> None:
    assert reasons(run, Script(), "report") == {"report": "No parsed benchmark result available"}


def test_prior_failure_comes_before_the_stages_own_skip(run: RunContext) -> None:
    def broken(run: RunContext) -> Fabric:
        raise CommandFailed("a", "down")

    def build(run: RunContext, fabric: Fabric) -> Verdicts:
        raise AssertionError

    rule = NotNeeded("skip_rccl_build=true", Verdicts(enforced=False))
    table = (
        Stage(test="launch", label="", does=broken, gives=Fabric, plan=nothing),
        Stage(
            test="build",
            label="",
            does=build,
            needs=(Fabric,),
            gives=Verdicts,
            without=lambda settings: rule,
            plan=nothing,
        ),
    )
    pipeline = Pipeline(run, table)

    assert [pipeline.perform(stage).reason for stage in table][1].startswith("a prior lifecycle stage failed: ")


def test_stand_in_feeds_later_stages(run: RunContext) -> None:
    seen: list[Product] = []

    def build(run: RunContext) -> Fabric:
        raise AssertionError

    def use(run: RunContext, fabric: Fabric) -> Verdicts:
        seen.append(fabric)
        return Verdicts(enforced=True)

    stand_in = Fabric(devices={"a": ()})
    table = check_table(
        (
            Stage(
                test="build",
                label="",
                does=build,
                gives=Fabric,
                without=lambda settings: NotNeeded("not needed", stand_in),
                plan=nothing,
            ),
            Stage(test="use", label="", does=use, needs=(Fabric,), gives=Verdicts, plan=nothing),
        )
    )
    pipeline = Pipeline(run, table)

    assert [pipeline.perform(stage).outcome for stage in table] == ["skipped", "passed"]
    assert seen == [stand_in]


def test_defect_of_ours_fails_the_stage_and_lets_the_teardown_run(run: RunContext) -> None:
    script = Script()
    script.does["parse"] = KeyError("surprise")

    found = reasons(run, script)

    assert "defect of pytest-aorta" in found["parse"]
    assert script.ran[-1] == "teardown"


def test_defect_met_while_a_host_was_asked_is_no_fault_of_that_host(run: RunContext) -> None:
    script = Script()
    by_host = {"n1": Defect("n1", "asking", TypeError("surprise")), "n2": CommandFailed("n2", "it ended with 1")}
    script.does["parse"] = FleetError(by_host)

    found = reasons(run, script)

    assert "asking: TypeError: surprise; this is a defect of pytest-aorta" in found["parse"]
    assert [check.host for check in read(run.folder).stages["parse"].checks] == ["n2"]


def test_interruption_is_recorded_and_gates_like_a_failure(run: RunContext) -> None:
    script = Script()
    script.does["benchmark"] = Interrupted("SIGTERM")

    assert "".join(outcomes(run, script).values()) == "PISSSSP"
    assert read(run.folder).stages["benchmark"].reason.startswith("interrupted by SIGTERM after ")


def test_full_disk_fails_the_stage_with_a_sentence(run: RunContext) -> None:
    script = Script()
    script.does["collect"] = OSError(28, "No space left on device", "/data/x")

    assert reasons(run, script)["collect"].startswith("could not measure: /data/x: No space left on device; ")


def test_record_holds_outcomes_and_stored_products(run: RunContext) -> None:
    outcomes(run, Script())
    record = read(run.folder)

    assert record.stages["benchmark"].outcome == "passed"
    assert record.product(Execution) == EXECUTION
    assert record.product(Result) == RESULT


def test_table_is_refused_when_a_row_cannot_work() -> None:
    def takes_too_much(run: RunContext, result: Result) -> Fabric:
        raise AssertionError

    def fine(run: RunContext) -> Fabric:
        raise AssertionError

    with pytest.raises(TypeError, match="its row says"):
        check_table((Stage(test="a", label="", does=takes_too_much, gives=Fabric, plan=nothing),))
    with pytest.raises(TypeError, match="its row gives Result"):
        check_table((Stage(test="a", label="", does=fine, gives=Result, plan=nothing),))
    with pytest.raises(TypeError, match="no earlier row gives Result"):
        check_table((Stage(test="a", label="", does=takes_too_much, needs=(Result,), gives=Fabric, plan=nothing),))
    with pytest.raises(TypeError, match="two rows"):
        check_table((Stage(test="a", label="", does=fine, gives=Fabric, plan=nothing),) * 2)


def test_the_real_table_has_the_published_stages_in_order() -> None:
    assert [stage.test for stage in STAGES] == [
        "test_launch_container",
        "test_clone_aorta",
        "test_setup_rdma",
        "test_build_rccl",
        "test_run_benchmark",
        "test_collect_traces",
        "test_analyze",
        "test_parse_results",
        "test_validate_thresholds",
        "test_generate_report",
        "test_teardown",
    ]
    assert [s.test for s in STAGES if s not in stages_of("single")] == ["test_setup_rdma"]
    assert {stage.test for stage in STAGES if stage.rejudges} == {
        "test_collect_traces",
        "test_analyze",
        "test_parse_results",
        "test_validate_thresholds",
        "test_generate_report",
    }
