from __future__ import annotations

from pathlib import Path

import pytest
from aorta_train.environment import prepare_streams, spare_the_host, switch_flight_recorder_on
from aorta_train.loading import load


def test_the_flight_recorder_is_on_and_dumps_beside_the_traces(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    switch_flight_recorder_on(environment, tmp_path, "2.13.0+cpu")
    prefix = str(tmp_path / "flight_recorder" / "rank_")
    assert environment == {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": prefix,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }
    assert (tmp_path / "flight_recorder").is_dir()


def test_older_releases_get_the_older_names_too(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    switch_flight_recorder_on(environment, tmp_path, "2.4.1")
    assert environment["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert environment["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == environment["TORCH_FR_DUMP_TEMP_FILE"]


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_what_the_user_set_stays(tmp_path: Path, name: str) -> None:
    environment = {name: "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    switch_flight_recorder_on(environment, tmp_path, "2.13.0")
    assert environment[name] == "0"
    assert environment["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"
    assert sum("BUFFER_SIZE" in key for key in environment) == 1


@pytest.mark.parametrize("priority", ["high", "normal"])
def test_the_priority_of_the_configuration_wins(tiny_config: Path, priority: str) -> None:
    environment = {"TORCH_NCCL_HIGH_PRIORITY": "1", "OTHER": "x"}
    options = load(tiny_config, [f"streams.comm_priority={priority}"])
    assert prepare_streams(environment, options) == [
        "TORCH_NCCL_HIGH_PRIORITY is removed from the environment: streams.comm_priority wins"
    ]
    assert environment == {"OTHER": "x"}
    assert prepare_streams(environment, options) == []


def test_without_a_priority_torch_is_left_alone(tiny_config: Path) -> None:
    environment = {"TORCH_NCCL_HIGH_PRIORITY": "1"}
    assert prepare_streams(environment, load(tiny_config)) == []
    assert environment == {"TORCH_NCCL_HIGH_PRIORITY": "1"}


def test_the_cap_of_compute_units_is_there_before_the_library_loads(tiny_config: Path) -> None:
    options = load(tiny_config, ["tuning.max_sms=64"])
    environment: dict[str, str] = {}
    assert prepare_streams(environment, options) == []
    assert environment == {"TENSILE_STREAMK_MAX_CUS": "64"}
    environment["TENSILE_STREAMK_MAX_CUS"] = "80"
    assert prepare_streams(environment, options) == ["TENSILE_STREAMK_MAX_CUS is set to 64: tuning.max_sms wins"]
    assert environment == {"TENSILE_STREAMK_MAX_CUS": "64"}


@pytest.mark.parametrize(("given", "kept"), [({}, "1"), ({"FSDP_USE_UNSAFE_SETATTR": "0"}, "0")])
def test_the_host_is_spared_unless_the_user_says_otherwise(given: dict[str, str], kept: str) -> None:
    spare_the_host(given)
    assert given == {"FSDP_USE_UNSAFE_SETATTR": kept}
