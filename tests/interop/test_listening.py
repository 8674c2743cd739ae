"""Where acceptors listen, and whom they count."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.daemon import running
from tests.support.peers import free_port
from tests.support.process import PATIENCE_S
from tests.support.strangers import hello

CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\nlogin:alice\npasscode:%b\n\n\0"


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
def test_all_addresses_are_those_of_both_families(tmp_path: Path) -> None:
    """`::` is IPv4 too, as the pages say, with TLS, without it and over HTTP; peers are known by their addresses."""
    certificate, key = Authority(tmp_path).issue("localhost")
    ports = {"PLAIN": free_port(), "SECURE": free_port(), "WEB": free_port()}
    given = {f"{name}__HOST": "::" for name in ports} | {f"{name}__PORT": str(port) for name, port in ports.items()}
    given |= {"PLAIN__PROTOCOL": "stomp", "SECURE__PROTOCOL": "stomp", "WEB__PROTOCOL": "http"}
    given |= {"SECURE__TLS__CERTIFICATE": str(certificate), "SECURE__TLS__KEY": str(key)}
    environment = {f"BARTLEBY_ACCEPTORS__{name}": value for name, value in given.items()}
    with running(tmp_path, environment=environment) as broker:
        for port in ports.values():
            for host in ("127.0.0.1", "::1"):
                socket.create_connection((host, port), PATIENCE_S).close()
        with socket.create_connection(("127.0.0.1", ports["PLAIN"]), PATIENCE_S) as client:
            client.sendall(b"nonsense\n")
            assert client.recv(1)
        broker.await_log("stomp.error")
        assert "::ffff:" not in broker.log


def test_a_client_that_has_hung_up_takes_no_place(tmp_path: Path) -> None:
    """Its connection is not read while its login waits, so the broker hears of its end only later."""
    settings = (
        '[acceptors.stomp]\nprotocol = "stomp"\nconnections-allowed = 1\n[security]\nlogin-failure-delay = "2s"\n'
    )
    with running(tmp_path, settings, users={"alice": "secret"}) as broker:
        where = ("127.0.0.1", broker.ports["stomp"])
        with socket.create_connection(where, PATIENCE_S) as client:
            client.sendall(CONNECT % b"wrong")
            broker.await_log("login.refused")
        with socket.create_connection(where, PATIENCE_S) as client:
            client.sendall(CONNECT % b"secret")
            assert client.recv(9) == b"CONNECTED"
            with socket.create_connection(where, PATIENCE_S) as another:
                assert another.recv(1) == b"", "the one that is there takes its place"
        assert broker.log.count(" connection.refused ") == 1


def test_a_client_that_was_told_why_its_connection_ends_is_not_refused_as_well(tmp_path: Path) -> None:
    """It may still read that for a while, and its place goes to the next client."""
    certificate, key = Authority(tmp_path).issue("localhost")
    acceptors = "".join(
        f'[acceptors.{name}]\nprotocol = "{protocol}"\nport = 0\nconnections-allowed = 1\n'
        + (f'[acceptors.{name}.tls]\ncertificate = "{certificate}"\nkey = "{key}"\n' if name != "plain" else "")
        for name, protocol in (("plain", "stomp"), ("secure", "stomp"), ("web", "http"))
    )
    with running(tmp_path, acceptors) as broker:
        for name, told, nonsense in (
            ("plain", "stomp.error", b"nonsense\n"),
            ("secure", "tls.failed acceptor=secure", hello() + b"\x16\x03\x03\x00\x05junk!"),
            ("web", "tls.failed acceptor=web", hello() + b"\x16\x03\x03\x00\x05junk!"),
        ):
            where = ("127.0.0.1", broker.ports[name])
            with socket.create_connection(where, PATIENCE_S) as first:
                first.sendall(nonsense)
                broker.await_log(told)
                with socket.create_connection(where, PATIENCE_S) as second:
                    second.sendall(nonsense)
                    broker.await_log(told, times=2)
        assert "connection.refused" not in broker.log


def test_clients_connect_once_the_start_has_no_more_to_do(tmp_path: Path) -> None:
    """To make the applications of HTTP takes 200 ms, in which a client that could connect would wait."""
    with running(tmp_path) as broker:
        opened = re.findall(r" listening +acceptor=(\w+)", broker.log)
        assert opened == ["http", "stomp", "amqp", "mqtt"]
        assert list(broker.ports) == ["stomp", "amqp", "mqtt", "http"], "told in the order of the configuration"
