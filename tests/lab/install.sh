#!/bin/sh
# Installs what the lab needs (packages.txt) on Debian or Ubuntu, and starts none of its services.
set -eu
cd "$(dirname "$0")"
if [ "$(id -u)" -ne 0 ]; then
    echo "the lab's packages need root to be installed: run 'sudo make lab-deps'" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "the lab's packages are named for apt (Debian, Ubuntu), which is not here: see tests/lab/packages.txt" >&2
    exit 1
fi

missing=
while read -r package proof; do
    case $package in '' | '#'*) continue ;; esac
    # shellcheck disable=SC2086  # the proof may be a pattern
    ls $proof >/dev/null 2>&1 || missing="$missing $package"
done <packages.txt
if [ -z "$missing" ]; then
    echo "the lab's packages are all here"
    exit 0
fi

# apt starts what it installs, also where nothing can stop it again; this is Debian's way to forbid it.
policy=/usr/sbin/policy-rc.d
kept=$(mktemp -d)
restore() {
    rm -f "$policy"
    [ ! -e "$kept/policy" ] || mv "$kept/policy" "$policy"
    rm -rf "$kept"
}
[ ! -e "$policy" ] || mv "$policy" "$kept/policy"
trap restore EXIT
trap 'exit 1' HUP INT TERM
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086  # a list of names
apt-get install -q -y --no-install-recommends $missing
