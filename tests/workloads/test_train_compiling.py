from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.clock import HostClock
from aorta_train.compiling import compile_layers, outcome
from aorta_train.cutting import cut
from aorta_train.model import build
from aorta_train.options import Compile, Model
from aorta_train.timing import StreamTimer
from torch import _dynamo as dynamo

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

"""torch's compiler warns inside itself, and takes a warning that is an error for a failure to compile."""

MODEL = Model(
    vocab_size=10,
    embedding_dim=4,
    num_dense_features=2,
    dense_dim=3,
    model_dim=8,
    num_heads=2,
    num_layers=2,
    mlp_hidden_dim=8,
)


SEEN: list[Any] = []
"""A backend is registered once in a process, so what it notes is kept here."""


class BrokenBackend(Exception):
    pass


@pytest.fixture
def graphs() -> Iterator[list[Any]]:
    """Backends that note the inputs of the graphs they are given, or cannot compile them."""
    SEEN.clear()

    def noting(graph: Any, inputs: Any) -> Any:
        SEEN.append(inputs)
        return graph.forward

    def broken(graph: Any, inputs: Any) -> Any:
        raise BrokenBackend("this backend compiles nothing")

    dynamo.reset()
    registered = {"aorta_noting": noting, "aorta_broken": broken}
    for name, backend in registered.items():
        if name not in dynamo.list_backends(exclude_tags=()):
            dynamo.register_backend(backend, name=name)
    yield SEEN
    dynamo.reset()


def run(settings: Compile) -> tuple[Any, str]:
    model = build(MODEL, 1, torch.device("cpu")).eval()
    compile_layers(model, settings)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(2, 3, 2, 3, generator=generator)
    logits = model(dense, torch.zeros(2, 3, 2, dtype=torch.int64))
    return logits.detach(), outcome(model, settings)


def test_layers_and_only_layers_are_compiled(graphs: list[Any]) -> None:
    logits, how = run(Compile(enabled=True, backend="aorta_noting"))
    assert how == "compiled"
    assert graphs
    plain, off = run(Compile())
    assert off == "off"
    assert torch.allclose(logits, plain)


def test_a_layer_that_cannot_be_compiled_is_an_error(graphs: list[Any]) -> None:
    with pytest.raises(dynamo.exc.BackendCompilerFailed, match="this backend compiles nothing"):
        run(Compile(enabled=True, backend="aorta_broken"))


def test_with_fallback_it_runs_eagerly_and_says_so(graphs: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    logits, how = run(Compile(enabled=True, backend="aorta_broken", fallback=True))
    assert how == "eager"
    assert "a layer runs eagerly, it cannot be compiled" in caplog.text
    assert torch.equal(logits, run(Compile())[0])


def has_symbolic_sizes(inputs: list[Any]) -> bool:
    return any(isinstance(one, torch.SymInt) for one in inputs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_dynamic_compiles_for_any_shape(graphs: list[Any], dynamic: bool) -> None:
    run(Compile(enabled=True, backend="aorta_noting", dynamic=dynamic))
    assert {has_symbolic_sizes(inputs) for inputs in graphs} == {dynamic}


def run_with_a_graph_break(settings: Compile) -> str:
    dynamo.reset()
    model = build(MODEL, 1, torch.device("cpu")).eval()
    model.layers[0].mlp_in.register_forward_hook(lambda *_: dynamo.graph_break())  # type: ignore[union-attr]
    compile_layers(model, settings)
    model(torch.randn(2, 3, 2, 3), torch.zeros(2, 3, 2, dtype=torch.int64))
    return outcome(model, settings)


def test_a_graph_break_is_an_error_only_when_the_graph_must_be_whole(graphs: list[Any]) -> None:
    assert run_with_a_graph_break(Compile(enabled=True, backend="aorta_noting")) == "compiled"
    with pytest.raises(dynamo.exc.Unsupported):
        run_with_a_graph_break(Compile(enabled=True, backend="aorta_noting", fullgraph=True))


def test_mode_and_options_reach_the_compiler() -> None:
    model = build(MODEL, 1, torch.device("cpu"))
    with pytest.raises(RuntimeError, match="no-such-mode"):
        compile_layers(model, Compile(enabled=True, mode="no-such-mode"))
    with pytest.raises(RuntimeError, match="no_such_option"):
        compile_layers(model, Compile(enabled=True, options={"no_such_option": True}))


def test_a_fallback_is_seen_through_what_is_put_around_it(graphs: list[Any]) -> None:
    settings = Compile(enabled=True, backend="aorta_broken", fallback=True)
    model = build(MODEL, 1, torch.device("cpu"))
    compile_layers(model, settings)
    cut(model, StreamTimer(HostClock()))
    model(torch.randn(2, 3, 2, 3), torch.zeros(2, 3, 2, dtype=torch.int64))
    assert outcome(model, settings) == "eager"


def test_fallback_is_not_taken_when_it_is_not_needed(graphs: list[Any]) -> None:
    assert run(Compile(enabled=True, backend="aorta_noting", fallback=True))[1] == "compiled"
