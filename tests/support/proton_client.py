"""The library python-qpid-proton as the tests use it: its blocking connection, which waits for each answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from proton import Link, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

from tests.support.links import PATIENCE_S


class Capability(LinkOption):
    """A capability of the terminus that is the broker's: `queue`, `topic`, `temporary-queue`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def apply(self, link: Any) -> None:
        terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_object(symbol(self._name))


class SettlesSecond(LinkOption):
    """The receiver settles after the sender."""

    def apply(self, link: Any) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


TEMPORARY: Final = Capability("temporary-queue")


@contextmanager
def connected(port: int, **options: Any) -> Iterator[Any]:
    """Open a connection, and close it afterwards; `options` are Proton's."""
    scheme = "amqps" if "ssl_domain" in options else "amqp"
    host = "localhost" if scheme == "amqps" else "127.0.0.1"
    connection = BlockingConnection(f"{scheme}://{host}:{port}", timeout=PATIENCE_S, **options)
    try:
        yield connection
    finally:
        connection.close()


def text(message: Any) -> str:
    """Return a body as text, whatever its section; its bytes are valid only as long as the message."""
    body = message.body
    return bytes(body).decode() if isinstance(body, bytes | memoryview) else str(body)
