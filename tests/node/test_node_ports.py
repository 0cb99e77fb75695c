from __future__ import annotations

import socket
from collections.abc import Callable

from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet

Asking = Callable[..., Answer]


def test_an_offered_port_is_reached_by_any_address_and_name(ask: Asking) -> None:
    port = ask("offer")["port"]

    for address in ("127.0.0.1", "localhost", socket.gethostname()):
        assert ask("reach", address=address, port=port)["why"] == ""
    assert ask("reach", address="127.0.0.1", port=port)["peer"] == "127.0.0.1"


def test_a_withdrawn_port_can_be_used_at_once(ask: Asking) -> None:
    port = ask("offer")["port"]
    ask("reach", address="127.0.0.1", port=port)

    assert ask("withdraw", port=port) == {"known": True}

    assert "refused" in ask("reach", address="127.0.0.1", port=port)["why"]
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
    assert ask("withdraw", port=port) == {"known": False}


def test_a_port_in_use_is_refused(ask: Asking, fleet: Fleet) -> None:
    port = ask("offer")["port"]

    error = fleet.perform(Ask("offer", {"port": port})).failed["here"]

    assert f"port {port} cannot be used: Address already in use" in error.reason


def test_why_something_cannot_be_reached_is_said(ask: Asking) -> None:
    assert "is not known here" in ask("reach", address="no-such-host.invalid", port=1)["why"]
    found = ask("reach", address="192.0.2.1", port=9, timeout_s=0.3)  # kept for documentation: nobody answers there
    assert found["why"].startswith(("no answer from 192.0.2.1 within 0.3 s", "192.0.2.1: "))
