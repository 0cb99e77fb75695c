"""The training workload: a ranking transformer under FSDP, fully_shard or DDP, on CPU, CUDA and ROCm."""
