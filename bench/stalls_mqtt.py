"""The cases of `bench.stalls` that MQTT clients make: sessions, wills, retained messages, many topic filters.

Each function gets the port and the number of messages, prepares, and returns what is measured.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from bench.mqtt_idle import allow_handles
from protocols.mqtt.codes import V5, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Subscribe, Unsubscribe, Will
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from protocols.mqtt.runs import Shared
from tests.support.mqtt_client import LIMITS, MqttClient, greeting, topic_filter, wish
from tests.support.mqtt_world import FOR_EVER, SocketWorld

#: Messages that a client sends without waiting for answers.
RUN: Final = 1_000

#: One in so many messages is a client with a will: 4,000 at 200,000 messages.
MESSAGES_OF_A_CLIENT: Final = 50

#: Topic filters in a packet.
FILTERS: Final = 1_000

#: Descriptors beside those of the clients.
_HANDLES_SPARE: Final = 200

Work = Callable[[], object]
Case = Callable[[int, int], Work]


def _ask(client: MqttClient, packet: Subscribe | Unsubscribe) -> None:
    """Sends a packet and waits for its answer, which comes when the disk has it, behind that to a PINGREQ."""
    client.send(packet)
    while not client.others:
        client.settle()
        assert not client.closed, client.goodbye
    client.others.clear()


def _published(client: MqttClient, topics: Callable[[int], str], messages: int, *, retain: bool = False) -> None:
    for first in range(0, messages, RUN):
        for number in range(first, min(first + RUN, messages)):
            head = PublishHead(client.codec.version, topics(number), qos=1, retain=retain)
            client.codec.send_publish(head, [b"x" * 100], [1 + number % RUN])
        while len(client.answers) < min(RUN, messages - first):
            client.settle()
            assert not client.closed, client.goodbye
        client.answers.clear()


def mqtt_sends(port: int, messages: int) -> Work:
    """Reads full of the shortest PUBLISH packets, to one topic; nobody subscribes."""
    client = SocketWorld(port).connect("producer")
    packets = b"\x30\x04\0\1t\0" * messages if client.codec.version == V5 else b"\x30\x03\0\1t" * messages

    return lambda: client.raw(packets)


def _wills(port: int, messages: int, expiry: int) -> Work:
    clients = max(1, messages // MESSAGES_OF_A_CLIENT)
    allow_handles(clients + _HANDLES_SPARE)
    opened = []
    for number in range(clients):
        will = Will(f"wills/{number}", b"gone", 1, False)
        codec = MqttConnection(Shared(Role.CLIENT, LIMITS))
        codec.send(greeting(f"c{number}", properties=[(SESSION_EXPIRY_INTERVAL, expiry)], will=will))
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(codec.data_to_send())
        assert sock.recv(4), "it is refused"
        opened.append(sock)

    def work() -> None:
        for sock in opened:
            sock.close()

    return work


def wills(port: int, messages: int) -> Work:
    """The end of connections with wills, all at once; their sessions stay."""
    return _wills(port, messages, FOR_EVER)


def session_ends(port: int, messages: int) -> Work:
    """The same, and their sessions end with them."""
    return _wills(port, messages, 0)


def _backlog(port: int, messages: int) -> SocketWorld:
    """A session with half as many messages: `queued-messages-max` at 200,000."""
    world = SocketWorld(port)
    away = world.connect("away", expiry=FOR_EVER)
    _ask(away, Subscribe(1, [wish("backlog", 1)]))
    away.drop()
    _published(world.connect("producer"), lambda _: "backlog", messages // 2)
    return world


def clean_start(port: int, messages: int) -> Work:
    """Clean start of a client whose session has a backlog."""
    world = _backlog(port, messages)
    return lambda: world.connect("away")


def resume(port: int, messages: int) -> Work:
    """The return of a client whose session has a backlog; it reads all of it."""
    world = _backlog(port, messages)

    def work() -> None:
        client = world.connect("away", clean=False, expiry=FOR_EVER)
        got = 0
        while got < messages // 2:
            client.settle()
            assert not client.closed, client.goodbye
            got += len(client.take())

    return work


def _subscriber(port: int) -> tuple[MqttClient, list[str]]:
    return SocketWorld(port).connect("filters", expiry=FOR_EVER), [f"filters/{n}/+" for n in range(FILTERS)]


def subscribe(port: int, messages: int) -> Work:
    """SUBSCRIBE of 1,000 topic filters, in a lasting session."""
    client, filters = _subscriber(port)
    return lambda: _ask(client, Subscribe(client.number(), [wish(each, 1) for each in filters]))


def unsubscribe(port: int, messages: int) -> Work:
    """UNSUBSCRIBE of 1,000 topic filters."""
    client, filters = _subscriber(port)
    _ask(client, Subscribe(client.number(), [wish(each, 1) for each in filters]))
    return lambda: _ask(client, Unsubscribe(client.number(), [topic_filter(each) for each in filters]))


def retain(port: int, messages: int) -> Work:
    """Publishing retained messages, half as many."""
    client = SocketWorld(port).connect("producer")
    return lambda: _published(client, "retained/{}".format, messages // 2, retain=True)


def retained(port: int, messages: int) -> Work:
    """SUBSCRIBE of topic filters that each match all retained messages, half as many."""
    retain(port, messages)()
    client = SocketWorld(port).connect("c", clean=True)
    filters = ["#", "+/#", "+/+", "+/+/#", "retained/#", "retained/+", "retained/+/#"]
    return lambda: _ask(client, Subscribe(client.number(), [wish(each, 0) for each in filters]))


MQTT_CASES: Final[dict[str, Case]] = {
    each.__name__: each
    for each in (mqtt_sends, wills, session_ends, clean_start, resume, subscribe, unsubscribe, retain, retained)
}
