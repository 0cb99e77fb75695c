from __future__ import annotations

from pytest_aorta.containers.bare import Bare
from pytest_aorta.containers.engine import Engine
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import ScriptedTransport


def test_without_a_container_commands_stay_as_they_are() -> None:
    engine: Engine = Bare()
    asked = ["python3", "-c", "print('a b')"]

    given = engine.argv("node1", asked)

    assert given == asked
    assert given is not asked


def test_without_a_container_every_host_is_said_to_have_none() -> None:
    described = Bare().launch(Fleet({"node1": ScriptedTransport(), "node2": ScriptedTransport()}), {})

    assert list(described) == ["node1", "node2"]
    assert all("no container" in text for text in described.values())


def test_there_is_nothing_to_remove_however_often() -> None:
    engine = Bare()
    engine.remove()
    engine.remove()

    assert engine.name == "none"
