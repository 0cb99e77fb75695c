"""Bundle: what the bundled workload lacks or refuses of a configuration, found out before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from pytest_aorta.config.document import PathFault, is_file
from pytest_aorta.config.model import RunConfig
from pytest_aorta.config.shipped import shipped
from pytest_aorta.config.validation import near
from pytest_aorta.stages.command import override_tokens

REFUSED = 2
CHECK_SECONDS = 20.0
NO_KNOB = 'is no knob, expected SECTION.KNOB in one word, such as "training.max_steps": 20'


def not_in_bundle(config: RunConfig) -> Iterator[PathFault]:
    """Give a base_config that the bundled workload lacks; a checkout is looked into on the hosts."""
    if config.workload is not None or config.aorta_path is not None:
        return
    tree = shipped("workloads")
    if not is_file(tree / config.base_config):
        known = [path.relative_to(tree).as_posix() for path in sorted(tree.glob("config/*.yaml"))]
        hint = near(config.base_config, known) or f"; there are {', '.join(known)}"
        yield PathFault(("base_config",), f"the bundled workload has no file {config.base_config}{hint}")


def refused_by_bundle(config: RunConfig) -> Iterator[PathFault]:
    """Give the training overrides that the bundled workload refuses, in its own words; others are seen on the hosts.

    It is asked in a process of its own. If it cannot be asked here, its ranks will say it.
    """
    tree = shipped("workloads")
    overrides = config.training_overrides
    if config.workload is not None or config.aorta_path is not None or not overrides:
        return
    if not is_file(tree / config.base_config):
        return
    if nested := [name for name in overrides if "." not in name]:
        for name in nested:
            yield PathFault(("training_overrides", name), NO_KNOB)
        return
    asked = [str(tree / "train.py"), "--check", "--config", str(tree / config.base_config), "--override"]
    given = [*override_tokens(overrides), *config.multi_node.extra_train_args]
    environment = {name: value for name, value in os.environ.items() if name not in {"RANK", "LOCAL_RANK"}}
    try:
        ended = subprocess.run(
            [sys.executable, *asked, *given], env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=CHECK_SECONDS,
            check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: a zero byte in a word
        return
    if ended.returncode == REFUSED:
        for line in ended.stderr.splitlines():
            begin, mark, told = line.partition("train.py: ")
            if begin or not mark:  # a line of the usage
                continue
            fault = told.removeprefix("error: ").replace(f"{tree}/", "").removeprefix("--override ")
            name, _, said = fault.partition(": ")
            is_one = name in overrides
            yield PathFault(
                ("training_overrides", name) if is_one else ("training_overrides",), said if is_one else fault
            )
