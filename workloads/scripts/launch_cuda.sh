#!/usr/bin/env bash
# Starts train.py on every NVIDIA GPU of this machine: launch_cuda.sh CONFIG [arguments of train.py ...]
# NPROC: number of ranks (default: the GPUs that are visible). PYTHON: the interpreter (default: python3).
set -euo pipefail

if (($# == 0)); then
    echo "usage: launch_cuda.sh CONFIG [arguments of train.py, such as --override training.max_steps=20]" >&2
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
    if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
        count_names "$CUDA_VISIBLE_DEVICES"
    elif command -v nvidia-smi >/dev/null; then
        nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ' || true
    else
        "$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null || echo 0
    fi
}

nproc=${NPROC:-$(count_devices)}
if ! [[ $nproc =~ ^[1-9][0-9]*$ ]]; then
    echo "launch_cuda.sh: found '$nproc' NVIDIA GPUs, expected at least one; check nvidia-smi and CUDA_VISIBLE_DEVICES, or set NPROC" >&2
    exit 2
fi
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}

command=("$python" -m torch.distributed.run --standalone --nproc_per_node "$nproc" "$tree/train.py" --config "$config" "$@")
printf '%q ' "${command[@]}"
echo
exec "${command[@]}"
