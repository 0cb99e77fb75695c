"""Bundle: what the bundled workload lacks or refuses of a configuration, found out before anything is started."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from pytest_aorta.config.document import PathFault, is_file
from pytest_aorta.config.model import RunConfig
from pytest_aorta.config.shipped import shipped
from pytest_aorta.config.validation import near
from pytest_aorta.stages.command import override_tokens

REFUSED = 2
CHECK_SECONDS = 20.0
EXTRA = ("multi_node", "extra_train_args")
IDLE = ("--check", "--help", "--list-options")
TOO_LONG = "a value is longer than a program takes as one argument (128 KiB), expected a shorter one"
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
    """Give what the bundled workload refuses of its overrides and arguments, in its words.

    It is asked in a process of its own. If it cannot be asked here, its ranks will say it; so will other workloads.
    """
    base_config = shipped("workloads") / config.base_config
    overrides, more = config.training_overrides, config.multi_node.extra_train_args
    if config.workload is not None or config.aorta_path is not None or not is_file(base_config):
        return
    if nested := [name for name in overrides if "." not in name]:
        yield from (PathFault(("training_overrides", name), NO_KNOB) for name in nested)
        return
    if idle := [word for word in more if _trains_nothing(word)]:
        yield PathFault(EXTRA, f"{idle[0]} trains nothing; leave it out, and run train.py {idle[0]} by hand")
        return
    if not overrides and not more:
        return
    given = ["--override", *override_tokens(overrides)] if overrides else []
    refused = _refusals(config.base_config, [*given, *more])
    alone = _refusals(config.base_config, given) if refused and more else refused
    for fault in alone or refused:
        name, _, said = fault.partition(": ")
        if not alone:
            yield PathFault(EXTRA, fault)
        elif name in overrides:
            yield PathFault(("training_overrides", name), said)
        else:
            yield PathFault(("training_overrides",), fault)


def _trains_nothing(word: str) -> bool:
    """Tell the options that print or check and end, also by their beginnings, which argparse takes."""
    return word == "-h" or (len(word) > len("--") and any(option.startswith(word) for option in IDLE))


def _refusals(base_config: str, arguments: Sequence[str]) -> list[str]:
    """Ask the workload; give its faults without what names the program and the option."""
    tree = shipped("workloads")
    command = [sys.executable, str(tree / "train.py"), "--check", "--config", str(tree / base_config), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in {"RANK", "LOCAL_RANK"}}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=CHECK_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:  # ValueError: a zero byte in a word
        return [TOO_LONG] if isinstance(error, OSError) and error.errno == errno.E2BIG else []
    if ended.returncode != REFUSED:
        return []
    found = (line.partition("train.py: ") for line in ended.stderr.splitlines())
    told = [said for begin, mark, said in found if mark and not begin]  # the others are lines of the usage
    return [said.removeprefix("error: ").replace(f"{tree}/", "").removeprefix("--override ") for said in told]
