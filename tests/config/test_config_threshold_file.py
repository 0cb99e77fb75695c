from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.threshold_file import load_thresholds
from pytest_aorta.errors import ConfigError
from tests.config.config_site import MINIMAL, Site

ENFORCED: dict[str, Any] = {**MINIMAL, "enforce_thresholds": True}
LIMITS: dict[str, Any] = {"expected_results": {"max_avg_iteration_ms": 12000, "min_compute_ratio": None}}


def test_the_single_file_beside_the_configuration_is_taken(site: Site) -> None:
    site.write("my_threshold.json", {"_c": 1, **LIMITS})
    settings = site.load(ENFORCED)
    assert settings.thresholds.max_avg_iteration_ms == 12000.0
    assert settings.thresholds.min_compute_ratio is None
    assert [file.path.name for file in settings.inputs] == ["run.json", "my_threshold.json"]


def test_a_configuration_of_such_a_name_is_not_its_own_threshold_file(site: Site) -> None:
    site.write("run_threshold.json", MINIMAL)
    assert not site.load_at("run_threshold.json").thresholds.any_set()


def test_two_files_are_ambiguous_and_both_are_named(site: Site) -> None:
    site.write("a_threshold.json", LIMITS)
    site.write("b_threshold.json", LIMITS)
    message = site.faults(ENFORCED)["threshold_json"]
    assert "ambiguous" in message
    assert "a_threshold.json, b_threshold.json" in message
    assert site.load({**ENFORCED, "threshold_json": "b_threshold.json"}).thresholds.any_set()
    assert site.load(ENFORCED, thresholds=Path("a_threshold.json")).thresholds.any_set()


def test_none_is_an_error_that_names_the_folder_unless_nothing_needs_it(site: Site) -> None:
    faults = site.faults(ENFORCED)
    assert list(faults) == ["threshold_json"]
    assert str(site.folder) in faults["threshold_json"]
    assert not site.load(MINIMAL).thresholds.any_set()
    site.load({**ENFORCED, "gates": [{"metric": "m", "kind": "max", "value": 1}]})


def test_a_reference_is_looked_up_beside_the_configuration_first(site: Site) -> None:
    site.write("t.json", {"expected_results": {"max_avg_iteration_ms": 1}})
    site.write("sub/t.json", {"expected_results": {"max_avg_iteration_ms": 2}})
    site.write("only.json", {"expected_results": {"max_avg_iteration_ms": 3}})
    seen = []
    for reference in ("t.json", "only.json", str(site.folder / "t.json")):
        site.write("sub/run.json", {**ENFORCED, "threshold_json": reference})
        seen.append(site.load_at("sub/run.json").thresholds.max_avg_iteration_ms)
    assert seen == [2, 3, 1]


def test_a_reference_to_nothing_names_every_place_that_was_tried(site: Site) -> None:
    site.write("sub/run.json", {**ENFORCED, "threshold_json": "no.json"})
    with pytest.raises(ConfigError) as caught:
        site.load_at("sub/run.json")
    assert f"{site.folder}/sub/no.json and {site.folder}/no.json" in str(caught.value)


def test_the_option_replaces_the_file(site: Site) -> None:
    site.write("a_threshold.json", LIMITS)
    site.write("mine.json", {"expected_results": {"max_avg_iteration_ms": 5}})
    assert site.load(ENFORCED, thresholds=Path("mine.json")).thresholds.max_avg_iteration_ms == 5
    assert "no such file" in site.faults(ENFORCED, thresholds=Path("no.json"))["no.json"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_avg_iteration_ms", "true"),
        ("max_avg_iteration_ms", "NaN"),
        ("max_avg_iteration_ms", "Infinity"),
        ("max_avg_iteration_ms", "1e999"),
        ("max_avg_iteration_ms", "-1"),
        ("max_avg_iteration_ms", '"12000"'),
        ("min_compute_ratio", "1.5"),
        ("min_overlap_ratio", "1.0001"),
        ("min_overlap_ratio", "-0.1"),
        ("max_time_variance_ratio", "-1"),
    ],
)
def test_values_that_are_no_limit(site: Site, key: str, value: str) -> None:
    site.write("a_threshold.json", f'{{"expected_results": {{"{key}": {value}}}}}')
    assert list(site.faults(ENFORCED)) == [f"a_threshold.json: expected_results.{key}"]


@pytest.mark.parametrize(
    ("key", "value"), [("min_compute_ratio", 1), ("min_overlap_ratio", 0.0), ("max_time_variance_ratio", 7)]
)
def test_values_at_the_bounds(site: Site, key: str, value: float) -> None:
    site.write("a_threshold.json", {"expected_results": {key: value}})
    assert getattr(site.load(ENFORCED).thresholds, key) == value


def test_unknown_thresholds_are_refused_with_a_hint(site: Site) -> None:
    site.write("a_threshold.json", {"expected_results": {"max_avg_iteration": 1}, "expected": {}})
    faults = site.faults(ENFORCED)
    assert (
        "unknown threshold, did you mean max_avg_iteration_ms?"
        in faults["a_threshold.json: expected_results.max_avg_iteration"]
    )
    assert "unknown threshold" in faults["a_threshold.json: expected"]


def test_missing_expected_results_is_tolerated_without_enforcement(site: Site) -> None:
    site.write("a_threshold.json", {})
    assert not site.load(MINIMAL).thresholds.any_set()
    assert list(site.faults(ENFORCED)) == ["enforce_thresholds"]


def test_a_threshold_file_that_is_broken_is_told_beside_the_other_faults(site: Site) -> None:
    site.write("a_threshold.json", '{"expected_results": {}, "expected_results": {}}')
    assert set(site.faults({**ENFORCED, "gpus_per_node": -1})) == {
        "gpus_per_node",
        "a_threshold.json: expected_results",
    }
    site.write("a_threshold.json", "{")
    assert "not JSON" in site.faults(ENFORCED)["a_threshold.json"]


def test_a_file_can_be_read_by_itself(site: Site) -> None:
    assert load_thresholds(site.write("x.json", LIMITS)).max_avg_iteration_ms == 12000
