"""A link whose other side is silent; nothing is sent."""

from __future__ import annotations

import socket

import paramiko

from pytest_aorta.fleet.ssh_link import Link
from pytest_aorta.fleet.ssh_settings import Access, way_to


def test_a_silence_longer_than_the_kernel_can_count_is_the_longest_that_it_can() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        hops = way_to("n1", Access("me"), 7)
        hops[0].connection.transport = transport = paramiko.Transport(own)
        link = Link(hops, transport, 30)
        for silence_s, expected_ms in ((0, 1), (7, 7000), (100_000_000, 2**31 - 1)):
            link.bound_silence(silence_s)
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == expected_ms
