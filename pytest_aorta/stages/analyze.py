"""test_analyze: optional tables about kernels; a failure here warns and never gates."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import AortaError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.node.requests import CommandError
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import NotNeeded, Step
from pytest_aorta.run.products import Analysis, Artifacts, Execution
from pytest_aorta.stages.collect import bring_files, collected_traces
from pytest_aorta.trace.ranks import summarize
from pytest_aorta.trace.summary import RankSummary

OUTPUT = "tracelens_analysis"
GEMM = re.compile(r"gemm|Cijk_|cutlass|cublas|matmul", re.IGNORECASE)


def analyze(run: RunContext, execution: Execution, artifacts: Artifacts) -> Analysis:
    """Write our own tables from the raw traces, or run the checkout's analysis scripts on the head node."""
    try:
        if run.settings.config.aorta_path is not None:
            return _run_scripts(run, execution, artifacts)
        return _write_tables(run, artifacts)
    except (AortaError, CommandError, OSError) as error:
        log.warning("analysis: %s", error)
        return Analysis(notes=(f"analysis gave nothing: {error}",))


def analysis_is_off(settings: Settings) -> NotNeeded | None:
    """The configuration does without analysis."""
    analysis = settings.config.analysis
    if analysis.enable_tracelens or analysis.enable_gemm_analysis:
        return None
    return NotNeeded("Optional TraceLens/GEMM analysis is disabled", Analysis())


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be analysed."""
    head = settings.cluster.hosts[0].name
    if settings.config.aorta_path is None:
        yield Step(head, "write kernel tables from the collected traces, on this machine")
        return
    for script in _scripts(settings):
        yield Step(head, f"bash {script} <newest trace tree>")


def _write_tables(run: RunContext, artifacts: Artifacts) -> Analysis:
    if artifacts.torch_traces is None:
        return Analysis(notes=("no traces to analyse",))
    root = run.folder.path / artifacts.torch_traces
    files = collected_traces(run.settings, root, artifacts.layout)
    summaries = summarize(root, files, with_kernels=True)
    config = run.settings.config.analysis
    written: list[str] = []
    notes = [f"{error.file}: {error.error}" for error in summaries.errors]
    if not any(rank.num_gpu_events for rank in summaries.ranks):
        return Analysis(notes=(*notes, "the traces have no GPU events, so there are no kernels to list"))
    run.folder.analysis.mkdir(exist_ok=True)
    if config.enable_tracelens:
        written.append(
            run.folder.relative(_table(run.folder.analysis / "kernels.csv", summaries.ranks, re.compile("")))
        )
    if config.enable_gemm_analysis:
        written.append(run.folder.relative(_table(run.folder.analysis / "gemms.csv", summaries.ranks, GEMM)))
    return Analysis(files=tuple(written), notes=tuple(notes))


def _table(path: Path, ranks: tuple[RankSummary, ...], wanted: re.Pattern[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["rank", "device", "kernel", "num_calls", "total_us"])
        for rank in ranks:
            for kernel in rank.kernels:
                if wanted.search(kernel.name):
                    writer.writerow([rank.rank, rank.device, kernel.name, kernel.num_events, kernel.total_us])
    return path


def _scripts(settings: Settings) -> tuple[str, ...]:
    analysis = settings.config.analysis
    tracelens = (analysis.tracelens_script,) if analysis.enable_tracelens else ()
    return (*tracelens, *((analysis.gemm_script,) if analysis.enable_gemm_analysis else ()))


def _run_scripts(run: RunContext, execution: Execution, artifacts: Artifacts) -> Analysis:
    host = run.head.name
    trees = artifacts.trees.get(host, ())
    if not trees:
        return Analysis(notes=(f"{host} has no trace tree to analyse",))
    root, output = execution.roots[host], f"{trees[0].rpartition('/')[0] or '.'}/{OUTPUT}"
    timeout_s = run.settings.config.timeout_seconds
    is_there = run.ask_head(Ask("stat", {"paths": [f"{root}/{output}"]}))["files"][f"{root}/{output}"]["kind"] == "dir"
    notes: list[str] = []
    for script in () if is_there and run.settings.config.analysis.skip_if_exists else _scripts(run.settings):
        argv = ["bash", script, trees[0]]
        answer = run.ask_head(Ask("run", {"argv": argv, "cwd": root, "timeout_s": timeout_s}, timeout_s=timeout_s + 30))
        log.info("%s: %s", script, answer["stdout"])
        if answer["exit_code"] != 0:
            last = (str(answer["stderr"]).strip().splitlines() or ["no output"])[-1]
            notes.append(f"{script} exited {answer['exit_code']} on {host}: {last}")
    return Analysis(files=_bring_output(run, execution, output), notes=tuple(notes))


def _bring_output(run: RunContext, execution: Execution, output: str) -> tuple[str, ...]:
    """Bring the scripts' output folder of the head node into the run folder, if there is one."""
    host = run.head.name
    root = f"{execution.roots[host]}/{output}"
    search = Ask(
        "find", {"root": root, "folders": [], "names": ["*"], "since_ns": 0, "exclude_dirs": [], "known": None}
    )
    answer = run.inside.perform({host: search}).get(host)
    if answer is None or not answer["files"]:
        return ()
    files = tuple(str(entry["path"]) for entry in answer["files"])
    destination = run.folder.analysis / OUTPUT
    bring_files(run, host, root, files, f"{execution.work_dirs[host]}/analysis.tar.gz", destination)
    return tuple(run.folder.relative(destination / name) for name in files)
