"""How many connections: of an acceptor, from one address, of one user; and that what is over is not counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.stomp_client import StompSocket

LIMITS = {
    "the acceptor's (AMQ-6059)": '[acceptors.stomp]\nprotocol = "stomp"\nconnections-allowed = 3\n',
    "of an address": '[limits]\nconnections-per-origin-max = 3\n[acceptors.stomp]\nprotocol = "stomp"\n',
    "of a user": '[limits]\nconnections-per-user-max = 3\n[acceptors.stomp]\nprotocol = "stomp"\n',
}


def answer(client: StompSocket) -> list[str]:
    """The commands of all frames that come in answer to CONNECT, if the broker then hangs up."""
    client.do("CONNECT", {"accept-version": "1.2", "host": "h", "login": "alice", "passcode": "secret"})
    return [frame.command for frame in client.rest()]


def fill(broker: DaemonProcess, rounds: int) -> None:
    """Three are in, the fourth is not; when one has left, the next one is: as often as you like."""
    for _ in range(rounds):
        with StompSocket(broker.port) as one, StompSocket(broker.port) as two, StompSocket(broker.port) as three:
            for client in (one, two, three):
                client.do("CONNECT", {"accept-version": "1.2", "host": "h", "login": "alice", "passcode": "secret"})
                assert client.frame().command == "CONNECTED"
            for _ in range(3):
                with StompSocket(broker.port) as four:
                    assert answer(four) in ([], ["ERROR"])
            for client in (one, two, three):
                client.do("DISCONNECT", {"receipt": "bye"})
                assert [frame.command for frame in client.rest()] == ["RECEIPT"]


@pytest.mark.parametrize("which", LIMITS)
def test_three_connections_and_no_fourth(tmp_path: Path, which: str) -> None:
    with running(tmp_path, LIMITS[which], users={"alice": "secret"}) as broker:
        fill(broker, 3)
        broker.await_log("login.too_many" if which == "of a user" else "connection.refused")
