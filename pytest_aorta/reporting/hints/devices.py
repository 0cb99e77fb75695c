"""Hints about accelerators: CUDA, HIP and ROCm errors, and devices that are not there."""

from __future__ import annotations

from pytest_aorta.reporting.hints.hint import says

_CUDA = "NVIDIA's CUDA runtime documentation"
_HIP = "ROCm's HIP documentation"
_ROCM = "ROCm's installation guide"
_OWN = "pytest-aorta's documentation, page configuration"
_TORCH = "torch's memory documentation"

DEVICES = (
    says(
        "gpu_memory",
        "fatal",
        r"(?:cuda|hip|cudaError|hipError) ?(?:error: )?out ?of ?memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
        r"|NCCL WARN.{0,80}out of memory",
        "the model and batch need more GPU memory than is free, or another process holds some of it",
        "see whether the GPU was empty before the launch; else a smaller batch or sequence, or more sharding",
        _TORCH,
    ),
    says(
        "gpu_ecc",
        "fatal",
        r"uncorrectable (?:ecc|nvlink) error|hipErrorECCNotCorrectable|cudaErrorECCUncorrectable",
        "the GPU's memory or link gave data that cannot be corrected",
        "reset or drain that GPU and see its ECC counters; replace it when it comes again",
        _CUDA,
    ),
    says(
        "gpu_illegal_access",
        "fatal",
        r"illegal memory access|hipErrorIllegalAddress|device-side assert(?!ions)|misaligned address",
        "a kernel of the workload touched memory that is not its own, or an index was out of range",
        "run again with CUDA_LAUNCH_BLOCKING=1 or AMD_SERIALIZE_KERNEL=3 to see which; if other hosts run it well, "
        "test the GPU",
        _CUDA,
    ),
    says(
        "gpu_memory_fault",
        "fatal",
        r"memory access fault by gpu",
        "a kernel read or wrote an address that is not mapped on the GPU",
        "run again with AMD_SERIALIZE_KERNEL=3 to see which kernel; compare driver and ROCm of the image with the host",
        _HIP,
    ),
    says(
        "gpu_hang",
        "fatal",
        r"HW Exception by GPU|\bGPU hang\b|HSA_STATUS_ERROR_EXCEPTION|unspecified launch failure|the launch timed out",
        "a kernel did not end or the GPU stopped answering",
        "look at the kernel log of that host for a reset; reset the GPU or reboot before the next run",
        _HIP,
    ),
    says(
        "gpu_wrong_build",
        "fatal",
        r"no kernel image is available|hipErrorNoBinaryForGpu|invalid device function|hipErrorInvalidDeviceFunction"
        r"|invalid kernel file|unsupported gpu architecture",
        "torch, or a library beside it, was built for other GPUs than this host has",
        "use a build for this architecture; HSA_OVERRIDE_GFX_VERSION set by somebody does this too",
        _CUDA,
    ),
    says(
        "gpu_driver_old",
        "fatal",
        r"driver version is insufficient|cudaErrorInsufficientDriver|driver on your system is too old"
        r"|unsupported display driver|driver/library version mismatch",
        "the driver of the host is older than what the image needs, or was updated without a reboot",
        "update the driver (and reboot), or use an image for the driver that is there",
        _CUDA,
    ),
    says(
        "gpu_ordinal",
        "fatal",
        r"invalid device ordinal|hipErrorInvalidDevice\b|cudaErrorInvalidDevice\b",
        "a rank asks for a GPU that it does not see: more ranks than GPUs, or visibility that hides some",
        "compare nproc_per_node with the visible GPUs; look at CUDA_, HIP_ and ROCR_VISIBLE_DEVICES",
        _CUDA,
    ),
    says(
        "gpu_none",
        "fatal",
        r"no (?:cuda-capable|rocm-capable|hip-capable) device|no (?:cuda|hip) gpus are available|found no nvidia driver"
        r"|cudaErrorNoDevice|hipErrorNoDevice|nvidia-smi has failed|torch (?:is )?not compiled with cuda",
        "no GPU is visible here: driver not loaded, devices not given to the container, or a torch for CPUs",
        "see whether `nvidia-smi` or `rocm-smi` works on the host, then in the container; check torch.version",
        _CUDA,
    ),
    says(
        "kfd_denied",
        "fatal",
        r"/dev/(?:kfd|dri)\S*.{0,60}(?:permission denied|operation not permitted)|not (?:a )?member of .{0,20}render"
        r"|unable to open /dev/kfd",
        "the user of the run may not open the GPU's device files",
        "add the user to the groups video and render, and give the container those groups by number",
        _ROCM,
    ),
    says(
        "device_missing",
        "fatal",
        r"no /dev/\S+|/dev/(?:kfd|dri|nvidia|infiniband)\S*.{0,40}no such (?:file|device)"
        r"|error gathering device information",
        "a device that the configuration names is not on this host: driver not loaded, or another kind of host",
        "load the driver there (amdgpu, nvidia, ib_uverbs), or take the device out of container.runtime.args.devices",
        _ROCM,
    ),
    says(
        "gpus_none",
        "fatal",
        r"shows 0 (?:rocm|cuda) devices|no gpu was found on the head host",
        "no GPU is to be seen: its driver is not loaded, the host has none, or `accelerator` means the other vendor",
        "try `rocm-smi` or `nvidia-smi -L` there; `local_cpu.json` of `aorta config list` needs no GPU",
        _OWN,
    ),
    says(
        "gpus_too_few",
        "fatal",
        r"shows \d+ (?:rocm|cuda) devices?",
        "a GPU of this host is missing: fallen off the bus, disabled, or a partition mode that changes the number",
        "compare `lspci` with `rocm-smi` or `nvidia-smi -L`; see the kernel log since boot",
        _ROCM,
    ),
    says(
        "gpu_off_the_bus",
        "fatal",
        r"fallen off the bus|\bGPU is lost\b",
        "the GPU does not answer on its PCIe bus any more: power, heat, slot or the card itself",
        "drain the host and reboot it; when it comes again, reseat or replace the card",
        "NVIDIA's Xid documentation",
    ),
    says(
        "hsa_resources",
        "fatal",
        r"HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        "the GPU's runtime got no queue or memory: device files not accessible, or too many processes on the GPU",
        "see who else uses the GPU (`rocm-smi --showpids`) and whether the user may open /dev/kfd",
        _ROCM,
    ),
    says(
        "gpu_container_toolkit",
        "fatal",
        r"could not select device driver|unresolvable cdi|nvidia-container-cli|failed to initialize nvml",
        "the container engine cannot hand out NVIDIA GPUs",
        "install or repair NVIDIA's container toolkit there, then restart the engine",
        "NVIDIA's container toolkit guide",
    ),
)
