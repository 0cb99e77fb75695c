from __future__ import annotations

import pytest
from aorta_train.job import Job, job_in
from aorta_train.refusal import Refusal

MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
RANK = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", **MASTER}


def test_without_a_launcher_there_is_one_rank() -> None:
    assert job_in({"LOCAL_RANK": "3"}) == Job(0, 1, 0, 1, launched=False)


def test_a_rank_knows_its_place() -> None:
    job = job_in(RANK)
    assert job == Job(5, 8, 1, 4, launched=True)
    assert job.num_nodes == 2


@pytest.mark.parametrize(
    ("name", "text"), [("RANK", "x"), ("WORLD_SIZE", ""), ("LOCAL_RANK", "-1"), ("LOCAL_WORLD_SIZE", "٣")]
)
def test_a_variable_that_is_no_number_is_named(name: str, text: str) -> None:
    with pytest.raises(Refusal, match=f"{name}: is '{text}' in the environment"):
        job_in({**RANK, name: text})


def test_a_number_of_any_length_is_named_in_a_short_sentence() -> None:
    with pytest.raises(Refusal) as refusal:
        job_in({**RANK, "RANK": "1" * 5000})
    assert len(str(refusal.value)) < 250


@pytest.mark.parametrize("name", MASTER)
def test_ranks_without_a_place_to_meet_are_refused(name: str) -> None:
    with pytest.raises(Refusal, match=f"{name}: not in the environment beside RANK"):
        job_in({other: text for other, text in RANK.items() if other != name})


@pytest.mark.parametrize(("name", "text"), [("RANK", "8"), ("LOCAL_RANK", "4"), ("LOCAL_WORLD_SIZE", "16")])
def test_numbers_that_do_not_fit_together_are_refused(name: str, text: str) -> None:
    with pytest.raises(Refusal, match="do not fit together"):
        job_in({**RANK, name: text})
