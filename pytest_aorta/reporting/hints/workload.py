"""Hints about the workload and its results: its configuration, its numbers, its traces, the gates."""

from __future__ import annotations

from pytest_aorta.reporting.hints.hint import Hint, says

_OWN = "pytest-aorta's documentation, page how-to/failures"
_METRICS = "pytest-aorta's documentation, page metrics"

WORKLOAD = (
    says(
        "trainer_refuses",
        "fatal",
        r"the trainer refuses its configuration|unrecognized arguments|error: argument ",
        "an option or override of the workload is unknown or has a value that it does not take",
        "correct training_overrides, whose options the documentation's page workload lists, or workload.command of "
        "a workload of your own",
        "pytest-aorta's documentation, page workload",
    ),
    says(
        "loss_not_finite",
        "fatal",
        r"the loss is (?:nan|-?inf)|loss of rank \d+ is no finite number|norm of the gradients is (?:nan|-?inf)"
        r"|gradient overflow",
        "the training left the range of its numbers: learning rate, precision, or a device that computes wrongly",
        "run it with a lower optimizer.lr; if other hosts stay finite with the same seed, test the device",
        "pytest-aorta's documentation, page workload",
    ),
    says(
        "weights_differ",
        "fatal",
        r"different sets of weights",
        "ranks that should hold the same weights do not: silent corruption, or a collective that was left out",
        "run it again with the same seed; a rank that stands alone twice is a device to drain",
        "pytest-aorta's documentation, page metrics",
    ),
    says(
        "entry_missing",
        "fatal",
        r"no file (?!found|was|is|exists)\S+|can't open file|aorta_path to where the workload is",
        "a file that the configuration names is not where the workload looks for it",
        "correct aorta_path, base_config, train_script or workload.command, or the mount that should show it",
        _OWN,
    ),
    says(
        "checkouts_differ",
        "fatal",
        r"different (?:checkouts|commits)",
        "the hosts do not have the same version of the code",
        "bring them to one commit, or leave aorta_path out so that the bundled tree is sent",
        _OWN,
    ),
    says(
        "results_removed",
        "degrade",
        r"the list of files from before the launch is gone",
        "the run's folder below the results was removed or emptied while the run went on",
        "keep clean-up jobs and other people out of the folder of the results, then run it again",
        _OWN,
    ),
    says(
        "traces_of_before",
        "fatal",
        r"with the very bytes of one that was there before",
        "earlier traces were touched or copied, or the workload writes the same bytes in every run",
        "see that it writes its traces in this run; empty their folder before each run",
        _OWN,
    ),
    says(
        "no_fresh_traces",
        "fatal",
        r"has no .{0,200}written by this run(?!.{0,600}; the workload did not come to its end)"
        r"|wrote nothing where workload\.traces",
        "the workload wrote no profiler trace: profiling is off, or it ended before the profiled steps",
        "compare the number of steps with the profiler's schedule; see where its log ends",
        _OWN,
    ),
    says(
        "rank_twice",
        "fatal",
        r"has traces in \d+ folders",
        "two runs wrote to one place, or each host trained for itself, all of them as the same rank",
        "see that RANK differs from host to host (torchrun's --node_rank), and that the folder holds one run",
        _OWN,
    ),
    says(
        "trace_damaged",
        "degrade",
        r"no trace could be read|no event of it can be used|holds no data|is no report of one rank",
        "trace files are cut short: the workload was ended while it wrote, or the disk was full",
        "see whether every rank ended by itself, and the free space where it writes",
        _METRICS,
    ),
    says(
        "no_gpu_events",
        "fatal",
        r"no gpu event in the trace",
        "the profiler recorded no kernels: tracing of the GPU is not permitted or the activity is off",
        "allow profiling there (CAP_SYS_ADMIN, or the driver's option for users) and record GPU activity",
        "torch's profiler documentation",
    ),
    says(
        "kernel_log_unread",
        "fatal",
        r"kernel-log scan incomplete|reading it is not permitted",
        "the kernel log of a host could not be read, so nothing is known of its hardware",
        "allow `sudo -n dmesg` there, or enlarge log_buf_len when it was overwritten",
        "pytest-aorta's documentation, page how-to/bare-metal",
    ),
)


def _gates(key: str, names: tuple[str, ...], cause: str, next_step: str) -> Hint:
    return Hint(key, "degrade", cause, next_step, _METRICS, checks=frozenset(names))


# Told by the name of the check alone, so these come after everything that knows the words.
CHECKS = (
    _gates(
        "gate_slow_steps",
        (
            "max_avg_iteration_ms",
            "avg_iteration_time_ms",
            "step_time_ms_median",
            "step_time_ms_p95",
            "step_time_ms_max",
        ),
        "steps took longer than allowed: a slow rank holds up all others, clocks are low, or the limit is of another "
        "setup",
        "see in the deck whether one rank stands out, then clocks and power of its GPU; if all are alike, the fabric "
        "or the limit",
    ),
    _gates(
        "gate_little_compute",
        ("min_compute_ratio", "avg_compute_ratio"),
        "the GPUs waited too much: for data, for the host or for collectives",
        "see where the time goes in the deck: idle means data or host, exposed communication means fabric",
    ),
    _gates(
        "gate_little_overlap",
        ("min_overlap_ratio", "avg_overlap_ratio"),
        "collectives did not run beside computation: they were too slow, too late, or in the same stream",
        "compare NCCL channels and the transport with an earlier run; sockets in place of RDMA show here first",
    ),
    _gates(
        "gate_ranks_differ",
        ("max_time_variance_ratio", "time_variance_ratio"),
        "ranks differ: some wait for others in every step",
        "the deck names the straggler and its kind; look at that GPU's clocks, temperature and PCIe width",
    ),
    _gates(
        "kernel_log_notes",
        ("kernel_log_notes",),
        "the kernels wrote more notes than allowed: corrected errors, resets that ended well",
        "see which class and device they name; one device that gathers them is the next to fail",
    ),
    Hint(
        "ranks_missing",
        "fatal",
        "fewer or more ranks ran than were asked for",
        "compare nproc_per_node and gpus_per_node with what the workload starts",
        _OWN,
        checks=frozenset({"ranks", "missing_ranks"}),
    ),
    Hint(
        "rccl_build",
        "fatal",
        "RCCL could not be built on a host: compiler, ROCm headers, memory or network",
        "read its rccl log; skip_rccl_build uses the library of the image",
        "ROCm's RCCL documentation",
        checks=frozenset({"rccl_build", "rccl"}),
    ),
    Hint(
        "cleanup",
        "degrade",
        "something that was started could not be removed: the host, or its container engine, did not answer",
        "`aorta clean` when it answers again",
        _OWN,
        checks=frozenset({"teardown"}),
    ),
)
