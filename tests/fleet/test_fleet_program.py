"""The zipped node program: one file, the same bytes, any Python since 3.8."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport
from pytest_aorta.fleet.program import PACKAGE, program_bytes


def pythons_38() -> Iterator[str]:
    """Give candidates for Python 3.8: on PATH, then pyenv's."""
    found = shutil.which("python3.8")
    if found:
        yield found
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(path) for path in sorted(root.glob("versions/3.8*/bin/python3.8")))


def works(python: str) -> bool:
    """Tell whether it is there for good (pyenv's shims stand on PATH also for versions that are not selected)."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.fixture
def python_38() -> str:
    for python in pythons_38():
        if works(python):
            return python
    pytest.skip("no Python 3.8 on PATH or among pyenv's versions")


def test_it_has_the_same_bytes_when_built_again() -> None:
    first = program_bytes()
    program_bytes.cache_clear()
    assert program_bytes() == first


def test_it_holds_the_package_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(program_bytes())) as archive:
        names = archive.namelist()
    assert names[0] == "__main__.py"
    assert {f"{PACKAGE}/{name}.py" for name in ("__init__", "__main__", "protocol", "commands")} <= set(names)
    assert all(name == "__main__.py" or name.startswith(f"{PACKAGE}/") for name in names)


def test_it_runs_on_the_oldest_python(python_38: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").write_text("data")
    fleet = Fleet({"old": LocalTransport(python_38)})
    fleet.open({"old": str(tmp_path / "state")})

    def ask(do: str, **args: object) -> dict[str, object]:
        return fleet.perform(Ask(do, args)).or_raise()["old"]

    try:
        assert str(ask("facts")["python"]).startswith("3.8.")
        assert ask("run", argv=["echo", "hi"])["stdout"] == "hi\n"
        assert ask("run", argv=["sleep", "1000"], timeout_s=0.1)["timed_out"]
        ask("prepare", path=str(tmp_path / "work"))
        packed = ask("pack", root=str(source), files=["x"], archive=str(tmp_path / "work" / "a.tar.gz"))
        into = str(tmp_path / "work" / "tree")
        unpacked = ask("unpack", archive=packed["path"], sha256=packed["sha256"], into=into)
        assert unpacked["tree_sha256"] == ask("hash_tree", root=str(source))["sha256"]
        assert ask("find", root=into, names=["x"])["files"]
        assert "status" in ask("kernel_log")
        ask("start", name="g", argv=["sleep", "1000"], cwd="/", log=str(tmp_path / "log"), follow=True)
        assert ask("processes")["groups"]
        assert ask("stop") == {"stopped": {"g": "terminated"}, "left": []}
        assert ask("remove", path=str(tmp_path / "work")) == {"removed": True}
    finally:
        fleet.close()


def test_the_environment_of_python_does_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    fleet = Fleet({"here": LocalTransport()})
    fleet.open({"here": str(tmp_path / "state")})
    try:
        env = fleet.perform(Ask("run", {"argv": ["env"]})).or_raise()["here"]["stdout"].splitlines()
        assert f"PYTHONPATH={tmp_path}" in env
    finally:
        fleet.close()
