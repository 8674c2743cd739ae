"""The cases of `bench.stalls` in which thousands of peers that have not logged in send something in the same moment.

Each function gets the port of an acceptor, the process of the broker and the number of messages, prepares, and returns
what is measured.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

from bench.mqtt_idle import allow_handles

#: One in so many messages is a peer: 4,000 at 200,000 messages.
MESSAGES_OF_A_PEER: Final = 50

#: Descriptors beside those of the peers.
_HANDLES_SPARE: Final = 200

#: How long the broker has to read what the peers send first, in seconds.
_SETTLED_S: Final = 1.0

Work = Callable[[], object]
Case = Callable[[int, int, int], Work]


def _peers(request: bytes) -> Case:
    """Peers that have sent all of a request but its last byte send that."""

    def prepare(port: int, pid: int, messages: int) -> Work:
        peers = max(1, messages // MESSAGES_OF_A_PEER)
        allow_handles(peers + _HANDLES_SPARE)
        opened = []
        for _ in range(peers):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(request[:-1])
            opened.append(sock)
        time.sleep(_SETTLED_S)

        def work() -> None:
            os.kill(pid, signal.SIGSTOP)  # so that it finds all sockets readable at once
            try:
                for sock in opened:
                    sock.sendall(request[-1:])
            finally:
                os.kill(pid, signal.SIGCONT)
            for sock in opened:
                sock.recv(1)
                sock.close()

        return work

    return prepare


_STOMP: Final = b"CONNECT\naccept-version:1.2\nhost:h\nlogin:nobody\npasscode:%b\n\n\0"

#: With the protocol of the acceptor.
LOGIN_CASES: Final[dict[str, tuple[str, Case]]] = {
    "logins": ("stomp", _peers(_STOMP % b"wrong")),
    "logins_malformed": ("stomp", _peers(b"CONNECT\naccept-version:1.2\nlogin\n")),
    "logins_amqp": ("amqp", _peers(b"AMQP\3\1\0\0")),
    "logins_mqtt": ("mqtt", _peers(b"\x10\x0d\0\4MQTT\4\2\0\0\0\1a")),
}
