from __future__ import annotations

from pathlib import Path

import pytest
from aorta_train.environment import switch_flight_recorder_on


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
