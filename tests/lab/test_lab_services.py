"""What a machine that cannot have a lab is told: one reason, and how to change it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.conftest import MakeLab
from tests.lab.power import REPOSITORY
from tests.lab.services import find_hindrance

pytestmark = pytest.mark.lab(1)

TWO_TESTS = """
import pytest
from tests.lab.conftest import lab, labs

@pytest.mark.lab(1)
@pytest.mark.parametrize("number", [1, 2])
def test_with_a_lab(lab, number):
    pass
"""
WITHOUT_A_PACKAGE = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /usr/lib/*/faketime && exec "$@"', "sh"]
HIDE_PODMAN = (
    "mount -t tmpfs none /mnt && mkdir /mnt/up /mnt/work && mknod /mnt/up/podman c 0 0"
    " && mount -t overlay none -o lowerdir=/usr/bin,upperdir=/mnt/up,workdir=/mnt/work /usr/bin"
)
WITHOUT_PODMAN = ["unshare", "--mount", "sh", "-c", f'{HIDE_PODMAN} && exec "$@"', "sh"]
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]


def run_two_tests(
    tmp_path: Path, within: list[str], tests: str = TWO_TESTS, **environment: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_needy.py").write_text(tests, "utf-8")
    return subprocess.run(
        [*within, sys.executable, "-m", "pytest", "-rsE", "-o", "markers=lab", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "AORTA_REQUIRE_LAB": "", "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_this_machine_has_nothing_in_its_way(labs: MakeLab) -> None:
    assert find_hindrance() == ""


@pytest.mark.parametrize(
    ("within", "reason"),
    [
        (WITHOUT_A_PACKAGE, "the lab's services are missing (libfaketime): run `make lab-deps`"),
        (WITHOUT_RIGHTS, "a lab needs a root that may make namespaces and mounts, this one may not"),
    ],
)
def test_one_line_says_what_is_missing(labs: MakeLab, tmp_path: Path, within: list[str], reason: str) -> None:
    done = run_two_tests(tmp_path, within)
    [line] = [line for line in done.stdout.splitlines() if reason in line]
    assert line.startswith("SKIPPED [2]")
    assert done.returncode == 0


def test_only_a_lab_with_podman_needs_it(labs: MakeLab, tmp_path: Path) -> None:
    tests = TWO_TESTS.replace('@pytest.mark.parametrize("number", [1, 2])', '@pytest.mark.parametrize("number", [1])')
    more = "\n\n@pytest.mark.lab(1, podman=True)\ndef test_with_podman(lab):\n    pass\n"
    done = run_two_tests(tmp_path, WITHOUT_PODMAN, tests + more)
    [line] = [line for line in done.stdout.splitlines() if "services are missing (podman): run `make lab-deps`" in line]
    assert line.startswith("SKIPPED [1]")
    assert "1 passed, 1 skipped" in done.stdout


def test_a_required_lab_that_is_missing_is_a_failure(labs: MakeLab, tmp_path: Path) -> None:
    done = run_two_tests(tmp_path, WITHOUT_A_PACKAGE, AORTA_REQUIRE_LAB="1")
    assert done.returncode == 1
    assert "AORTA_REQUIRE_LAB=1, and the lab's services are missing (libfaketime)" in done.stdout
