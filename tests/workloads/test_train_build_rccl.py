"""build_rccl.sh against a local repository whose install.sh compiles a tiny librccl.so."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("cc")), reason="git and a C compiler are needed"
)

INSTALL = """#!/bin/sh
set -e
echo "install.sh $*"
mkdir -p build/release
echo "const char *build = \\"$*\\";" >build/tiny.c
cc -shared -fPIC -o build/release/librccl.so build/tiny.c
"""


class Source:
    """The repository that is cloned, and the folder it is built in."""

    def __init__(self, folder: Path, script: Path) -> None:
        self.url = folder / "source"
        self.build = folder / "rccl"
        self.library = self.build / "build" / "release" / "librccl.so"
        self._script = script
        self.git("init", "--quiet", "--initial-branch", "develop", str(self.url))
        self.commit(INSTALL)

    def git(self, *arguments: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *author, *(["-C", str(self.url)] if self.url.exists() else []), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def commit(self, install: str) -> str:
        (self.url / "install.sh").write_text(install)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "change")
        return self.git("rev-parse", "HEAD")

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        settings = {"rccl_path": str(self.build), "RCCL_CLONE_URL": str(self.url), "RCCL_BRANCH": "develop"}
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.url.parent), **settings, **variables}
        command = ["bash", str(self._script)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def source(tree: Path, tmp_path: Path) -> Source:
    return Source(tmp_path, tree / "scripts" / "build_rccl.sh")


def test_it_clones_builds_and_says_what(source: Source) -> None:
    ended = source.run()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == [f"commit {source.git('rev-parse', 'HEAD')}", f"library {source.library}"]
    assert source.library.read_bytes()[:4] == b"\x7fELF"


def test_an_unchanged_commit_is_not_built_again(source: Source) -> None:
    source.run()
    before = source.library.stat().st_mtime_ns
    ended = source.run()
    assert "unchanged, not built again" in ended.stdout
    assert f"library {source.library}" in ended.stdout
    assert source.library.stat().st_mtime_ns == before


def test_new_flags_a_new_commit_or_a_missing_library_build_again(source: Source) -> None:
    source.run()
    flags = source.run(RCCL_BUILD_FLAGS="--fast --jobs 2")
    assert "install.sh --fast --jobs 2" in flags.stdout
    commit = source.commit(INSTALL + "echo newer\n")
    newer = source.run()
    assert f"building {commit}" in newer.stdout
    assert "newer" in newer.stdout
    source.library.unlink()
    assert f"building {commit}" in source.run().stdout


def test_a_tag_can_be_named(source: Source) -> None:
    first = source.git("rev-parse", "HEAD")
    source.git("tag", "v1")
    source.commit(INSTALL + "echo newer\n")
    assert f"commit {first}" in source.run(RCCL_BRANCH="v1").stdout


def test_a_build_that_fails_keeps_its_exit_code_and_is_tried_again(source: Source) -> None:
    source.run()
    source.commit("#!/bin/sh\nexit 7\n")
    assert source.run().returncode == 7
    assert source.run().returncode == 7
    assert not source.library.exists()


def test_a_build_without_library_is_refused(source: Source) -> None:
    source.commit("#!/bin/sh\nexit 0\n")
    ended = source.run()
    assert ended.returncode == 2
    assert f"{source.library} is missing" in ended.stderr


def test_a_folder_with_other_things_is_left_alone(source: Source) -> None:
    source.build.mkdir()
    (source.build / "thesis.txt").write_text("precious")
    ended = source.run()
    assert ended.returncode == 2
    assert "is not empty and no git repository" in ended.stderr
    assert (source.build / "thesis.txt").read_text() == "precious"


def test_uncommitted_work_is_left_alone(source: Source) -> None:
    source.run()
    (source.build / "install.sh").write_text("mine")
    ended = source.run()
    assert ended.returncode == 2
    assert "has uncommitted changes" in ended.stderr
    assert (source.build / "install.sh").read_text() == "mine"


@pytest.mark.parametrize("path", ["", "relative/folder", "/"])
def test_a_path_that_is_no_folder_of_its_own_is_refused(source: Source, path: str) -> None:
    ended = source.run(rccl_path=path)
    assert ended.returncode == 2
    assert f"rccl_path is '{path}', expected an absolute folder" in ended.stderr


def test_an_unknown_branch_fails(source: Source) -> None:
    ended = source.run(RCCL_BRANCH="none")
    assert ended.returncode not in (0, 2)
    assert "none" in ended.stderr


def test_committed_work_is_not_dropped(source: Source) -> None:
    assert source.run().returncode == 0
    (source.build / "install.sh").write_text(INSTALL + "echo mine\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(source.build), *author, "commit", "-qam", "mine"], check=True, timeout=60)

    ended = source.run()

    assert ended.returncode == 2
    assert "at a commit that no branch or tag holds" in ended.stderr
    assert "echo mine" in (source.build / "install.sh").read_text()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RCCL_BRANCH": "--upload-pack=touch planted"}, "must not begin with -"),
        ({"RCCL_CLONE_URL": "--upload-pack=touch planted"}, "must not begin with -"),
        ({"RCCL_BUILD_FLAGS": "-a\n-b"}, "has several lines"),
        ({"rccl_path": "//"}, "expected an absolute folder"),
    ],
)
def test_odd_settings_are_refused(source: Source, variables: dict[str, str], said: str) -> None:
    ended = source.run(**variables)

    assert ended.returncode == 2
    assert said in ended.stderr


def test_nothing_is_left_in_a_folder_that_is_refused(source: Source) -> None:
    source.build.mkdir()
    (source.build / "mine").touch()

    assert "not empty and no git repository" in source.run().stderr
    assert [path.name for path in source.build.iterdir()] == ["mine"]
