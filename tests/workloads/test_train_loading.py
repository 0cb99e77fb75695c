from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aorta_train.loading import load
from aorta_train.refusal import Refusal
from hypothesis import given
from hypothesis import strategies as st

CONFIGS = Path(__file__).parents[2] / "workloads" / "config"


def faults_of(path: Path, *overrides: str) -> str:
    with pytest.raises(Refusal) as refusal:
        load(path, overrides)
    return str(refusal.value)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty.yaml"
    path.write_text("{}")
    return path


def test_an_empty_file_gives_the_documented_defaults(empty: Path) -> None:
    options = load(empty)
    assert (options.training.batch_size, options.optimizer.betas, options.model.num_layers) == (8, (0.9, 0.98), 6)
    assert options.explicit == frozenset()


def test_overrides_win_and_later_ones_over_earlier(empty: Path) -> None:
    options = load(
        empty, ["training.batch_size=2", "optimizer.betas=[0.5,0.6]", "optimizer.lr=2e-4", "training.batch_size=3"]
    )
    assert options.training.batch_size == 3
    assert options.optimizer.betas == (0.5, 0.6)
    assert options.explicit == {"training.batch_size", "optimizer.betas", "optimizer.lr"}


def test_null_sets_back_to_the_default(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("fsdp:\n  use_orig_params: false\ntraining:\n  max_steps: 5\n")
    options = load(path, ["fsdp.use_orig_params=null"])
    assert options.fsdp.use_orig_params
    assert options.explicit == {"training.max_steps"}


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{\n\t"training": {"batch_size": 4}}')
    assert load(path).training.batch_size == 4


def test_a_choice_is_found_whatever_its_case(empty: Path) -> None:
    options = load(empty, ["fsdp.sharding_strategy=FULL_SHARD", "fsdp.backward_prefetch=backward_post"])
    assert (options.fsdp.sharding_strategy, options.fsdp.backward_prefetch) == ("full_shard", "BACKWARD_POST")


def test_an_override_is_of_one_section_also_where_an_anchor_made_two_of_it(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("dataset: &both {vocab_size: 20, num_dense_features: 2}\nmodel: *both\n")
    options = load(path, ["dataset.vocab_size=10"])
    assert (options.dataset.vocab_size, options.model.vocab_size) == (10, 20)


def test_options_of_a_mapping_are_reached_by_longer_names(empty: Path) -> None:
    longer = ["compile.options.max_autotune=true", "compile.options.triton.cudagraphs=false"]
    options = load(empty, ["compile.enabled=true", *longer])
    assert options.compile.options == {"max_autotune": True, "triton.cudagraphs": False}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("training.bach_size=2", "training.bach_size: unknown knob; did you mean batch_size?"),
        ("trainning.batch_size=2", "trainning: unknown section; did you mean training?"),
        ("training.batch_size=8.0", "training.batch_size: is 8.0, expected an integer"),
        ("training.batch_size=true", "training.batch_size: is True, expected an integer"),
        ("training.batch_size=0", "training.batch_size: is 0, expected 1 or more"),
        ("training.batch_size=99999999999999999999", "expected an integer of 64 bits"),
        ("training.mixed_precision=bf8", "training.mixed_precision: is 'bf8', expected one of none, bf16, fp16"),
        ("training.allreduce_stress_level=11", "training.allreduce_stress_level: is 11, expected 10 or less"),
        ("optimizer.lr=fast", "optimizer.lr: is 'fast', expected a number"),
        ("optimizer.lr=0", "optimizer.lr: is 0.0, expected more than 0"),
        ("optimizer.betas=[0.9]", "optimizer.betas: is [0.9], expected a list of 2 numbers"),
        ("optimizer.betas=[0.9,1.0]", "optimizer.betas: is 1.0, expected less than 1"),
        ("optimizer.betas=[0.9,1e999]", "optimizer.betas: is not finite, expected a number"),
        ("compile.enabled=yes", "compile.enabled: is 'yes', expected true or false"),
        ("training.output_dir=", "training.output_dir: is empty, expected text"),
        ("streams.comm_priority=low", "streams.comm_priority: is 'low', expected one of high, normal"),
        ("profiling.stream_timing=heavy", "profiling.stream_timing: is 'heavy', expected one of off, light, full"),
        ("tuning.gemm_chunks=0", "tuning.gemm_chunks: is 0, expected 1 or more"),
        ("tuning.max_sms=0", "tuning.max_sms: is 0, expected 1 or more"),
        ("benchmark.peak_tflops=0", "benchmark.peak_tflops: is 0.0, expected 0.001 or more"),
        ("training.max_steps", "--override training.max_steps: expected SECTION.KNOB=VALUE"),
        ("max_steps=3", "--override max_steps=3: expected SECTION.KNOB=VALUE"),
        ("training.batch_size.x=3", "training.batch_size: is {'x': 3}, expected an integer"),
        ('compile.options={"a":1,"a":2}', "the key 'a' stands twice"),
    ],
)
def test_a_wrong_override_is_named(empty: Path, override: str, sentence: str) -> None:
    assert sentence in faults_of(empty, override)


def test_a_path_through_a_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("training:\n  batch_size: 4\n")
    assert "training.batch_size is 4 and has nothing below it" in faults_of(path, "training.batch_size.x=3")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("training:\n  batch_size: many\n  epochs: 0\nmodle: {}\noptimizer:\n  lr: -1\n")
    seen = faults_of(path, "dataset.seed=-1")
    for name in ("training.batch_size", "training.epochs", "modle", "optimizer.lr"):
        assert f"c.yaml: {name}: " in seen
    assert "--override dataset.seed: " in seen


def test_a_value_of_any_size_is_shown_in_a_short_sentence(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    lines = ["  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path.write_text("\n".join(["compile:", *lines, "training: {max_steps: *a11}", f"optimizer: {{lr: {'9' * 4000}}}"]))
    assert len(faults_of(path)) < 6000  # of a dozen faults


def test_a_fault_names_the_file_or_the_override_that_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("training:\n  batch_size: many\n  epochs: 0\n")
    seen = faults_of(path, "training.epochs=-1", "modle.size=2")
    assert f"{path}: training.batch_size: " in seen
    assert "--override training.epochs: is -1" in seen
    assert "--override modle: unknown section" in seen


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("c.yaml", b"", "holds no option"),
        ("c.yaml", b"# training:\n", "holds no option"),
        ("c.json", b" \n", "holds no option"),
        ("c.yaml", b"training: {max_steps: !!int ''}", "cannot be parsed: a value does not fit its tag"),
        ("c.yaml", b"training: {max_steps: !!timestamp abc}", "cannot be parsed: a value does not fit its tag"),
        ("c.yaml", b'training: {output_dir: "a\\0b"}', "holds a zero character"),
        ("c.yaml", b"a: [", "cannot be parsed"),
        ("c.yaml", b"\xff\xfe", "is not UTF-8 text"),
        ("c.yaml", b"[1, 2]", "is a list, expected a mapping of sections"),
        ("c.yaml", b"training: 5", "training: is 5, expected a mapping of knobs"),
        ("c.yaml", b"training: {}\ntraining: {}", "'training' stands twice"),
        ("c.json", b'{"training": {"seed": NaN}}', "NaN is no JSON number"),
        ("c.json", b"{", "cannot be parsed"),
        ("c.json", b"[" * 100000, "is nested too deeply"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert sentence in faults_of(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'none.yaml'}: cannot be read: No such file" in faults_of(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.iterdir()))
def test_the_shipped_files_load(tree: Path, name: str) -> None:
    assert load(tree / "config" / f"{name}.yaml").training.output_dir == f"artifacts/{name}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(section=st.sampled_from(["training", "optimizer", "compile", "fsdp"]), values=st.data())
def test_any_value_is_taken_or_refused_in_sentences(
    section: str, values: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    knobs = {"training": "batch_size", "optimizer": "betas", "compile": "options", "fsdp": "sharding_strategy"}
    value: Any = values.draw(JSON)
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(f'{{"{section}": {{"{knobs[section]}": {json.dumps(value)}}}}}')
    try:
        load(path)
    except Refusal as refusal:
        faults = refusal.faults
    else:
        return
    assert all(fault.startswith(str(path)) for fault in faults)
