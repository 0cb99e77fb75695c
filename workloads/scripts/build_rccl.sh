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

if (($#)); then
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    [[ $1 == -h || $1 == --help ]] && exit 0
    fail "takes no arguments, but variables: rccl_path=/somewhere/rccl bash ${BASH_SOURCE[0]}"
fi
path=${rccl_path:-}
url=${RCCL_CLONE_URL:-https://github.com/ROCm/rccl}
branch=${RCCL_BRANCH:-develop}
flags=${RCCL_BUILD_FLAGS:-}
[[ $path == /* && $path =~ [^/.] ]] || fail "rccl_path is '$path', expected an absolute folder for the sources"
[[ $url != -* && $branch != -* ]] || fail "RCCL_CLONE_URL '$url' and RCCL_BRANCH '$branch' must not begin with -"
[[ $flags != *$'\n'* ]] || fail "RCCL_BUILD_FLAGS has several lines, expected one with spaces between the flags"
command -v git >/dev/null || fail "git is not installed here; install it, or set skip_rccl_build"
lock=.aorta_build.lock
if [[ -d $path && ! -e $path/.git && -n $(ls -A "$path" | grep -vx "$lock") ]]; then
    fail "$path is not empty and no git repository; name another folder in rccl.build_path"
fi
mkdir -p "$path"

# Another builder of the same folder waits here, and then finds the work done.
exec 9>"$path/$lock"
flock 9

repository() { git -c safe.directory="$path" -C "$path" "$@"; }

if [[ ! -e $path/.git ]]; then
    git init --quiet "$path"
elif [[ -n $(repository status --porcelain --untracked-files=no) ]]; then
    fail "$path has uncommitted changes; take them elsewhere, or name another folder in rccl.build_path"
elif [[ -n $(repository rev-parse --quiet --verify HEAD) && -z $(repository for-each-ref --contains HEAD) ]]; then
    fail "$path is at a commit that no branch or tag holds, which would be lost; make a branch of it, or name another folder in rccl.build_path"
fi

echo "fetching $branch of $url"
repository fetch --quiet --depth 1 "$url" "$branch"
repository checkout --quiet --detach FETCH_HEAD
repository update-ref refs/aorta/built FETCH_HEAD # so that a later build can tell this commit from somebody's work
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
    (CDPATH="" cd "$path" && bash ./install.sh "${arguments[@]}")
    [[ -e $library ]] || fail "install.sh ended well, but $library is missing"
    printf '%s' "$wanted" >"$record"
fi
echo "commit $commit"
echo "library $library"
