#!/usr/bin/env bash
# Starts train.py on every AMD GPU of this machine: launch_rocm.sh CONFIG [arguments of train.py ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

require_config "$@"
visible=${HIP_VISIBLE_DEVICES-${ROCR_VISIBLE_DEVICES-${CUDA_VISIBLE_DEVICES-all}}}
nproc=${NPROC:-$(count_devices "$visible" 'Device Type:[[:space:]]*GPU' rocminfo)}
require_ranks "$nproc" "AMD GPUs" "check /dev/kfd and HIP_VISIBLE_DEVICES"
if [[ $visible == all ]]; then
    HIP_VISIBLE_DEVICES=$(seq -s, 0 $((nproc - 1)))
    export HIP_VISIBLE_DEVICES
fi
launch "$nproc" "$@"
