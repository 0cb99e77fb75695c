"""The modes and their knobs, as two (or four) ranks see them; `parallel_ranks.py` measures, this file judges."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the workload needs torch")
pytestmark = pytest.mark.torch

Start = Callable[..., subprocess.CompletedProcess[str]]
SCRIPT = Path(__file__).with_name("parallel_ranks.py")
MODES = ("fsdp", "fsdp2", "ddp")


@pytest.fixture(scope="module")
def ranks(start_ranks: Start, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("parallel")
    ended = start_ranks(folder, SCRIPT, str(folder))
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "variant",
    [
        "fsdp",
        "fsdp_no_shard",
        "fsdp_flat",
        "fsdp2",
        "ddp",
        "fsdp_units",
        "fsdp_flat_units",
        "fsdp2_units",
        "fsdp_compiled",
        "fsdp2_compiled",
        "fsdp_chunked",
        "fsdp2_chunked",
        "ddp_chunked",
        "ddp_chunked_compiled",
    ],
)
def test_steps_equal_those_of_one_process_on_all_batches(ranks: list[dict[str, Any]], variant: str) -> None:
    for rank in ranks:
        assert rank["reference"][variant]["norms"] == pytest.approx(rank["reference"]["reference_norms"], rel=1e-5)
        assert rank["reference"][variant]["distance"] < 5e-5


@pytest.mark.parametrize("variant", ["fsdp", "fsdp_no_shard", "fsdp_flat", "fsdp2", "ddp", "fsdp_units", "fsdp2_units"])
def test_clipping_is_by_the_global_norm(ranks: list[dict[str, Any]], variant: str) -> None:
    for rank in ranks:
        assert rank["reference"][variant]["norm_after_clipping"] == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_travel_once_a_step_however_many_batches(ranks: list[dict[str, Any]], mode: str) -> None:
    once, thrice = ranks[0]["traffic"][f"{mode}_1"], ranks[0]["traffic"][f"{mode}_3"]
    for reduction in ("_reduce_scatter_base_", "allreduce_"):
        assert thrice.get(reduction) == once.get(reduction)
    assert once["allreduce_"] >= 1 if mode == "ddp" else once["_reduce_scatter_base_"] == 3


def test_each_batch_gathers_parameters_anew(ranks: list[dict[str, Any]]) -> None:
    traffic = ranks[0]["traffic"]
    assert traffic["fsdp_3"]["allgather_"] == 3 * traffic["fsdp_1"]["allgather_"]
    assert traffic["fsdp2_3"]["_allgather_base_"] == 3 * traffic["fsdp2_1"]["_allgather_base_"]


def test_parameters_kept_after_forward_are_not_gathered_for_backward(ranks: list[dict[str, Any]]) -> None:
    traffic = ranks[0]["traffic"]
    two_layers = 2
    assert traffic["fsdp2_1"]["_allgather_base_"] - traffic["fsdp2_keep"]["_allgather_base_"] == two_layers
    assert traffic["fsdp_1"]["allgather_"] - traffic["fsdp_grad_op"]["allgather_"] == two_layers


@pytest.mark.parametrize(("mode", "gather"), [("fsdp", "allgather_"), ("fsdp2", "_allgather_base_")])
def test_layers_of_a_unit_are_gathered_and_reduced_together(
    ranks: list[dict[str, Any]], mode: str, gather: str
) -> None:
    apart, together = ranks[0]["traffic"][f"{mode}_1"], ranks[0]["traffic"][f"{mode}_units"]
    # Two layers and the rest; each layer is gathered for forward and for backward, the rest once.
    assert (apart[gather], together[gather]) == (5, 3)
    assert (apart["_reduce_scatter_base_"], together["_reduce_scatter_base_"]) == (3, 2)


def test_ddp_knobs_change_its_traffic(ranks: list[dict[str, Any]]) -> None:
    traffic = ranks[0]["traffic"]
    assert traffic["ddp_small_buckets"]["allreduce_"] > traffic["ddp_1"]["allreduce_"]
    assert traffic["ddp_find_unused"]["allreduce_"] == traffic["ddp_1"]["allreduce_"] + 1
    assert traffic["ddp_static"] != traffic["ddp_1"]


def test_ddp_gradients_live_in_buckets_when_asked(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["memory"]["ddp_view_true"]
    assert not ranks[0]["memory"]["ddp_view_false"]


@pytest.mark.parametrize("level", [1, 5, 10])
def test_stress_issues_three_all_reduces_a_round(ranks: list[dict[str, Any]], level: int) -> None:
    assert ranks[0]["stress"][str(level)] == {"allreduce_": 3 * (level + 1)}


def test_stress_is_added_to_each_step_when_asked(ranks: list[dict[str, Any]]) -> None:
    traffic, level = ranks[0]["traffic"], 3
    assert traffic["ddp_stress"]["allreduce_"] == traffic["ddp_1"]["allreduce_"] + 3 * (level + 1)


def test_stress_ends_with_sums_over_the_ranks(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["stress"]["sums"] == [[2.0, 2.0], [3.0, 3.0]]


COLLECTIVES = {
    "allreduce": ("allreduce_",),
    "reducescatter": ("_reduce_scatter_base_", "reduce_scatter_"),
    "allgather": ("allgather_", "_allgather_base_"),
}


@pytest.mark.parametrize("mode", [*MODES, "fsdp_units", "fsdp2_units"])
def test_full_timing_sees_every_collective_of_a_step(ranks: list[dict[str, Any]], mode: str) -> None:
    for rank in ranks:
        timing = rank["timing"][mode]
        seen = Counter(one["stream"] for one in timing["profile"]["ranges"])
        for stream, names in COLLECTIVES.items():
            assert seen[stream] == sum(timing["operations"].get(name, 0) for name in names)
        assert sum(seen[stream] for stream in COLLECTIVES) > 0
        assert all(one["metadata"]["bytes"] > 0 for one in timing["profile"]["ranges"] if one["stream"] in COLLECTIVES)


@pytest.mark.parametrize("mode", [*MODES, "fsdp_units", "fsdp2_units"])
def test_full_timing_cuts_the_computation_at_the_parts_of_the_model(ranks: list[dict[str, Any]], mode: str) -> None:
    profile = ranks[0]["timing"][mode]["profile"]
    parts = ["stem", "layer0", "layer1", "head"]
    batch = [f"forward.{part}" for part in parts] + [f"backward.{part}" for part in reversed(parts)]
    computed = [one for one in profile["ranges"] if one["stream"] == "compute"]
    assert [one["tag"] for one in computed] == batch * 2
    times = [time for one in computed for time in (one["start_ms"], one["end_ms"])]
    assert times == sorted(times)
    assert [one["tag"] for one in profile["ranges"] if one["stream"] == "aux"] == ["data", "data", "clip", "optimizer"]
    assert [(one["tag"], one["metadata"]["batch"]) for one in profile["markers"]] == [
        ("forward", 0),
        ("backward", 0),
        ("forward", 1),
        ("backward", 1),
    ]


def test_a_sharded_rank_holds_its_share(ranks: list[dict[str, Any]]) -> None:
    memory = ranks[0]["memory"]
    whole = memory["ddp"]["local"]
    assert memory["fsdp_no_shard"]["local"] == whole
    for variant in ("fsdp", "fsdp_flat", "fsdp2"):
        assert memory[variant]["local"] == pytest.approx(whole / 2, rel=0.01)


def test_without_original_parameters_the_optimizer_sees_one_a_unit(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["memory"]["fsdp_flat"]["count"] == 3
    assert ranks[0]["memory"]["fsdp"]["count"] == ranks[0]["memory"]["ddp"]["count"] > 3


@pytest.mark.parametrize(
    "start",
    [
        *("fsdp_cpu", "fsdp_meta", "fsdp2_cpu", "fsdp2_meta", "ddp_cpu"),
        *("fsdp_cpu_units", "fsdp_meta_units", "fsdp2_cpu_units", "fsdp2_meta_units"),
    ],
)
def test_first_weights_do_not_depend_on_mode_or_place(ranks: list[dict[str, Any]], start: str) -> None:
    assert [rank["start"][start] for rank in ranks] == [0.0, 0.0]


def test_rank_0_sends_its_weights_when_asked(ranks: list[dict[str, Any]]) -> None:
    assert [rank["start"]["sync_true"] for rank in ranks] == [0.0, 0.0]
    assert all(rank["start"]["sync_false"] > 0.1 for rank in ranks)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("precision", "type_name"), [("none", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")])
def test_layers_compute_in_the_asked_precision(
    ranks: list[dict[str, Any]], mode: str, precision: str, type_name: str
) -> None:
    for rank in ranks:
        seen = rank["precision"][f"{mode}_{precision}"]
        assert seen["type"] == f"torch.{type_name}"
        assert seen["norm"] == pytest.approx(rank["precision"][f"{mode}_none"]["norm"], rel=0.02)


@pytest.mark.parametrize("mode", MODES)
def test_overflow_on_one_rank_skips_the_step_on_all(ranks: list[dict[str, Any]], mode: str) -> None:
    for rank in ranks:
        assert rank["overflow"][mode]["skipped"] == 0.0
        assert rank["overflow"][mode]["taken"] > 0.0
        assert rank["overflow"][mode]["scale"] == 2.0**15


def test_all_ranks_learn_of_a_stop_and_whose_it_is_and_of_the_lowest_failure(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["agreement"] == {
            "first": [0, None, None],
            "quiet": [0, None, None],
            "signalled": [15, 1, None],
            "failed": [0, None, 1],
            "both": [0, None, 0],
        }


def test_hybrid_sharding_shards_in_a_node_and_averages_over_nodes(start_ranks: Start, tmp_path: Path) -> None:
    ended = start_ranks(tmp_path, SCRIPT, str(tmp_path), num_ranks=4)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for rank in range(4):
        seen = json.loads((tmp_path / f"rank{rank}.json").read_text())["hybrid"]
        assert seen["norms"] == pytest.approx(seen["reference_norms"], rel=1e-5)
        assert seen["distance"] < 5e-5
        assert seen["local"] == pytest.approx(seen["full"] / 2, rel=0.01)
