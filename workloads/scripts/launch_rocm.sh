#!/usr/bin/env bash
# Starts train.py on every AMD GPU of this machine: launch_rocm.sh CONFIG [arguments of train.py ...]
# NPROC: number of ranks (default: the GPUs that are visible). PYTHON: the interpreter (default: python3).
set -euo pipefail

if (($# == 0)); then
    echo "usage: launch_rocm.sh CONFIG [arguments of train.py, such as --override training.max_steps=20]" >&2
    exit 2
fi
config=$1
shift
python=${PYTHON:-python3}
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

count_names() {
    local names
    IFS=, read -ra names <<<"$1"
    echo "${#names[@]}"
}

count_devices() {
    local visible=${HIP_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${CUDA_VISIBLE_DEVICES:-}}}
    if [[ -n $visible ]]; then
        count_names "$visible"
    elif command -v rocminfo >/dev/null; then
        rocminfo 2>/dev/null | grep -c 'Device Type:[[:space:]]*GPU' || true
    else
        "$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null || echo 0
    fi
}

nproc=${NPROC:-$(count_devices)}
if ! [[ $nproc =~ ^[1-9][0-9]*$ ]]; then
    echo "launch_rocm.sh: found '$nproc' AMD GPUs, expected at least one; check /dev/kfd and HIP_VISIBLE_DEVICES, or set NPROC" >&2
    exit 2
fi
if [[ -z ${HIP_VISIBLE_DEVICES:-}${ROCR_VISIBLE_DEVICES:-}${CUDA_VISIBLE_DEVICES:-} ]]; then
    HIP_VISIBLE_DEVICES=$(seq -s, 0 $((nproc - 1)))
    export HIP_VISIBLE_DEVICES
fi

command=("$python" -m torch.distributed.run --standalone --nproc_per_node "$nproc" "$tree/train.py" --config "$config" "$@")
printf '%q ' "${command[@]}"
echo
exec "${command[@]}"
