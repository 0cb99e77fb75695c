#!/usr/bin/env bash
# Starts train.py on every NVIDIA GPU of this machine: launch_cuda.sh CONFIG [arguments of train.py ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

require_config "$@"
nproc=${NPROC:-$(count_devices "${CUDA_VISIBLE_DEVICES-all}" '^GPU ' nvidia-smi --list-gpus)}
require_ranks "$nproc" "NVIDIA GPUs" "check nvidia-smi and CUDA_VISIBLE_DEVICES"
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
launch "$nproc" "$@"
