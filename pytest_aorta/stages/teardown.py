"""test_teardown: take away whatever the run made, and say what could not be."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_aorta.checks import Check
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.causes import NOT_DONE
from pytest_aorta.run.context import Problem, RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Removed
from pytest_aorta.stages.container import GIVEN_BACK
from pytest_aorta.stages.examine import look_again


def tear_down(run: RunContext) -> Removed:
    """Look again at hosts that failed, then undo everything, newest first; each is tried whatever became of others."""
    look_again(run)
    done, problems = run.close()
    for what in done:
        log.info("teardown: %s", what)
    checks = tuple(
        Check(
            label="[teardown]",
            state="failed",
            fault="rig",
            subtest=False,
            reason=problem.said,
            host=problem.host,
            next_step=_next_step(problem, run.folder.run_id),
        )
        for problem in problems
    )
    return Removed(what=tuple(done), checks=checks)


def _next_step(problem: Problem, run_id: str) -> str:
    if problem.what == GIVEN_BACK:
        return "give the files to their user by hand; does a file server refuse root, or is a file protected (lsattr)?"
    answers = "its engine" if NOT_DONE.search(problem.said) else "the host"
    return f"run `aorta clean {run_id}` when {answers} answers again"


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be taken away."""
    for host in settings.cluster.hosts:
        yield Step(host.name, "end what still runs, remove <work_dir>/<run-id>, let the node program leave")
