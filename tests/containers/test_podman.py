"""What a program named podman is given on this machine; the lab has the real one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.containers.docker_cli import DockerCli, containers_of
from pytest_aorta.containers.spec import Login, Mount
from pytest_aorta.errors import ContainerError
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport
from tests.containers.specs import SPEC

BOX = "f" * 64
PROGRAM = f"""#!{sys.executable} -IS
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
given = sys.stdin.read() if "--env-file=/dev/stdin" in words or "--password-stdin" in words else ""
with open(here / "asked", "a") as log:
    log.write(json.dumps([words, given, os.environ.get("TOKEN")]) + "\\n")
box, started, image = here / "box", here / "started", here / "image"
if words[0] == "ps":
    print("{BOX}" if box.exists() else "", end="")
elif words[:2] == ["container", "inspect"]:
    labels = dict(word[8:].split("=", 1) for word in json.loads(box.read_text()) if word.startswith("--label="))
    print(json.dumps(["{BOX}", "box", "running" if started.exists() else "created", "a:1", "feed" * 16, labels, 0]))
elif words[:2] == ["image", "inspect"] and not image.exists():
    sys.exit("Error: a:1: image not known")
elif words[0] == "pull":
    image.touch()
elif words[0] == "create":
    box.write_text(json.dumps(words))
    print("{BOX}")
elif words[0] == "start":
    started.touch()
elif words[0] == "rm":
    box.unlink()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "podman"
    program.write_text(PROGRAM, "utf-8")
    program.chmod(0o755)
    for name in ("sh", "mkdir", "rm"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))  # where no real one is
    return folder


@pytest.fixture
def fleet(folder: Path, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet({"here": LocalTransport()})
    fleet.open({"here": str(tmp_path / "state")})
    yield fleet
    fleet.close()


def asked(folder: Path, word: str) -> list[Any]:
    entries = [json.loads(line) for line in (folder / "asked").read_text("utf-8").splitlines()]
    return next(entry for entry in entries if entry[0][0] == word)


def test_a_container_lives_and_dies(folder: Path, fleet: Fleet) -> None:
    engine = DockerCli(program="podman")
    spec = replace(
        SPEC,
        image="a:1",
        gpus=True,
        env={"TOKEN": "two\nlines", "PATH": "/bin"},
        mounts=(Mount("/a, b", "/c"),),
        user="0",
    )

    described = engine.launch(fleet, {"here": spec})

    words, given, seen = asked(folder, "create")
    assert seen == "two\nlines"
    assert given == "PATH=/bin\n"
    assert words[1:4] == ["--env=TOKEN", "--env-file=/dev/stdin", "--pull=never"]
    assert words[-2:] == ["a:1", "infinity"]
    assert {"--device=nvidia.com/gpu=all", '--mount=type=bind,"source=/a, b",target=/c', "--user=0"} <= set(words)
    assert described["here"] == "container box (ffffffffffff) started, image a:1 (sha256:feedfeedfeed)"
    assert engine.argv("here", ["id"]) == ["podman", "exec", "--interactive", BOX, "id"]
    assert [found.run for found in containers_of(fleet, program="podman").good["here"]] == ["run-of-today"]
    engine.remove()
    assert asked(folder, "rm")[0] == ["rm", "--force", "--volumes", BOX]
    assert not (folder / "box").exists()


def test_a_login_has_a_file_of_its_own(folder: Path, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("word\n", "utf-8")
    login = Login("me", str(tmp_path / "a file"), "registry:5000")

    DockerCli(program="podman").launch(fleet, {"here": replace(SPEC, image="a:1", login=login)})

    words, given, _ = asked(folder, "login")
    assert (words[2:], given) == (["--username=me", "--password-stdin", "registry:5000"], "word\n")
    file = Path(words[1].removeprefix("--authfile="))
    assert asked(folder, "pull")[0] == ["pull", f"--authfile={file}", "--quiet", "a:1"]
    assert not file.parent.exists()


def test_a_program_that_is_not_there_is_told(fleet: Fleet, folder: Path) -> None:
    (folder / "podman").unlink()
    with pytest.raises(ContainerError, match=r"could not use podman: here: .*No such file.*; install podman there"):
        DockerCli(program="podman").launch(fleet, {"here": SPEC})
    assert containers_of(fleet, program="podman").good == {"here": []}


def test_a_node_program_that_ends_removes_it(folder: Path, fleet: Fleet) -> None:
    DockerCli(program="podman").launch(fleet, {"here": replace(SPEC, image="a:1")})
    fleet.close()
    assert asked(folder, "rm")[0][-1] == BOX
