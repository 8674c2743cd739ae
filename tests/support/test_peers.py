"""The ports of brokers that start again."""

import socket

import pytest

from tests.support.peers import free_port


def test_a_free_port_can_be_listened_on_again_and_again() -> None:
    port = free_port()
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            pass


def test_a_free_port_is_for_those_who_know_its_number() -> None:
    port = free_port()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))  # what the system tries when it chooses a port
