"""What pytest collects, from any project and in what order."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_aorta
from pytest_aorta.table import stages_of

SINGLE = [f"aorta_single::{stage.test}" for stage in stages_of("single")]
DISTRIBUTED = [f"aorta_distributed::{stage.test}" for stage in stages_of("distributed")]
TWO_NODES = {
    "username": "me", "priv_key_file": "/keys/id", "transport": "ssh",
    "node_dict": {"a": {"vpc_ip": "10.0.0.1"}, "b": {"vpc_ip": "10.0.0.2"}},
}  # fmt: skip


def collected(output: str) -> list[str]:
    return [line for line in output.splitlines() if "::" in line]


def test_only_the_suite_is_collected_without_a_path(rig: Any) -> None:
    rig.configure()
    (rig.path / "test_mine.py").write_text("def test_mine(): pass\n", "utf-8")

    assert collected(rig.run("--collect-only", "-q", code=0)) == SINGLE
    assert not (rig.path / "aorta_results").exists()
    assert not rig.reports.exists()


def test_two_nodes_are_the_distributed_suite(rig: Any) -> None:
    rig.configure(cluster=TWO_NODES)

    assert collected(rig.run("--collect-only", "-q", code=0)) == DISTRIBUTED
    assert "single" in rig.run("--collect-only", "-q", "--aorta-suite=single", code=4)


def test_paths_come_after_the_stages_and_may_depend_on_them(rig: Any) -> None:
    rig.configure()
    (rig.path / "test_mine.py").write_text(
        "import pytest\n"
        "@pytest.mark.dependency(depends=['test_run_benchmark'], scope='session')\n"
        "def test_after(): pass\n"
        "@pytest.mark.dependency(depends=['test_build_rccl'], scope='session')\n"
        "def test_needs_a_build(): pass\n"
        "def test_fails(): assert False\n",
        "utf-8",
    )

    output = rig.run("-rA", "-v", "test_mine.py", code=1)

    assert output.index("test_teardown PASSED") < output.index("test_mine.py::test_after PASSED")
    assert "test_mine.py::test_needs_a_build SKIPPED" in output
    assert "\nother tests: 1 failed beside the stages; the verdict does not speak of them\n" in output
    assert rig.verdict()["verdict"] == "passed"


HOSTILE = {
    "autouse fixture that raises": (
        "conftest.py",
        (
            "import pytest\n@pytest.fixture(autouse=True)\ndef boom():\n    raise RuntimeError('not yours')\n"
            "@pytest.fixture\ndef subtests():\n    raise RuntimeError('nor this')\n"
            "@pytest.fixture\ndef aorta():\n    raise RuntimeError('nor this')\n"
        ),
    ),
    "filterwarnings = error": (
        "pytest.ini",
        "[pytest]\nfilterwarnings = error\naddopts = --strict-markers -p no:cacheprovider\n",
    ),
    "odd addopts": ("pytest.ini", "[pytest]\naddopts = --doctest-modules --import-mode=importlib -vv --tb=no -s\n"),
    "collection narrowed": ("pytest.ini", "[pytest]\npython_files = nothing\npython_functions = nope\ntestpaths = x\n"),
    "warnings as errors": ("pytest.ini", "[pytest]\naddopts = -W error --import-mode=append\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_projects_own_settings_change_nothing(rig: Any, case: str) -> None:
    rig.configure()
    name, text = HOSTILE[case]
    (rig.path / name).write_text(text, "utf-8")

    rig.run(code=0)

    assert rig.letters() == "PPSPPSPPPP"


def test_package_inside_a_virtual_environment_below_the_root(rig: Any) -> None:
    rig.configure()
    (rig.path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    site = rig.path / ".venv" / "lib"
    shutil.copytree(Path(pytest_aorta.__file__).parent, site / "pytest_aorta")
    (rig.path / ".venv" / "pyvenv.cfg").write_text("home = /nowhere\n", "utf-8")
    environment = {**rig.environment(), "PYTHONPATH": str(site)}
    rig.environment = lambda: environment

    assert collected(rig.run("--collect-only", "-q", code=0)) == SINGLE


def test_order_survives_a_plugin_that_shuffles(rig: Any) -> None:
    rig.configure()
    (rig.path / "shuffler.py").write_text(
        "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_modifyitems(items): items.reverse()\n",
        "utf-8",
    )

    rig.run("-p", "shuffler", code=0)

    assert rig.letters() == "PPSPPSPPPP"


def test_distribution_is_refused(rig: Any) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    rig.configure()

    output = rig.run("-n", "2", code=4)

    assert "cannot be distributed" in output
    assert not (rig.path / "aorta_results").exists()


@pytest.mark.parametrize(("option", "named"), [("--lf", "--last-failed"), ("--sw", "--stepwise")])
def test_choosing_stages_by_the_last_run_is_refused(rig: Any, option: str, named: str) -> None:
    rig.configure()

    output = rig.run(option, "-p", "cacheprovider", code=4)

    assert f"{named} leaves out stages that the others need" in output
    assert not (rig.path / "aorta_results").exists()


@pytest.mark.parametrize("how", ["ini", "env"])
def test_ini_and_environment_act_only_without_a_path(rig: Any, how: str) -> None:
    rig.configure()
    (rig.path / "test_mine.py").write_text("def test_mine(): pass\n", "utf-8")
    ini = "aorta_config = config.json\n" if how == "ini" else ""
    (rig.path / "pytest.ini").write_text(f"[pytest]\n{ini}", "utf-8")
    if how == "env":
        environment = {**rig.environment(), "AORTA_CONFIG": "config.json"}
        rig.environment = lambda: environment

    assert collected(rig.pytest("--collect-only", "-q", code=0)) == SINGLE
    assert "from ini aorta_config" in rig.pytest("--collect-only") or how == "env"
    assert collected(rig.pytest("--collect-only", "-q", "test_mine.py", code=0)) == ["test_mine.py::test_mine"]
    (rig.path / "pytest.ini").write_text(f"[pytest]\ntestpaths = test_mine.py\n{ini}", "utf-8")
    assert collected(rig.pytest("--collect-only", "-q", code=0)) == ["test_mine.py::test_mine"]


def test_deselected_stage_is_not_a_failure(rig: Any) -> None:
    rig.configure()

    output = rig.run("-k", "not test_generate_report", code=0)

    assert "only 9 of 10 stages were selected" in output
    assert "test_generate_report" not in rig.outcomes()


def test_without_pytest_html_and_without_reports(rig: Any) -> None:
    rig.configure()

    rig.run("-p", "no:html", "--aorta-no-reports", code=0)

    assert rig.letters() == "PPSPPSPPPP"
    assert not rig.reports.exists()


def test_without_a_terminal(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 1.0})

    rig.run("-p", "no:terminal", code=1)

    assert rig.letters() == "PPSPPSPFPP"


def test_given_report_files_win(rig: Any) -> None:
    rig.configure()

    rig.run("--html=mine.html", "--junitxml=mine.xml", "--log-file=mine.log", code=0)

    assert all((rig.path / name).is_file() for name in ("mine.html", "mine.xml", "mine.log"))
    assert not (rig.reports / "aorta_single.html").exists()


def test_options_without_a_run_are_refused(rig: Any) -> None:
    assert "acts only with --aorta-config" in rig.pytest("--aorta-set", "a=1", code=4)


def test_dry_run_prints_the_plan_and_starts_nothing(rig: Any) -> None:
    rig.configure(cluster={"transport": "local", "node_dict": {"here": {"vpcip": "127.0.0.1"}}})

    output = rig.run("--aorta-dry-run", code=0)

    assert "warning: cluster.node_dict.here.vpcip is ignored: there is no such field, did you mean vpc_ip?" in output
    assert "test_run_benchmark" in output
    assert sys.executable in output
    assert "skipped: skip_rccl_build=true" in output
    assert not (rig.path / "aorta_results").exists()


def test_quiet_and_verbose(rig: Any) -> None:
    rig.configure()

    assert "[aorta +" not in rig.run("-q", code=0)
    assert "aorta_single::test_teardown PASSED" in rig.run("-v", code=0)
