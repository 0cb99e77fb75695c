"""Installed as a wheel and in place, used from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is not installed (extra dev)")
pytest.importorskip("editables", reason="editables is not installed (extra dev)")

ROOT = Path(__file__).parents[1]


def run(*command: str, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AORTA_", "PYTEST_", "PYTHON"))}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=["wheel", "editable"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A Python with this package installed; everything it needs comes from the environment of these tests."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    made = folder / "bin" / "python"
    site = Path(run(str(made), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    own = [folder for folder in sys.path if folder.endswith("site-packages")]
    (site / "tests-environment.pth").write_text("\n".join(own) + "\n", "utf-8")
    how = ["--editable", str(ROOT)] if request.param == "editable" else [str(ROOT)]
    run(str(made), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", *how, cwd=tmp_path)
    where = run(str(made), "-c", "import pytest_aorta; print(pytest_aorta.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(site) == (request.param == "wheel")
    return made


def test_from_an_empty_folder(python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    aorta = str(python.with_name("aorta"))

    assert "local_cpu.json" in run(aorta, "config", "list", cwd=folder)
    run(aorta, "config", "copy", "local_cpu.json", "./mine.json", cwd=folder)
    assert "ok" in run(aorta, "config", "check", "mine.json", cwd=folder)
    listed = run(str(python), "-m", "pytest", "--aorta-config=mine.json", "--collect-only", "-q", cwd=folder)
    assert listed.startswith("aorta_single::test_launch_container\n")
    planned = run(str(python), "-m", "pytest", "--aorta-config=mine.json", "--aorta-dry-run", cwd=folder)
    assert "send the bundled workload tree" in planned
    code = "from pytest_aorta.config.shipped import shipped; print((shipped('workloads') / 'train.py').is_file())"
    assert run(str(python), "-c", code, cwd=folder) == "True\n"


def test_a_checkout_whose_environment_has_none_of_the_extras(tmp_path: Path) -> None:
    """The conftest of these tests is loaded there as well, and asks for nothing that a plain install lacks."""
    extras = ("hypothesis", "_hypothesis", "xdist", "pytest_xdist", "execnet", "playwright", "hatchling", "editables")
    for folder in (Path(folder) for folder in sys.path if folder.endswith("site-packages")):
        for path in folder.iterdir():
            if not path.name.startswith(extras) and path.suffix != ".pth":
                (tmp_path / path.name).symlink_to(path)
    plain = ("env", f"PYTHONPATH={tmp_path}", sys.executable, "-S", "-m", "pytest")

    listed = run(*plain, "--aorta-config=configs/local_cpu.json", "--collect-only", "-q", cwd=ROOT)

    assert listed.startswith("aorta_single::test_launch_container\n")


def test_python_of_these_tests_is_supported() -> None:
    assert sys.version_info >= (3, 11)
