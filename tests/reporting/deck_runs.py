"""Run folders as a run leaves them, made with the product's own models: any number of ranks, any outcome."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_aorta.checks import Check
from pytest_aorta.config.load import load
from pytest_aorta.config.settings import Settings
from pytest_aorta.gates.thresholds import judge_all, tally
from pytest_aorta.reporting.model import PRIOR_FAILURE
from pytest_aorta.run.conclusion import conclude
from pytest_aorta.run.folder import RunFolder, new_run_id
from pytest_aorta.run.products import Artifacts, Execution, RankRow, Result, Straggler
from pytest_aorta.run.record import RecordKeeper, RunRecord, StageRecord
from pytest_aorta.stages.measures import collect_metrics
from pytest_aorta.stages.thresholds import all_rules
from pytest_aorta.table import STAGES, stages_of
from pytest_aorta.trace.lateness import Candidate, Lateness, RankLateness
from pytest_aorta.trace.metrics import shares
from pytest_aorta.trace.step_log import read_step_logs
from pytest_aorta.trace.summary import RankSummary

State = Literal["pass", "fail", "record"]
LABELS = {stage.test: stage.label for stage in STAGES}
ITERATION_MS, STEPS, NUM_STEPS = 1200.0, 6, 60
SECONDS = {
    "test_launch_container": 21.4,
    "test_clone_aorta": 2.1,
    "test_setup_rdma": 1.3,
    "test_run_benchmark": 412.7,
    "test_collect_traces": 38.2,
    "test_parse_results": 17.9,
    "test_validate_thresholds": 0.02,
    "test_generate_report": 0.1,
    "test_teardown": 6.6,
}
LIMITS = {
    "max_avg_iteration_ms": 1500.0,
    "min_compute_ratio": 0.6,
    "min_overlap_ratio": 0.2,
    "max_time_variance_ratio": 0.05,
}


@dataclass
class MadeRun:
    """A run folder with its record and settings."""

    folder: RunFolder
    keeper: RecordKeeper
    settings: Settings

    @property
    def record(self) -> RunRecord:
        return self.keeper.document

    def stage(self, name: str, outcome: Literal["passed", "failed", "skipped", "interrupted"], reason: str = "",
              checks: tuple[Check, ...] = (), notes: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.keeper.stage(
            StageRecord(name=name, outcome=outcome, reason=reason, checks=checks, notes=notes,
                        failure="measured" if outcome == "failed" else None,
                        seconds=SECONDS.get(name, 0.5) if outcome != "skipped" else 0.0)
        )  # fmt: skip

    def close(self) -> None:
        self.keeper.close(*conclude(self.record.stages, self.record.plan))


def begin(where: Path, *, hosts: list[str], ranks_per_host: int, limits: dict[str, float | None] | None = None,
          **fields: Any) -> MadeRun:  # fmt: skip
    """Begin a run that has done nothing yet."""
    config = {
        "schema_version": 1,
        "accelerator": "cuda",
        "gpus_per_node": ranks_per_host,
        "model": {"id": "llama-3-8b-fsdp2", "remote": 0, "precision": "bf16"},
        "container": {"name": "aorta", "image": "registry.example/aorta:rocm7.1",
                      "env": {"HF_TOKEN": "planted-token-1234"}},
        "threshold_json": "limits_threshold.json",
        "multi_node": {"master_launch_mode": "torchrun"},
        "cluster": {
            "username": "root", "priv_key_file": "/root/.ssh/id_ed25519",
            "node_dict": {host: {"vpc_ip": f"10.0.{i // 250}.{i % 250 + 1}"} for i, host in enumerate(hosts)},
        },
        "output_dir": str(where / "runs"),
        **fields,
    }  # fmt: skip
    where.mkdir(parents=True, exist_ok=True)
    (where / "limits_threshold.json").write_text(json.dumps({"expected_results": limits or LIMITS}), "utf-8")
    (where / "config.json").write_text(json.dumps(config), "utf-8")
    settings = load(where / "config.json", cwd=where, suite="single" if len(hosts) == 1 else "distributed")
    created = RunFolder.create(settings.output_dir, new_run_id())
    folder = RunFolder(created.path, secrets=settings.secrets())
    keeper = RecordKeeper.begin(
        folder,
        suite=settings.suite,
        plan=tuple(stage.test for stage in stages_of(settings.suite)),
        config=settings.document(),
        inputs={item.kind: str(item.path) for item in settings.inputs},
        environment={"pytest-aorta": "0.1.0", "Python": "3.12.3", "Platform": "Linux-6.8", "torch": "2.9.0+rocm7.1"},
    )
    return MadeRun(folder, keeper, settings)


def make_run(where: Path, *, ranks: int, state: State = "pass", late: bool = True,
             **fields: Any) -> MadeRun:  # fmt: skip
    """Make a finished run of so many ranks; with `fail` one rank is late and two gates break."""
    per_host = 2 if ranks <= 2 else 8
    hosts = [f"gpu-{i:04d}" for i in range(max(1, ranks // per_host))]
    run = begin(where, hosts=hosts, ranks_per_host=per_host, enforce_thresholds=state != "record", **fields)
    bad = ranks // 2 + 1 if ranks > 2 else 1
    found = summaries(ranks, bad if state == "fail" else None)
    lateness = lateness_of(found, bad if state == "fail" and late else None)
    _step_logs(run, ranks, per_host, bad if state == "fail" else None)
    logs = read_step_logs(run.folder.path / ("combined_traces" if len(hosts) > 1 else "traces"))
    run.folder.write_metrics(collect_metrics(found, logs, 2, lateness))
    _facts(run, hosts, odd=hosts[-1] if len(hosts) > 1 else "")
    note = f"{hosts[0]}: kernel log: ecc_corrected: mce: [Hardware Error]: Corrected error (x2); counted only"
    run.stage("test_launch_container", "passed")
    run.stage("test_clone_aorta", "passed")
    if len(hosts) > 1:
        run.stage("test_setup_rdma", "passed")
    run.stage("test_build_rccl", "skipped", "skip_rccl_build=true")
    warned = Check(label=f"[evidence] (host={hosts[0]}, check=kernel_log_warnings)", state="warned", host=hosts[0],
                   subtest=False, reason=note)  # fmt: skip
    run.stage("test_run_benchmark", "passed", checks=(warned,), notes=(note,))
    collected = tuple(
        Check(label=f"[trace collection] (host={host})", state="passed", host=host, fault="rig") for host in hosts
    )
    run.stage("test_collect_traces", "passed", checks=collected)
    run.stage("test_analyze", "skipped", "Optional TraceLens/GEMM analysis is disabled")
    late_note = (
        f"rank {bad} is late (kind: compute): the others wait 38.20 ms a profiled step for it, and it is the last in "
        f"97.0% of its collectives; compare its clocks and temperature with its neighbours"
    )
    run.stage("test_parse_results", "passed", notes=(late_note,) if state == "fail" and late else ())
    late_rank = Straggler(rank=bad, kind="compute", caused_delay_ms_per_step=38.2, text=late_note)
    _give_products(run, found, hosts, late_rank if state == "fail" and late else None)
    if state == "record":
        reason = "enforce_thresholds=false; metrics are recorded without threshold assertions"
        run.stage("test_validate_thresholds", "skipped", reason)
    else:
        checks = judge_all(all_rules(run.settings), run.folder.read_metrics())
        failed = any(check.failed for check in checks)
        run.stage("test_validate_thresholds", "failed" if failed else "passed",
                  f"measured, bad: {tally(checks)}" if failed else "", checks)  # fmt: skip
    run.stage("test_generate_report", "passed")
    run.stage("test_teardown", "passed")
    run.close()
    return run


def broken_run(where: Path) -> MadeRun:
    """Make a run whose launch failed on one host: nothing was measured."""
    hosts = [f"gpu-{i:04d}" for i in range(4)]
    run = begin(where, hosts=hosts, ranks_per_host=8)
    _facts(run, hosts[:3], odd="")
    check = Check(
        label="[evidence] (host=gpu-0002, check=gpus)", state="failed", host="gpu-0002",
        reason="gpu-0002: 7 GPUs are visible, 8 were configured", next_step="drain gpu-0002 and look for Xid 79",
    )  # fmt: skip
    run.stage("test_launch_container", "failed", f"measured, bad: {check.reason}", (check,))
    for stage in stages_of("distributed")[1:-1]:
        run.stage(stage.test, "skipped", f"{PRIOR_FAILURE}: test_launch_container: {check.reason}")
    run.stage("test_teardown", "passed")
    run.close()
    return run


def summaries(ranks: int, bad: int | None) -> tuple[RankSummary, ...]:
    """Give ranks of nearly the same length; the bad one computes 40 % longer and the others wait for it."""
    rng = random.Random(7)  # noqa: S311 the same numbers each time
    slow = 1.35 if bad is not None else 1.0
    found = []
    for rank in range(ranks):
        total = ITERATION_MS * 1000 * slow * rng.gauss(1.0, 0.004)
        compute = total * (0.86 if rank == bad else 0.66 / (1.12 if bad is not None else 1.0)) * rng.gauss(1.0, 0.01)
        comm = total * (0.1 if rank == bad else 0.28) * rng.gauss(1.0, 0.02)
        overlap = 0.0 if bad is not None else 0.55 * comm
        exposed = min(comm - overlap, total - compute)
        copies = 0.01 * total
        idle = max(0.0, total - compute - exposed - copies)
        found.append(
            RankSummary(
                rank=rank, device=rank % 8, files=(f"rank{rank}/trace.json",), source="timeline", world_size=ranks,
                start_ns=0, end_ns=int(total * 1000), total_time_us=total, computation_time_us=compute,
                total_comm_time_us=comm + overlap, exposed_comm_time_us=exposed, exposed_memcpy_time_us=copies,
                busy_time_us=total - idle, idle_time_us=idle, overlap_time_us=overlap, total_memcpy_time_us=copies,
                memset_time_us=0.0, num_comm_kernels=240, num_gpu_events=9000, num_profiled_steps=STEPS,
                step_times_ms=tuple(total / 1000 / STEPS for _ in range(STEPS)), has_comm_ops=True,
            )
        )  # fmt: skip
    return tuple(found)


def lateness_of(ranks: tuple[RankSummary, ...], bad: int | None) -> Lateness:
    """Give what the ranks say together."""
    rng = random.Random(9)  # noqa: S311 the same numbers each time
    rows = tuple(
        RankLateness(
            rank=one.rank, device=one.device, share_last=0.97 if one.rank == bad else 0.01,
            caused_delay_ms_per_step=38.2 if one.rank == bad else abs(rng.gauss(0.3, 0.2)),
            exposed_wait_ms=4.0 if one.rank == bad else (230.0 if bad is not None else 9.0) * rng.gauss(1, 0.05),
            exposed_transfer_ms=60.0, hidden_transfer_ratio=0.4, imbalance_ratio=0.02, kernel_slowdown_ratio=0.01,
        )
        for one in ranks
    )  # fmt: skip
    candidate = Candidate(bad, "compute", 38.2, 0.97) if bad is not None else None
    return Lateness(matched_ratio=1.0, straggler=candidate, largest_candidate=candidate, ranks=rows, num_steps=STEPS)


def _step_logs(run: MadeRun, ranks: int, per_host: int, bad: int | None) -> None:
    rng = random.Random(3)  # noqa: S311 the same numbers each time
    for rank in range(ranks):
        node = rank // per_host
        root = run.folder.traces("combined" if ranks > per_host else "single", node) / "out"
        root.mkdir(parents=True, exist_ok=True)
        lines = []
        for step in range(NUM_STEPS):
            warm_up = 400.0 if step == 0 else 0.0
            step_ms = 200.0 * (1.35 if bad is not None else 1.0) + warm_up + rng.gauss(0, 2) + (step == 40) * 60
            lines.append(json.dumps({"rank": rank, "world_size": ranks, "step": step, "step_ms": round(step_ms, 3),
                                     "samples": 8, "tokens": 8192, "profiled": 20 <= step < 26}))  # fmt: skip
        (root / f"rank_{rank:02d}_metrics.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def _facts(run: MadeRun, hosts: list[str], odd: str) -> None:
    for host in hosts:
        facts = {
            "hostname": host, "uid": 0, "user": "root", "kernel": "6.8.0-60" if host != odd else "6.8.0-41",
            "os": "Ubuntu 24.04", "python": "3.12.3", "cpu_count": 128, "memory_bytes": 2164 * 1024**3,
            "nofile": 1048576, "kfd": True, "infiniband": ["mlx5_0", "mlx5_1"], "wall_ns": 1, "uptime_s": 5.0,
            "boot_id": host,
        }  # fmt: skip
        run.folder.write_document(run.folder.facts(host), facts)


def _give_products(run: MadeRun, found: tuple[RankSummary, ...], hosts: list[str], straggler: Straggler | None) -> None:
    run.keeper.product(
        Execution(
            started=True, status="completed", exit_codes=dict.fromkeys(hosts, 0), duration_seconds=411.0, roots={},
            work_dirs={}, floors_ns={}, accelerator="cuda", nccl_channels=112,
        )
    )  # fmt: skip
    layout: Literal["combined", "single"] = "combined" if len(hosts) > 1 else "single"
    root = "combined_traces" if layout == "combined" else "traces"
    run.keeper.product(Artifacts(layout=layout, torch_traces=root, accelerator="cuda"))
    rows = []
    for one in found:
        share = shares(one)
        rows.append(
            RankRow(
                rank=one.rank or 0, device=str(one.device), source=one.label, total_time_us=one.total_time_us,
                compute_ratio=share.compute_ratio, comm_ratio=share.comm_ratio, overlap_ratio=share.overlap_ratio,
            )
        )  # fmt: skip
    run.keeper.product(Result(source=found[0].label, num_profiled_steps=STEPS, ranks=tuple(rows), straggler=straggler))
