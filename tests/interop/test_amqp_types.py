"""AMQP's types through the broker and through every pair of clients, each of which decodes and encodes them anew.

A message of each value goes to every client's queue.  The client forwards it to a queue for every client, which
forwards it to where we compare it with the original: to its type, not only to what Python holds equal.  Its selector
keeps from a client what it cannot hold.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Hashable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from proton import Message as ProtonMessage
from proton.handlers import MessagingHandler
from proton.reactor import Container, Selector

from protocols.amqp.encode import encode
from protocols.amqp.message import AMQP_VALUE, encode_application_properties, encode_section
from protocols.amqp.types import Described, identity
from tests.interop.amqp_values import VALUES
from tests.interop.programs import BUILD_S, RUN_S, forwarding
from tests.support.amqp_client import AmqpClient, AmqpSocket
from tests.support.daemon import DaemonProcess

#: What clients do not give back as it was, each seen on its own: by design (rhea's numbers are doubles, Java's
#: characters have 16 bits, Go's client reads symbols as strings), or because its decoder or encoder is wrong.
CANNOT: Final[dict[str, tuple[str, ...]]] = {
    "proton": (),
    "rhea": ("beyond a double", "described twice", "array of array"),
    "jms": (
        "char beyond 16 bits",
        *("array of numbers", "array of long", "array of char", "array of array", "array of described"),
    ),
    "go": (
        *("symbol", "described by symbol", "decimal", "char", "char beyond 16 bits"),
        *("array of long", "array of char", "array of decimal", "array of list", "array of array"),
        "array of described",
    ),
    "rust": (
        *("array beyond ASCII", "array of map", "array of list", "array of array", "array of described"),
        "empty array",
    ),
}


def message(name: str, kind: str, value: object) -> bytes:
    """One value, in a list, because JMS has no message of a symbol."""
    return encode_application_properties({"case": name, "kind": kind}) + encode_section(AMQP_VALUE, [value])


def routes(name: str, peers: list[str]) -> list[str]:
    """What a client forwards: from us to everybody, and from everybody to us."""
    first = f"queue://types.1.{name}>" + ",".join(f"queue://types.2.{name}.{other}" for other in peers)
    return [first, *(f"queue://types.2.{other}.{name}>queue://types.3.{other}.{name}" for other in peers)]


def selector(name: str) -> str:
    """All that a client can hold."""
    kinds = ", ".join(f"'{kind}'" for kind in (*CANNOT[name], "none"))
    return f"kind NOT IN ({kinds})"


class Forwarder(MessagingHandler):
    """The same with python-qpid-proton, on a thread of this process."""

    def __init__(self, port: int, wanted: str, followed: list[str]) -> None:
        super().__init__()
        self._url = f"amqp://127.0.0.1:{port}"
        self._selector = wanted
        self._routes = followed
        self._senders: dict[str, list[Any]] = {}

    def on_start(self, event: Any) -> None:
        container = event.container
        connection = container.connect(self._url, reconnect=False)
        for route in self._routes:
            source, _, targets = route.partition(">")
            receiver = container.create_receiver(connection, source, options=Selector(self._selector))
            self._senders[receiver.name] = [container.create_sender(connection, to) for to in targets.split(",")]

    def on_message(self, event: Any) -> None:
        arrived = event.message
        for sender in self._senders[event.receiver.name]:
            sender.send(ProtonMessage(body=arrived.body, properties=arrived.properties))
        if arrived.properties["case"] == "end":
            del self._senders[event.receiver.name]
            if not self._senders:
                event.connection.close()


def collected(client: AmqpClient, address: str) -> dict[str, object]:
    """Everything on a queue up to the case `end`."""
    link = client.receiver(address, credit=1000)
    found: dict[str, object] = {}
    while True:
        (delivery,) = client.take(1)
        assert delivery.link is link
        name = delivery.message.application_properties["case"]
        if name == "end":
            return found
        (found[str(name)],) = delivery.body  # type: ignore[misc]


def meaning(value: object) -> Hashable:
    """What tells values apart: their types too, but not the order of a map, which some clients do not keep."""
    match value:
        case dict():
            return frozenset((identity(key), meaning(item)) for key, item in value.items())
        case list():
            return tuple(meaning(item) for item in value)
        case Described(descriptor, inner):
            return (identity(descriptor), meaning(inner))
        case _:
            return identity(value)


def differences(first: str, second: str, found: dict[str, object]) -> list[str]:
    """What is not as it was."""
    wrong = []
    for kind, cases in VALUES.items():
        if kind in CANNOT[first] or kind in CANNOT[second]:
            continue
        for name, value in cases.items():
            if name not in found:
                wrong.append(f"{first} > {second}: {name}: lost")
            elif meaning(found[name]) != meaning(value):
                wrong.append(f"{first} > {second}: {name}: {encode(value).hex()} became {found[name]!r}")
    return wrong


def available(port: int) -> dict[str, list[str]]:
    """The command of each client that can be had, without its routes."""
    commands = {}
    for name in CANNOT:
        if name == "proton":
            continue
        try:
            commands[name] = forwarding(name, port, selector(name), [])
        except pytest.skip.Exception:
            continue
    return commands


def test_our_own_codec(broker: DaemonProcess) -> None:
    """Without a client between: the broker gives back the very bytes."""
    with AmqpSocket(broker.ports["amqp"]) as client:
        client.receiver("queue://types.own", credit=1000)
        sent = [message(name, kind, value) for kind, cases in VALUES.items() for name, value in cases.items()]
        client.put(client.sender("queue://types.own"), *sent)
        assert [delivery.message.bare for delivery in client.take(len(sent))] == sent


@pytest.mark.timeout(4 * BUILD_S + RUN_S)
def test_every_pair_of_clients(broker: DaemonProcess) -> None:
    port = broker.ports["amqp"]
    commands = available(port)
    peers = ["proton", *commands]
    with ExitStack() as stack:
        client = stack.enter_context(AmqpSocket(port))
        for name in peers:
            link = client.sender(f"queue://types.1.{name}")
            for kind, cases in VALUES.items():
                client.put(link, *[message(case, kind, value) for case, value in cases.items()])
            client.put(link, message("end", "end", "end"))
        running = [stack.enter_context(subprocess.Popen([*commands[name], *routes(name, peers)])) for name in commands]
        proton = Container(Forwarder(port, selector("proton"), routes("proton", peers)))
        thread = threading.Thread(target=proton.run, daemon=True)
        thread.start()
        try:
            for process in running:
                assert process.wait(RUN_S) == 0, process.args
            thread.join(RUN_S)
            assert not thread.is_alive()
        finally:
            for process in running:
                process.kill()
        wrong = []
        for first in peers:
            for second in peers:
                found = collected(client, f"queue://types.3.{first}.{second}")
                wrong += differences(first, second, found)
        assert wrong == []
