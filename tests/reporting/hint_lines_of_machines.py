"""Failures of machines, as they are really worded: kernel log, devices, hosts."""

from __future__ import annotations

from tests.reporting.hint_lines import Lines

KERNEL = (
    Lines(
        "kernel_nv_bus",
        ("n1: kernel log: nv_xid_bus: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",),
        ("n1: nv_xid_bus was not seen", "GPU has fallen behind"),
    ),
    Lines(
        "kernel_pcie",
        ("n1: kernel log: pcie_dpc_hotplug: pcieport 0000:40:01.1: DPC: containment event",),
        ("n1: kernel log: pcie_aer_corrected: AER: Corrected error received",),
    ),
    Lines(
        "kernel_cpu_or_dimm",
        ("n1: kernel log: edac_ue: EDAC MC0: 1 UE memory read error on CPU_SrcID#0",),
        ("n1: kernel log: edac_ce: EDAC MC0: 1 CE memory read error",),
    ),
    Lines(
        "kernel_gpu_memory",
        ("n1: kernel log: amd_ras_ue: amdgpu 0000:c6:00.0: 2 uncorrectable hardware errors detected in umc block",),
        ("n1: kernel log: amd_ras_ce: 2 correctable hardware errors detected in umc block",),
    ),
    Lines(
        "kernel_gpu_links",
        ("n1: kernel log: nv_sxid: nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault",),
        ("n1: the NVLink counters are equal",),
    ),
    Lines(
        "kernel_gpu_firmware",
        ("n1: kernel log: amd_gpu_reset_failed: amdgpu 0000:c6:00.0: GPU reset end with ret = -19",),
        ("n1: kernel log: amd_gpu_reset_ok: amdgpu 0000:c6:00.0: GPU reset succeeded",),
    ),
    Lines(
        "kernel_page_fault",
        ("n1: kernel log: amd_page_fault: amdgpu 0000:c6:00.0: [gfxhub] no-retry page fault (src_id:0 ring:0)",),
        ("n1: kernel log: amd_page_fault_detail: Faulty UTCL2 client ID: TCP",),
    ),
    Lines(
        "kernel_gpu_reset",
        ("n1: kernel log: user_traceback: x (x3); amd_gpu_reset: amdgpu 0000:c6:00.0: GPU reset begin!",),
        ("n1: amd_gpu_reset is a class of docs/kernel-log.md",),
    ),
    Lines(
        "kernel_oom",
        ("n1: kernel log: oom_kill: Out of memory: Killed process 4242 (python3) total-vm:91234567kB",),
        ("the word oom_kill alone",),
    ),
    Lines(
        "kernel_network_card",
        ("n1: kernel log: nic_fw_fatal: mlx5_core 0000:08:00.0: poll_health: device's health compromised",),
        ("n1: mlx5_core 0000:08:00.0: firmware version: 20.99.1",),
    ),
    Lines(
        "kernel_network_link",
        ("n1: kernel log: nic_link_down: bnxt_en 0000:21:00.0 ens1f0np0: NIC Link is Down",),
        ("n1: all links are up",),
    ),
    Lines(
        "kernel_iommu",
        ("n1: kernel log: iommu_fault: AMD-Vi: Event logged [IO_PAGE_FAULT device=c6:00.0 domain=0x0015]",),
        ("n1: AMD-Vi: Interrupt remapping enabled",),
    ),
    Lines(
        "kernel_storage",
        ("n1: kernel log: nvme_error: nvme0n1: I/O Cmd(0x2) @ LBA 1234, 8 blocks, I/O Error (sct 0x2 / sc 0x81)",),
        ("n1: nvme0n1: 64 queues",),
    ),
    Lines(
        "kernel_crash",
        ("n1: kernel log: lockup: watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4242]",),
        ("n1: the watchdog is enabled",),
    ),
    Lines(
        "kernel_process_crash",
        ("n1: kernel log: user_segfault: python3[4242]: segfault at 0 ip 00007f00 sp 00007ffe in librccl.so.1",),
        ("n1: kernel log: user_traceback: Traceback (most recent call last)",),
    ),
    Lines(
        "kernel_heat",
        ("n1: kernel log: cpu_thermal: CPU3: Core temperature is above threshold, cpu clock is throttled",),
        ("n1: the temperature is 61 C",),
    ),
    Lines(
        "kernel_hardware",
        ("n1: kernel log: hardware_error: xyz 0000:01:00.0: hardware failure detected",),
        ("n1: Hardware name: Example R5300",),
    ),
)

DEVICES = (
    Lines(
        "gpu_memory",
        (
            "rank 3 exited 1: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB",
            "RuntimeError: CUDA error: out of memory",
        ),
        ("MemoryError", "the out of memory handler of the cgroup"),
    ),
    Lines(
        "gpu_ecc",
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered",),
        ("0 uncorrectable errors were counted",),
    ),
    Lines(
        "gpu_illegal_access",
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered",),
        ("an illegal option was given",),
    ),
    Lines(
        "gpu_memory_fault",
        ("Memory access fault by GPU node-4 (Agent handle: 0x26ff9f00) on address 0x7edb. Reason: Unknown.",),
        ("memory access pattern of GPU node-4",),
    ),
    Lines(
        "gpu_hang",
        (
            "HW Exception by GPU node-1 (Agent handle: 0x55d5) reason :GPU Hang",
            "CUDA error: unspecified launch failure",
        ),
        ("the run hangs",),
    ),
    Lines(
        "gpu_wrong_build",
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            'RuntimeError: "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
        ),
        ("the kernel image was booted",),
    ),
    Lines(
        "gpu_driver_old",
        ("RuntimeError: CUDA driver version is insufficient for CUDA runtime version",),
        ("the driver version is 570.1",),
    ),
    Lines(
        "gpu_ordinal",
        ("torch.AcceleratorError: HIP error: invalid device ordinal",),
        ("invalid device name", "ordinal 3"),
    ),
    Lines(
        "gpu_none",
        ("RuntimeError: No HIP GPUs are available", "RuntimeError: Found no NVIDIA driver on your system."),
        ("no rank has GPUs to spare",),
    ),
    Lines(
        "kfd_denied",
        ("Unable to open /dev/kfd read-write: Permission denied", "/dev/dri/renderD128: Operation not permitted"),
        ("/dev/null: Permission denied",),
    ),
    Lines(
        "device_missing",
        (
            "could not measure: n1: no /dev/infiniband/uverbs0; load the RDMA driver there or take the device out",
            "docker: error gathering device information while adding custom device",
        ),
        ("the host has /dev/infiniband/uverbs0",),
    ),
    Lines(
        "gpus_none",
        (
            "n1 shows 0 cuda devices but has /dev/kfd, gpus_per_node is 8",
            "n1: the trainer refuses its configuration: x (no GPU was found on the head host, so the CPU was taken)",
        ),
        ("n1 shows 0 rows", "n1 shows 10 reports"),
    ),
    Lines(
        "gpus_too_few",
        ("n1 shows 7 rocm devices, gpus_per_node is 8", "n1 shows 1 rocm device, gpus_per_node is 2"),
        ("n1 shows 8 rows",),
    ),
    Lines(
        "gpu_off_the_bus",
        ("NVRM: GPU at PCI:0000:3b:00: GPU has fallen off the bus.", "handle for GPU 0000:3B:00.0: GPU is lost."),
        ("the bus of GPU 0000:3B:00.0", "no packet is lost"),
    ),
    Lines(
        "hsa_resources",
        ("Call returned HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.",),
        ("HSA_STATUS_SUCCESS",),
    ),
    Lines(
        "gpu_container_toolkit",
        ('could not select device driver "" with capabilities: [[gpu]]', "Failed to initialize NVML: Unknown Error"),
        ("select a device by its number",),
    ),
)

LOST = (
    Lines(
        "host_lost",
        (
            "n1: the channel broke: Connection reset by peer: it is down or cut off",
            "n1 rebooted during the run",
            "n2: nothing was heard from it for 90 s: it is down or cut off; no step for 120 s after step 14",
            "n2: the channel broke: it is down or cut off; n1: kernel log: nic_link_down: mlx5_core eth0: Link down",
            "n1: nothing was heard from it for 90 s: it is down or cut off; n1: kernel-log scan incomplete",
            "1 of 2 hosts gave no traces: n1: nothing was heard from it for 90 s: it is down or cut off",
        ),
        ("the channel is open",),
    ),
)

HOSTS = (
    Lines(
        "session_lost",
        (
            "node2: its SSH session ended (the connection to 10.0.0.2 was lost), and the host answers over a new one",
            "1 of 2 hosts gave no traces: node2: its SSH session ended (gone), and the host answers over a new one",
            "n1: nothing was heard from it for 90 s, yet the host answers over a new connection",
        ),
        ("its SSH session began",),
    ),
    Lines(
        "host_name",
        (
            "n1: no SSH connection (n1): the name n1 does not resolve (Name or service not known), expected a name",
            "ssh: Could not resolve hostname n9: Temporary failure in name resolution",
        ),
        ("the name of the service",),
    ),
    Lines(
        "host_key_changed",
        ("n1: the host key has changed since it was accepted", "Host key verification failed."),
        ("the host key is ED25519",),
    ),
    Lines(
        "host_key_unknown",
        ("n1: no SSH connection: its host key SHA256:abc is not known, expected it in ~/.ssh/known_hosts",),
        ("the key file is not known",),
    ),
    Lines(
        "ssh_refused",
        (
            "n1: user root was not let in (tried ~/.ssh/id), expected one of them to open it; check username",
            "root@n1: Permission denied (publickey,password).",
        ),
        ("/data: Permission denied",),
    ),
    Lines(
        "ssh_overloaded",
        ("n1: it hung up during the greeting, expected sshd; is it overloaded (MaxStartups), or no sshd at all?",),
        ("the banner is shown",),
    ),
    Lines(
        "host_unreachable",
        (
            "n1: no SSH connection (n1): no answer within 10 s, expected sshd; is the host up",
            "ssh: connect to host n1 port 22: Connection refused",
            "OSError: [Errno 113] No route to host",
        ),
        ("the host is up", "no answer within 60 s", "could not get the image a: n1: connect: network is unreachable"),
    ),
    Lines(
        "node_program_ended",
        (
            "n1: the node program ended; no step for 120 s after step 14",
            "n1: the node program said no hello within 30 s",
        ),
        ("the node program runs",),
    ),
    Lines(
        "no_python",
        ("bash: python3: command not found", "n1: no python3"),
        ("python3 is 3.11",),
    ),
    Lines(
        "no_torch",
        ("could not measure: n1: python3 has no torch, which the workload needs", "No module named 'torch'"),
        ("No module named 'torchvision'", "has torch 2.9"),
    ),
    Lines(
        "no_module",
        ("ModuleNotFoundError: No module named 'flash_attn'",),
        ("no modules are loaded",),
    ),
    Lines(
        "shared_library_missing",
        (
            "ImportError: libamdhip64.so.6: cannot open shared object file: No such file or directory",
            "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by x)",
        ),
        ("the shared folder is open",),
    ),
    Lines(
        "disk_full_here",
        (
            "2 of 2 hosts gave no traces: traces cannot be kept in /r/01a on this machine: No space left on device",
            "/r/run.json: No space left on device; free space or permissions on this machine, then run again",
        ),
        ("n1: the folder /tmp/x cannot be written: No space left on device; free space there",),
    ),
    Lines(
        "disk_full",
        (
            "could not measure: n1: [Errno 28] No space left on device",
            "n1: 90 MiB free in /tmp, at least 512 MiB are needed",
        ),
        ("there is space left",),
    ),
    Lines(
        "root_squash",
        (
            "mkdir: cannot create directory '/shared/results': Permission denied",
            "chown: changing ownership of '/mnt/nfs/x': Operation not permitted",
        ),
        ("/opt/x: Permission denied", "/mnt/data is mounted"),
    ),
    Lines(
        "stale_mount",
        ("OSError: [Errno 116] Stale file handle: '/data/tokens.bin'",),
        ("a stale lock file",),
    ),
    Lines("read_only", ("OSError: [Errno 30] Read-only file system: '/work'",), ("the file is read only once",)),
    Lines(
        "folder_not_writable",
        ("could not measure: n1: the folder /root/.cache/x cannot be written: Permission denied",),
        ("the folder /root/.cache/x is written",),
    ),
    Lines("io_error", ("OSError: [Errno 5] Input/output error",), ("the input and output",)),
    Lines("files_limit", ("OSError: [Errno 24] Too many open files",), ("240 open files",)),
    Lines(
        "processes_limit",
        ("RuntimeError: can't start new thread", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
        ("a new thread was started",),
    ),
    Lines(
        "host_memory",
        (
            "OSError: [Errno 12] Cannot allocate memory",
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=6.0.",
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
        ),
        ("the memory was allocated", "the room is full"),
    ),
    Lines(
        "engine_denied",
        ("permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",),
        ("docker is permitted",),
    ),
    Lines(
        "engine_down",
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",),
        ("the docker daemon runs",),
    ),
    Lines(
        "engine_silent",
        (
            "node2: `docker version` was not done within 30 s",
            "its container aorta cannot be looked at (`docker container inspect` was not done within 5 s)",
            "container 5f0c: `podman rm` was not done within 30 s",
        ),
        ("the RCCL build was not done within 30 s",),
    ),
    Lines(
        "image_login",
        ("pull access denied for acme/train, repository does not exist or may require 'docker login'",),
        ("the image was pulled",),
    ),
    Lines(
        "image_rate_limit",
        ("toomanyrequests: You have reached your unauthenticated pull rate limit.",),
        ("the rate is limited",),
    ),
    Lines(
        "image_missing", ("manifest for rocm/pytorch:nope not found: manifest unknown",), ("the manifest is signed",)
    ),
    Lines(
        "registry_unreachable",
        ('Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host',),
        ("the registry answers",),
    ),
    Lines(
        "container_name_taken",
        ('Conflict. The container name "/aorta" is already in use by container "5f0c"',),
        ("the container is in use",),
    ),
    Lines(
        "container_paused",
        ("n1: its container aorta is paused; let it go on: `docker unpause aorta` on n1; who paused it?",),
        ("the run is paused",),
    ),
    Lines(
        "container_gone",
        (
            "n1: its container aorta is gone (no such container); who removed it?",
            "n1: its container aorta was restarted 3 s ago, while the run lived in it",
        ),
        ("the container runs",),
    ),
    Lines("sudo_password", ("sudo: a password is required",), ("the password is long",)),
    Lines(
        "slurm_time_limit",
        ("slurmstepd: error: *** JOB 107 ON n1 CANCELLED AT 2026-01-30T16:00:24 DUE TO TIME LIMIT ***",),
        ("the time limit is 4 h",),
    ),
    Lines(
        "slurm_node_failure",
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-30T16:00:24 DUE TO NODE FAILURE ***",),
        ("1 node failed its check",),
    ),
    Lines(
        "slurm_preempted",
        ("slurmstepd: error: *** JOB 107 ON n1 CANCELLED AT 2026-01-30T16:00:24 DUE TO PREEMPTION ***",),
        ("the kernel has preemption",),
    ),
    Lines(
        "slurm_refused",
        ("srun: error: Unable to allocate resources: Job violates accounting/QOS policy (job submit limit)",),
        ("the resources are allocated",),
    ),
    Lines(
        "clock_wrong", ("make: warning: Clock skew detected.  Your build may be incomplete.",), ("the clock is right",)
    ),
    Lines(
        "program_missing",
        (
            "bash: torchrun: command not found",
            "[default0]:/opt/launch.sh: line 3: torchrun: command not found",
            "/bin/sh: 1: torchrun: not found",
            'exec: "torchrun": executable file not found in $PATH',
        ),
        ("checkpoint: not found", "no crash: nothing was found"),
    ),
)
