#!/usr/bin/env bash
# Gets RCCL at a branch, tag or commit, builds it, and prints the commit and the library.
#   rccl_path         where the sources go (required); the library is $rccl_path/build/release/librccl.so
#   RCCL_CLONE_URL    default https://github.com/ROCm/rccl
#   RCCL_BRANCH       default develop
#   RCCL_BUILD_FLAGS  arguments of its install.sh, split at spaces (default: none)
# Nothing is built when commit and flags are those of the last build. Safe to start on several nodes that share the folder.
set -euo pipefail

fail() {
    echo "build_rccl.sh: $1" >&2
    exit 2
}

path=${rccl_path:-}
url=${RCCL_CLONE_URL:-https://github.com/ROCm/rccl}
branch=${RCCL_BRANCH:-develop}
flags=${RCCL_BUILD_FLAGS:-}
[[ $path == /* && $path != / ]] || fail "rccl_path is '$path', expected an absolute folder for the sources"
command -v git >/dev/null || fail "git is not installed here; install it, or set skip_rccl_build"
mkdir -p "$path"

# Another builder of the same folder waits here, and then finds the work done.
lock=.aorta_build.lock
exec 9>"$path/$lock"
flock 9

repository() { git -c safe.directory="$path" -C "$path" "$@"; }

if [[ ! -e $path/.git ]]; then
    [[ $(ls -A "$path") == "$lock" ]] || fail "$path is not empty and no git repository; name another folder in rccl.build_path"
    git init --quiet "$path"
elif [[ -n $(repository status --porcelain --untracked-files=no) ]]; then
    fail "$path has uncommitted changes; commit them, or name another folder in rccl.build_path"
fi

echo "fetching $branch of $url"
repository fetch --quiet --depth 1 "$url" "$branch"
repository checkout --quiet --detach FETCH_HEAD
if [[ -e $path/.gitmodules ]]; then
    repository submodule update --quiet --init --recursive --depth 1
fi
commit=$(repository rev-parse HEAD)

library=$path/build/release/librccl.so
record=$(repository rev-parse --absolute-git-dir)/aorta_build
wanted="$commit $flags"
if [[ -e $library && -e $record && $(<"$record") == "$wanted" ]]; then
    echo "unchanged, not built again"
else
    [[ -e $path/install.sh ]] || fail "$path/install.sh is missing at $commit; is $url an RCCL repository?"
    rm -f "$record" "$library"
    read -ra arguments <<<"$flags"
    echo "building $commit"
    (cd "$path" && bash ./install.sh "${arguments[@]}")
    [[ -e $library ]] || fail "install.sh ended well, but $library is missing"
    printf '%s' "$wanted" >"$record"
fi
echo "commit $commit"
echo "library $library"
