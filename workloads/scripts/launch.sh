# What both launch scripts do; they source this file and then call `launch`. Not to be started by itself.
# NPROC: number of ranks (default: the devices that are visible). PYTHON: the interpreter (default: python3).

python=${PYTHON:-python3}
tree=$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Counts the names in a list such as 0,1,2; where it is "all", what the command that follows prints for each device.
count_devices() {
    local visible=$1 pattern=$2 names
    shift 2
    if [[ $visible != all ]]; then
        visible=,${visible//NoDevFiles/} # no device by name
        visible=${visible%%,-*}          # nor is what stands behind a negative number seen
        IFS=, read -ra names <<<"${visible#,}"
        echo "${#names[@]}"
    elif command -v "$1" >/dev/null; then
        "$@" 2>/dev/null | grep -c "$pattern" || true
    else
        "$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null || echo 0
    fi
}

require_config() {
    if (($# == 0)) || [[ $1 == -* ]]; then
        echo "usage: ${0##*/} CONFIG [arguments of train.py, such as --override training.max_steps=20]" >&2
        exit 2
    fi
}

require_ranks() {
    local nproc=$1 seen=$2 advice=$3
    if ! [[ $nproc =~ ^[1-9][0-9]{0,3}$ ]]; then
        if [[ -n ${NPROC:-} ]]; then
            echo "${0##*/}: NPROC is '$NPROC', expected a number of ranks from 1 to 9999" >&2
        else
            echo "${0##*/}: found '$nproc' $seen, expected at least one; $advice, or set NPROC" >&2
        fi
        exit 2
    fi
}

# Prints the command and becomes it.
launch() {
    local nproc=$1 config=$2
    shift 2
    local command=("$python" -m torch.distributed.run --standalone --nproc_per_node "$nproc" "$tree/train.py" --config "$config" "$@")
    printf '%q ' "${command[@]}"
    echo
    exec "${command[@]}"
}
