"""The pytest plugin's options, and whether it acts: loaded in every pytest run of its environment, so kept light."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

Origin = Literal["--aorta-config", "AORTA_CONFIG", "ini aorta_config", "--aorta-run", "-k"]

STAGE_TESTS = frozenset({
    "test_launch_container", "test_clone_aorta", "test_setup_rdma", "test_build_rccl", "test_run_benchmark",
    "test_collect_traces", "test_analyze", "test_parse_results", "test_validate_thresholds", "test_generate_report",
    "test_teardown",
})  # fmt: skip
# Stages that work on files alone: with -k and a configuration they judge the last run by it.
REJUDGING_TESTS = frozenset({"test_parse_results", "test_validate_thresholds", "test_generate_report"})
LAST_RUN = "last_run.json"
GIVEN_A_VALUE = {
    "aorta_config": "--aorta-config",
    "aorta_run": "--aorta-run",
    "aorta_cluster": "--aorta-cluster",
    "aorta_thresholds": "--aorta-thresholds",
    "aorta_set": "--aorta-set",
    "aorta_output": "--aorta-output",
    "aorta_report_dir": "--aorta-report-dir",
}
NEEDS_A_RUN = {
    "aorta_cluster": "--aorta-cluster",
    "aorta_thresholds": "--aorta-thresholds",
    "aorta_set": "--aorta-set",
    "aorta_suite": "--aorta-suite",
    "aorta_output": "--aorta-output",
    "aorta_dry_run": "--aorta-dry-run",
}


@dataclass(frozen=True, slots=True)
class Activation:
    """Why the plugin acts: the configuration file (None: a stored run's own), the run to take up, and who said so."""

    config_file: Path | None
    run: str | None
    origin: Origin


class _StageWithoutARun:
    """Says what is missing when -k names a stage, no run is known here, and so nothing was there to do."""

    def __init__(self, report_dir: str) -> None:
        self._report_dir = report_dir

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Say so, in one line."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            missing = f"no {self._report_dir}/{LAST_RUN} here"
            terminalreporter.write_line(f"aorta: {missing}; give --aorta-config FILE or start in the folder of the run")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group "aorta"."""
    group = parser.getgroup("aorta", "GPU cluster validation")
    add = group.addoption
    add(
        "--aorta-config", metavar="FILE", help="The run to perform (JSON or YAML); also AORTA_CONFIG, ini aorta_config."
    )
    add("--aorta-cluster", metavar="FILE", help="Cluster file; replaces the config's `cluster`.")
    add("--aorta-thresholds", metavar="FILE", help="Threshold file; replaces `expected_results`, gates stay.")
    add("--aorta-set", metavar="KEY=VALUE", action="append", default=[], help="Override a config value; repeatable.")
    add("--aorta-suite", choices=("single", "distributed"), help="Suite to run (default: by node count).")
    add("--aorta-run", metavar="RUN", help="Take up an earlier run: id, unique prefix, folder, or `last`.")
    add("--aorta-output", metavar="DIR", help="Where run folders go; replaces the config's output_dir.")
    add(
        "--aorta-report-dir", metavar="DIR", default="aorta_reports", help="Where HTML, JUnit and log go (%(default)s)."
    )
    add("--aorta-no-reports", action="store_true", help="Write no HTML, JUnit or log.")
    add("--aorta-dry-run", action="store_true", help="Print what would be run, stage by stage; connect to nothing.")
    parser.addini("aorta_config", "The run to perform when no path is given; relative to this file.", default="")


def activation(config: pytest.Config) -> Activation | None:
    """Tell whether and why the plugin acts in this pytest run."""
    option = config.option
    for name, flag in GIVEN_A_VALUE.items():
        if "" in (given if isinstance(given := getattr(option, name), list) else [given]):
            raise pytest.UsageError(f"{flag} is empty; give it a value, or leave it out")
    run: str | None = option.aorta_run
    no_path = config.args_source is not pytest.Config.ArgsSource.ARGS
    has_last = no_path and os.path.isfile(_started_in(config) / option.aorta_report_dir / LAST_RUN)  # noqa: PTH113  (takes any name)
    if option.aorta_config:
        if no_path and option.keyword in REJUDGING_TESTS and not run:
            if not has_last:
                raise pytest.UsageError(
                    f"-k {option.keyword} judges a stored run, and {option.aorta_report_dir}/{LAST_RUN} names none; "
                    "run without -k first, or name a run with --aorta-run"
                )
            run = "last"
        return Activation(_started_in(config) / option.aorta_config, run, "--aorta-config")
    if run:
        return Activation(None, run, "--aorta-run")
    if has_last and option.keyword in STAGE_TESTS:
        return Activation(None, "last", "-k")
    if no_path and not config.getini("testpaths"):
        if given := os.environ.get("AORTA_CONFIG"):
            return Activation(_started_in(config) / given, None, "AORTA_CONFIG")
        if (ini := config.getini("aorta_config")) and config.inipath:
            return Activation(config.inipath.parent / ini, None, "ini aorta_config")
    unused = [flag for name, flag in NEEDS_A_RUN.items() if getattr(option, name)]
    if unused:
        raise pytest.UsageError(f"{', '.join(unused)} acts only with --aorta-config FILE or --aorta-run RUN; give one")
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Print the plan and end, if that is all that was asked for."""
    if not config.option.aorta_dry_run:
        return None
    return int(_room("pytest_aorta.suite.dry_run").dry_run(config, activation(config)))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the rest of the plugin when it has something to do."""
    config.addinivalue_line("markers", "dependency(name, depends, scope): what a test depends on (pytest-dependency)")
    found = activation(config)
    if found is not None and not hasattr(config, "workerinput"):
        _room("pytest_aorta.session").begin(config, found)
    elif found is None and config.option.keyword in STAGE_TESTS:
        config.pluginmanager.register(_StageWithoutARun(config.option.aorta_report_dir), "aorta-hint")


def _started_in(config: pytest.Config) -> Path:
    return config.invocation_params.dir


def _room(name: str) -> Any:
    return importlib.import_module(name)
