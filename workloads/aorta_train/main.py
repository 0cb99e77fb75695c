"""The command line: what a user got wrong is said in sentences before torch is imported or any process group exists."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from aorta_train.ending import leave, leave_with_launcher
from aorta_train.environment import (
    installed_torch,
    prepare_streams,
    release_of,
    spare_the_host,
    switch_flight_recorder_on,
)
from aorta_train.job import Job, job_in
from aorta_train.loading import load
from aorta_train.options import Options
from aorta_train.output import FLIGHT_RECORDER, step_lines, trace_folder
from aorta_train.refusal import Refusal, TrainingFailed
from aorta_train.rules import faults_in_job

log = logging.getLogger("aorta")

EXIT_FAILED = 1
EXIT_REFUSED = 2
SECONDS_TO_SAY_IT = 5.0
OLDEST_TORCH = (2, 4)
MAX_SOCKET_FOLDER_BYTES = 75
"""Of the 107 of a UNIX socket's address; multiprocessing adds `/pymp-` and `/listener-`, each with 8 random letters."""


def main(argv: Sequence[str]) -> int:
    """Run one rank; gives its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this rank
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    # Until the steps begin nothing is lost: a signal ends the rank at once, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getpid() == 1:  # the first process of a container, which the kernel spares from signals without a handler
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: os._exit(128 + received))
    arguments = _parse(argv)
    if arguments.list_options:
        print(importlib.import_module("aorta_train.listing").table(), end="")
        return 0
    try:
        if arguments.check:
            load(arguments.config, arguments.override)
            return 0
        return _run(arguments)
    except Refusal as refusal:
        _let_the_first_rank_say_it()
        for fault in refusal.faults:
            _say(fault)
        return EXIT_REFUSED
    except TrainingFailed as failure:
        if str(failure):
            _say(str(failure))
        leave(EXIT_FAILED)


def _run(arguments: argparse.Namespace) -> int:
    job = job_in(os.environ)
    options = load(arguments.config, arguments.override)
    faults = faults_in_job(options, job.world_size, job.local_world_size)
    if faults:
        raise Refusal(faults)
    _log_to_stderr(options, job)
    if job.launched:
        leave_with_launcher()
    torch_version = installed_torch()
    if torch_version is None:
        raise Refusal(
            f"torch is not installed for {sys.executable}; install torch 2.4 or newer, or start another Python"
        )
    if release_of(torch_version) < OLDEST_TORCH:
        raise Refusal(f"torch {torch_version} is installed for {sys.executable}, expected 2.4 or newer")
    output_dir = _make_output_dir(options, job)
    _check_temporary_folder(has_sockets=options.dataloader.num_workers > 0)
    switch_flight_recorder_on(os.environ, output_dir, torch_version)
    spare_the_host(os.environ)
    for change in prepare_streams(os.environ, options):
        if job.local_rank == 0:
            log.warning(change)
    session: Any = importlib.import_module("aorta_train.session")
    exit_code: int = session.run(options, job, output_dir, arguments.enable_rocm_metrics)
    return exit_code


def _let_the_first_rank_say_it() -> None:
    """Wait on the other ranks of a node: all have the same to say, and torchrun ends them once the first has left.

    A rank that left at once could be the first to leave, and its launcher would end the one that speaks before it has.
    """
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(SECONDS_TO_SAY_IT)


def _say(sentence: str) -> None:
    """Say a sentence by one write: the ranks share a stream, and torchrun starts them unbuffered."""
    sys.stderr.write(f"train.py: {sentence}\n")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments once a node."""

    def error(self, message: str) -> NoReturn:
        _let_the_first_rank_say_it()
        super().error(message)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="train.py",
        description="Train a ranking transformer on synthetic data, and write step lines and profiler traces.",
        epilog="example: torchrun --nproc_per_node 2 train.py --config config/tiny_cpu.yaml --override training.seed=7",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="FILE", help="YAML or JSON file of options")
    what.add_argument("--list-options", action="store_true", help="print every option, its default and its meaning")
    parser.add_argument(
        "--override",
        nargs="+",
        action="extend",
        default=[],
        metavar="SECTION.KNOB=VALUE",
        help="replace values of the file; may be given again; null sets back to the default",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="say what is wrong with the options, and train nothing; torch is not needed",
    )
    parser.add_argument(
        "--enable-rocm-metrics",
        action="store_true",
        help="write what rocm-smi says every 10 s to rocm_metrics_<NN>.jsonl, from one rank a node; AMD GPUs only",
    )
    return parser.parse_args(argv)


def _make_output_dir(options: Options, job: Job) -> Path:
    try:
        path = Path(options.training.output_dir).expanduser()
    except RuntimeError:
        raise Refusal(
            f"training.output_dir: {options.training.output_dir}: no such home folder; name another"
        ) from None
    folders = [path, path / FLIGHT_RECORDER]
    if options.profiling.enabled:
        folders.append(trace_folder(path, job))
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"cannot be made: {error.strerror}; name a folder that this user can write"
            raise Refusal(f"training.output_dir: {folder} {why}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Refusal(f"training.output_dir: {folder} cannot be written by this user; name a folder that can")
    lines = step_lines(path, job)
    if lines.is_dir() or lines.is_fifo():
        kind = "a folder" if lines.is_dir() else "a pipe"
        raise Refusal(f"training.output_dir: {lines} is {kind}, expected a file or nothing; name another folder")
    return path


def _check_temporary_folder(*, has_sockets: bool) -> None:
    """Refuse to go without one, which torch cannot, and one whose sockets the processes that make samples cannot reach.

    Their rank would wait for them for ever.
    """
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise Refusal(f"TMPDIR: {error.strerror}; set it to a folder that this user can write") from None
    size = len(os.fsencode(folder))
    if has_sockets and size > MAX_SOCKET_FOLDER_BYTES:
        remedy = "set TMPDIR to another folder, or dataloader.num_workers=0"
        most = f"the processes that make samples put sockets there, expected at most {MAX_SOCKET_FOLDER_BYTES}"
        raise Refusal(f"TMPDIR: the path of the temporary folder, {folder}, has {size} bytes; {most}; {remedy}")


def _log_to_stderr(options: Options, job: Job) -> None:
    level = getattr(logging, options.logging.level)
    logging.basicConfig(
        stream=sys.stderr,
        level=level if job.rank == 0 else max(level, logging.WARNING),
        format=f"%(asctime)s rank {job.rank} %(levelname)s %(name)s: %(message)s",
    )
