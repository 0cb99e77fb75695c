"""Failures of runs, as they are really worded: collectives, workload, checks, endings."""

from __future__ import annotations

from tests.reporting.hint_lines import Lines

_WC = "transport/net_ib/p2p.cc:648 NCCL WARN NET/IB: Got completion from peer 10.1.0.7<40554> with "

COLLECTIVES = (
    Lines(
        "duplicate_gpu",
        ("init.cc:738 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000",),
        ("duplicate key in the file",),
    ),
    Lines(
        "nccl_versions_differ",
        ("NCCL WARN Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703",),
        ("NCCL version 2.27.5+cuda12.8",),
    ),
    Lines(
        "ib_memlock",
        (
            "misc/ibvwrap.cc:203 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
            "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        ),
        ("Call to ibv_create_cq failed with error Invalid argument", "OSError: Cannot allocate memory"),
    ),
    Lines(
        "ib_gid",
        (
            "NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev mlx5_0:1, curr state INIT",
            "NCCL WARN Call to ibv_modify_qp failed with error No such device",
        ),
        ("NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out",),
    ),
    Lines(
        "ib_connect",
        ("NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, dev rocep1s0f0",),
        ("NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument",),
    ),
    Lines(
        "ib_retries_exceeded",
        (
            f"{_WC}status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RECV_RDMA_WITH_IMM(129) vendor_err=129",
            f"{_WC}status=12 opcode=129 len=0 vendor err 129 (Recv)",
            "NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)",
        ),
        (f"{_WC}status=5 opcode=0 len=12 vendor err 249", f"{_WC}status=120 opcode=1"),
    ),
    Lines(
        "ib_not_ready",
        (f"{_WC}status=13 opcode=0 len=0 vendor err 135 (Send)",),
        (f"{_WC}status=5 opcode=13",),
    ),
    Lines(
        "ib_protection",
        (
            f"{_WC}status=4 opcode=32614 len=32614 vendor err 81 (Send)",
            f"{_WC}status=IBV_WC_REM_ACCESS_ERR(10) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=136",
        ),
        (f"{_WC}status=5 opcode=4 len=8",),
    ),
    Lines(
        "ib_port_event",
        ("NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [RO]",),
    ),
    Lines(
        "nccl_no_interface",
        ("bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",),
        ("NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",),
    ),
    Lines(
        "nccl_net_plugin",
        ("NCCL WARN Failed to initialize any NET plugin",),
        ("NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",),
    ),
    Lines(
        "nccl_verbs_missing",
        ("misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",),
        ("libibverbs-dev is installed",),
    ),
    Lines(
        "shared_memory_small",
        (
            "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-UbzKZ9 to 9637892 bytes",
            "RuntimeError: DataLoader worker (pid 8) is killed by signal: Bus error; workers are out of shared memory.",
            "OSError: [Errno 28] /dev/shm/nccl-1: No space left on device",
        ),
        ("8 GiB of /dev/shm are free",),
    ),
    Lines(
        "fabric_manager",
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",),
        ("the file system is not initialized",),
    ),
    Lines(
        "peer_access",
        ("transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'",),
        ("the peer is not supported", "access is not permitted"),
    ),
    Lines(
        "rccl_iommu",
        ('init.cc:303 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity',),
        ("the command line has iommu=pt",),
    ),
    Lines(
        "rccl_numa_balancing",
        ("NCCL WARN NUMA auto balancing enabled which can lead to variability in the RCCL performance!",),
        ("NUMA nodes: 2",),
    ),
    Lines(
        "ddp_shapes_differ",
        (
            "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 8 params.",
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE",
        ),
        ("the collectives of all ranks are alike",),
    ),
    Lines(
        "port_taken",
        (
            "DistNetworkError: The server socket has failed to listen on any local network address. port: 29500",
            "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            "could not measure: n1: port 29500: [Errno 98] Address already in use; set multi_node.master_port to 0",
        ),
        ("the image is in use", "port 98"),
    ),
    Lines(
        "rendezvous_unreachable",
        (
            "could not measure: n2: cannot reach the rendezvous at 10.0.0.1:29500 on n1 (No route to host); set ...",
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has",
        ),
        ("the rendezvous is reached by all hosts",),
    ),
    Lines(
        "rendezvous_timeout",
        (
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
            "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        ),
        ("2 clients",),
    ),
    Lines(
        "gloo_interface",
        (
            "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] Unable to find address for: x",
            "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting, remote=[127.0.0.1]:1$0",
        ),
        ("the backend is gloo", "GLOO_SOCKET_IFNAME=eth0", "Gloo connectFullMesh failed, remote=[10.0.0.1]:1"),
    ),
)

WORKLOAD = (
    Lines(
        "trainer_refuses",
        ("could not measure: n1: the trainer refuses its configuration: train.py: optimizer.lr is -1",),
        ("the host refuses the connection",),
    ),
    Lines(
        "loss_not_finite",
        ("rank 1 exited 3: the loss is nan on rank 1 at step 4, expected a finite number",),
        ("the loss is 4.2 on rank 1", "finance is nan"),
    ),
    Lines(
        "weights_differ",
        ("the ranks ended with 2 different sets of weights: ranks 0, 1, 2; rank 3 stands alone",),
        ("two sets of files",),
    ),
    Lines(
        "entry_missing",
        (
            "could not measure: n1: no file scripts/launch_rocm.sh; correct aorta_path",
            "python3: can't open file '/opt/aorta/train.py': [Errno 2] No such file or directory",
        ),
        ("no files were lost", "nofile is 1024", "no file found, starting at step 0"),
    ),
    Lines(
        "checkouts_differ",
        ("the hosts have different checkouts in /opt/aorta: 1a2b on n1, 3c4d on n2; make them equal",),
        ("different hosts",),
    ),
    Lines(
        "results_removed",
        ("1 of 1 hosts gave no traces: n1: the list of files from before the launch is gone; it is unknown",),
        ("the list of files from before the launch",),
    ),
    Lines(
        "traces_of_before",
        ("n1 has no trace file written by this run in /mnt; 2 with the very bytes of one that was there before",),
        ("the bytes of one that was there",),
    ),
    Lines(
        "no_fresh_traces",
        (
            "n2 has no trace file below a folder torch_profiler written by this run (newer than launch) in /work",
            "n2: the workload wrote nothing where workload.traces says (/mnt/out)",
        ),
        (
            "measured, bad: 1 of 2 hosts gave no traces: n2 did not answer",
            "no node gave a usable trace tree",
            "n2 has no trace file written by this run (newer than launch) in /w; the workload did not come to its end",
            "2 of 2 hosts gave traces",
        ),
    ),
    Lines(
        "rank_twice",
        ("no trace could be read: rank 0 has traces in 2 folders, among them node_0/out and node_1/out: two runs",),
        ("rank 0 has 2 traces",),
    ),
    Lines(
        "trace_damaged",
        ("no trace could be read: rank0.json.gz: holds no data; expected a profiler trace in JSON",),
        ("every trace was read",),
    ),
    Lines(
        "no_gpu_events",
        ("no GPU event in the trace of rank 1 although accelerator is rocm",),
        ("GPU events of rank 1: 512",),
    ),
    Lines(
        "kernel_log_unread",
        ("n1: kernel-log scan incomplete: reading it is not permitted; run as root or allow `sudo -n dmesg`",),
        ("n1: kernel log clean since launch (4 lines)",),
    ),
)

WAITING = (
    Lines(
        "collective_hang",
        (
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE) ran for 9",
            "measured, bad: no step for 120 s after step 14: rank 0 in wait (work.py:9)",
        ),
        ("the step timer", "no step log of rank 1", "collective timeout: 600 s"),
    ),
    Lines(
        "barrier_missing_ranks",
        ("RuntimeError: Rank 0 failed to pass monitoredBarrier in 30000 ms; ranks 2, 3 failed to pass",),
        ("the barrier was passed by all ranks",),
    ),
)

FOLLOWERS = (
    Lines(
        "peer_lost",
        (
            "rank 0 lost a peer or waited for it in vain (ncclSystemError: System call failed); rank 1 had not failed",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        ),
        ("a peer was found",),
    ),
)

CHECKS = (
    Lines(
        "gate_slow_steps",
        ("mean iteration 20.00 ms is above 10 ms",),
        ("",),
        "[threshold] (metric=max_avg_iteration_ms)",
    ),
    Lines("gate_little_compute", ("0.1 is below 0.4",), ("",), "[threshold] (metric=min_compute_ratio)"),
    Lines("gate_little_overlap", ("0.1 is below 0.4",), ("",), "[threshold] (metric=min_overlap_ratio)"),
    Lines("gate_ranks_differ", ("0.3 is above 0.1",), ("",), "[threshold] (metric=max_time_variance_ratio, rank=3)"),
    Lines("kernel_log_notes", ("12 is above 0",), ("",), "[threshold] (metric=kernel_log_notes)"),
    Lines("ranks_missing", ("3 ranks were seen running",), ("",), "[evidence] (check=ranks)"),
    Lines("rccl_build", ("n1: make ended badly",), ("",), "[evidence] (host=n1, check=rccl_build)"),
    Lines("cleanup", ("n1: the work folder stays",), ("",), "[teardown]"),
)

UNSPECIFIC = (
    Lines(
        "connection_lost",
        ("rank 0 exited 1: RuntimeError: Connection closed by peer [10.0.0.2]:4242", "BrokenPipeError: Broken pipe"),
        ("the connection was closed by us",),
    ),
    Lines(
        "nccl_cuda_error",
        ("ncclUnhandledCudaError: Call to CUDA function failed.",),
        ("all errors were handled",),
    ),
    Lines(
        "nccl_invalid_usage",
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",),
        ("invalid usage: train.py [-h]",),
    ),
    Lines("nccl_internal_error", ("ncclInternalError: Internal check failed.",), ("an internal check",)),
    Lines(
        "nccl_system_error",
        ("DistBackendError: NCCL error in: x.cpp:94, unhandled system error, NCCL version 2.27.5",),
        ("the system has an error log",),
    ),
)

ENDINGS = (
    Lines("ended_sigbus", ("rank 2 was ended by SIGBUS", "the workload exited 135"), ("bus 135", "SIGBUS is 7")),
    Lines("ended_sigsegv", ("rank 2 was ended by SIGSEGV", "the workload exited 139"), ("139 steps",)),
    Lines("ended_sigill", ("rank 2 was ended by SIGILL",), ("rank 2 is ill",)),
    Lines("ended_sigfpe", ("rank 2 was ended by SIGFPE",), ("rank 2 exited 0",)),
    Lines("ended_sigkill", ("rank 2 was ended by SIGKILL", "the workload exited 137"), ("137 hosts", "exited 1375")),
    Lines("ended_sigabrt", ("rank 2 was ended by SIGABRT", "exitcode: -6"), ("6 ranks ended after it",)),
    Lines("not_executable", ("n1: the workload exited 126",), ("126 GiB",)),
    Lines("command_missing", ("n1: the workload exited 127",), ("127.0.0.1",)),
    Lines("wrong_usage", ("n1: bash exited 2",), ("rank 2", "exited 20")),
    Lines("engine_failed", ("docker exited 125",), ("125 ms",)),
    Lines("timed_out", ("n1: timeout exited 124",), ("124 ms",)),
    Lines("ended_from_outside", ("rank 1 was ended by SIGTERM", "the workload exited 143"), ("exited 14",)),
)
