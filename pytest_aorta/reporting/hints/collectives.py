"""Hints about collectives: NCCL, RCCL, torch's process groups, gloo, the rendezvous of torchrun."""

from __future__ import annotations

from pytest_aorta.reporting.hints.hint import says

_NCCL = "NCCL's user guide and source"
_RCCL = "ROCm's RCCL documentation"
_TORCH = "torch.distributed's source"
_ELASTIC = "torchrun's documentation"
_VERBS = "the verbs library's status codes"

COLLECTIVES = (
    says(
        "duplicate_gpu",
        "fatal",
        r"duplicate gpu detected",
        "two ranks use the same GPU: more ranks than visible GPUs, or a rank did not select its device",
        "set nproc_per_node to the number of visible GPUs and have each rank select the device of its local rank",
        _NCCL,
    ),
    says(
        "nccl_versions_differ",
        "fatal",
        r"mismatched nccl version",
        "the hosts load different versions of the collective library",
        "use one image (by digest) or one environment on all hosts; compare `torch.cuda.nccl.version()`",
        _NCCL,
    ),
    says(
        "ib_memlock",
        "fatal",
        r"ibv_(?:create_cq|reg_mr\w*|create_qp|alloc_pd)\b.{0,60}(?:cannot allocate memory|error 12\b|errno 12\b)",
        "the memory that a process may lock is too little for RDMA",
        "raise memlock to unlimited: `--ulimit memlock=-1` or IPC_LOCK for a container, limits.conf or the unit of the "
        "daemon on the host",
        _NCCL,
    ),
    says(
        "ib_gid",
        "fatal",
        r"ibv_modify_qp failed.{0,80}(?:no data available|invalid argument|no such device"
        r"|with (?:error )?(?:19|22|61)\b)",
        "the RoCE address (GID) chosen for a card is empty, of another kind, or not that of the network of the peers",
        "compare `show_gids` on the hosts; set NCCL_IB_GID_INDEX, or leave cards without an address out by NCCL_IB_HCA",
        _NCCL,
    ),
    says(
        "ib_connect",
        "fatal",
        r"ibv_modify_qp failed.{0,80}(?:timed out|with (?:error )?110\b)",
        "the RDMA address of a peer is not reached: no route between the two cards, or wrong VLAN",
        "try `ib_write_bw` between the two cards that the line names; check routes, VLAN and the subnet of each rail",
        _VERBS,
    ),
    says(
        "ib_retries_exceeded",
        "degrade",
        r"got completion.{0,120}(?:status=(?:IBV_WC_RETRY_EXC_ERR|12\b)|error 12\b)|IBV_WC_RETRY_EXC_ERR",
        "packets got no acknowledgement until all retries were used: a lossy or broken link, or the peer died",
        "see first whether another rank failed earlier; then the link counters, PFC and ECN of both ports, cable and "
        "switch",
        _VERBS,
    ),
    says(
        "ib_not_ready",
        "degrade",
        r"got completion.{0,120}(?:status=(?:IBV_WC_RNR_RETRY_EXC_ERR|13\b)|error 13\b)|IBV_WC_RNR_RETRY_EXC_ERR",
        "the peer posted no receive in time: it is stuck or much slower",
        "look for the rank that hangs or lags behind, not at the network first",
        _VERBS,
    ),
    says(
        "ib_protection",
        "fatal",
        r"got completion.{0,120}(?:status=(?:IBV_WC_(?:LOC_PROT|LOC_ACCESS|REM_ACCESS)_ERR|4\b|8\b|10\b)"
        r"|error (?:4|8|10)\b)",
        "the card may not read or write the memory it was given: often GPU memory without GPUDirect support",
        "check the peer-memory module or dma-buf support of the driver, ACS and IOMMU; NCCL_NET_GDR_LEVEL=LOC tells "
        "whether it is GPUDirect",
        _VERBS,
    ),
    says(
        "ib_port_event",
        "degrade",
        r"(?:async(?:hronous)? (?:fatal )?event|got async event).{0,80}(?:port|device|local|qp|lid|gid)",
        "the RDMA card reported an event while the run went on: port down, address changed, queue broken",
        "look at the kernel log of that host at that time, the port's counters and the switch",
        _VERBS,
    ),
    says(
        "nccl_no_interface",
        "fatal",
        r"no (?:usable (?:listening )?|socket )interface found|no interface found (?:that starts )?with",
        "no network interface has the name that NCCL_SOCKET_IFNAME asks for",
        "compare NCCL_SOCKET_IFNAME with `ip -br addr` on every host; names often differ between hosts",
        _NCCL,
    ),
    says(
        "nccl_net_plugin",
        "fatal",
        r"failed to initialize any net plugin|no (?:eligible|usable) network|net/\w+ : no device found",
        "the network that NCCL_NET asks for cannot be used: plugin or RDMA devices are missing, or of another version",
        "unset NCCL_NET and NCCL_NET_PLUGIN, give the container /dev/infiniband, or install the right plugin",
        _NCCL,
    ),
    says(
        "nccl_verbs_missing",
        "degrade",
        r"failed to open libibverbs|libibverbs\S*: cannot open shared object",
        "the image has no verbs library, so the collectives go over sockets",
        "install rdma-core (libibverbs1 and the provider of the card) into the image",
        _NCCL,
        is_everyday=True,
    ),
    says(
        "shared_memory_small",
        "fatal",
        r"(?:failed to extend|error while (?:creating|attaching to) shared memory segment).{0,20}/dev/shm"
        r"|(?:insufficient|out of) shared memory|unable to (?:write|open) .{0,60}/dev/shm|/dev/shm.{0,60}no space left",
        "shared memory (/dev/shm) is too small for the ranks or the data loader of this host",
        "set shm_size (8g and more) or ipc: host in container.runtime.args",
        _NCCL,
    ),
    says(
        "fabric_manager",
        "fatal",
        r"system not yet initialized|cudaErrorSystemNotReady|error 802\b",
        "the NVSwitch fabric is not up: the fabric manager does not run, or is of another version than the driver",
        "`systemctl status nvidia-fabricmanager` on that host; its version must be that of the driver",
        "NVIDIA's fabric manager guide",
    ),
    says(
        "peer_access",
        "fatal",
        r"peer access is not supported|cannot enable peer access|hipErrorPeerAccessUnsupported",
        "the GPUs cannot reach each other's memory: virtual machine, PCIe access control (ACS) or topology",
        "NCCL_P2P_DISABLE=1 tells whether that is all; then IOMMU and ACS settings, `nvidia-smi topo -m` or `rocm-smi "
        "--showtopo`",
        _NCCL,
    ),
    says(
        "rccl_iommu",
        "degrade",
        r"missing \"?(?:iommu=pt|amd_iommu=on)",
        "the kernel was booted without IOMMU pass-through, with which transfers between GPUs may hang",
        "add iommu=pt to the kernel's command line and reboot the host",
        _RCCL,
        is_everyday=True,
    ),
    says(
        "rccl_numa_balancing",
        "degrade",
        r"numa auto balancing (?:is )?enabled",
        "the kernel moves memory between NUMA nodes while the run goes on, which costs time and may hang",
        "`sysctl kernel.numa_balancing=0` on that host",
        _RCCL,
        is_everyday=True,
    ),
    says(
        "ddp_shapes_differ",
        "fatal",
        r"DDP expects same model|params? \[?\d+\]? in (?:this process|rank).{0,80}(?:size|shape)|collectives differ"
        r"|Detected mismatch between collectives on ranks",
        "the ranks built different models or call different collectives",
        "give all ranks the same configuration, seed and code; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call",
        _TORCH,
    ),
    says(
        "port_taken",
        "fatal",
        r"EADDRINUSE|address already in use|errno: 98\b|failed to listen on any local network address",
        "the rendezvous port is in use: another job, or a rank of an earlier one",
        "set multi_node.master_port to 0 so that a free port is chosen; `ss -ltnp` shows who holds it",
        _ELASTIC,
    ),
    says(
        "rendezvous_unreachable",
        "fatal",
        r"cannot reach the rendezvous|RendezvousConnectionError|the client socket has (?:failed|timed out)"
        r".{0,60}connect|failed to connect to .{0,60}:\d+.{0,40}rendezvous",
        "the other hosts cannot reach the head's rendezvous: wrong address, firewall, or a name that means loopback",
        "set vpc_ip of the head or multi_node.master_addr to an address that the others reach; for a firewall "
        "multi_node.master_port fixes the port",
        _ELASTIC,
    ),
    says(
        "rendezvous_timeout",
        "degrade",
        r"RendezvousTimeoutError|timed out waiting for (?:all )?(?:clients|peers|workers)"
        r"|\d+/\d+ clients joined|store(?:based)?barrier.{0,60}timed? ?out",
        "not all hosts came to the rendezvous in time",
        "see which host's log ends first: it did not start, or it started with other node counts or another address",
        _ELASTIC,
    ),
    says(
        "gloo_interface",
        "fatal",
        r"gloo.{0,160}(?:unable to resolve|unable to find address|cannot assign requested)"
        r"|gloo connectFullMesh failed.{0,300}remote=\[(?:127\.|::1\])|GLOO_SOCKET_IFNAME(?! ?[=:'])",
        "gloo finds no network address: no interface is called as GLOO_SOCKET_IFNAME says, or its own name stands "
        "for loopback or nothing",
        "set multi_node.extra_env.GLOO_SOCKET_IFNAME to an interface that `ip -br addr` shows on every host, or add "
        "each host's own name with its address to /etc/hosts there",
        _TORCH,
    ),
)

# What is seen when ranks wait: why they do may be told by anything else that was seen.
WAITING = (
    says(
        "collective_hang",
        "degrade",
        r"watchdog caught collective operation timeout|collective operation timeout"
        r"|collective timeout(?! ?(?:[=:(\d]|of|is))|no step for \d+ s(?: after step \d+| before the first step)",
        "ranks wait for a collective that at least one rank did not enter, or whose data never came",
        "look at the rank that stands elsewhere than the others (named first where stacks were taken); if all stand "
        "in a collective, look at the fabric between them",
        _TORCH,
    ),
    says(
        "barrier_missing_ranks",
        "degrade",
        r"monitoredBarrier|ranks? [\d, ]+ failed to pass",
        "the ranks that are listed did not come to the barrier in time",
        "read what those ranks said last; the others only waited",
        _TORCH,
    ),
)

# What a rank says when a peer is gone: told only when nobody said why that peer went.
FOLLOWERS = (
    says(
        "peer_lost",
        "note",
        r"lost a peer or waited for it in vain|ncclRemoteError|remote process exited|communicator was aborted"
        r"|caused pair closure|ended because rank \d+ failed",
        "another rank or host went first, and this one lost the connection to it",
        "look for the rank that failed first, and at the kernel log and power of its host",
        _NCCL,
    ),
)

# What the library calls an error without saying more.
UNSPECIFIC = (
    says(
        "connection_lost",
        "note",
        r"connection (?:reset|closed|abort\w*) by (?:remote )?peer|broken pipe|socket closed"
        r"|connection was likely closed",
        "the other end of a connection went away",
        "look at what that end said last: its log, its kernel log, its power",
        _TORCH,
    ),
    says(
        "nccl_cuda_error",
        "fatal",
        r"ncclUnhandledCudaError|unhandled (?:cuda|hip) error",
        "a GPU call inside the collective library failed: an earlier error of the GPU, or libraries that do not match",
        "look at the kernel log for that GPU; NCCL_DEBUG=WARN prints the call",
        _NCCL,
    ),
    says(
        "nccl_invalid_usage",
        "fatal",
        r"ncclInvalid(?:Usage|Argument)|nccl error.{0,200}invalid (?:usage|argument)",
        "the collective library was called wrongly: ranks that disagree, a device twice, a setting it does not know",
        "NCCL_DEBUG=WARN prints what it refuses; check NCCL_* variables that are set",
        _NCCL,
    ),
    says(
        "nccl_internal_error",
        "degrade",
        r"ncclInternalError|nccl error.{0,200}internal error",
        "the collective library met something it did not expect: often topology, memory or a bug of this version",
        "NCCL_DEBUG=INFO prints the place; try another version of the library on the same hosts",
        _NCCL,
    ),
    says(
        "nccl_system_error",
        "degrade",
        r"ncclSystemError|unhandled system error",
        "a system call of the collective library failed: sockets, RDMA or shared memory",
        "NCCL_DEBUG=WARN prints the call; then limits (memlock, nofile, /dev/shm) and the network of that host",
        _NCCL,
    ),
)
