from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.loading import load
from aorta_train.priority import group_wishes, replace_streams
from aorta_train.refusal import Refusal

pytestmark = pytest.mark.torch


def test_every_group_has_the_time_limit_and_without_a_priority_nothing_else(tiny_config: Path) -> None:
    options = load(tiny_config, ["distributed.timeout_seconds=7"])
    assert group_wishes(options) == {"timeout": timedelta(seconds=7)}


def test_a_torch_that_keeps_its_streams_elsewhere_is_named(tiny_config: Path) -> None:
    options = load(tiny_config, ["streams.comm_priority=high"])
    with pytest.raises(Refusal, match=r"does not show the streams of distributed\.mode fsdp \(_unshard_stream\)"):
        replace_streams([object()], ["_unshard_stream"], options, torch.device("cuda", 0))


def test_without_a_priority_streams_stay(tiny_config: Path) -> None:
    replace_streams([object()], ["_unshard_stream"], load(tiny_config), torch.device("cuda", 0))
