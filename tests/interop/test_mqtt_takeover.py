"""Clients that take over sessions over real sockets: each CONNECT has its CONNACK, and what came before it counts."""

from __future__ import annotations

import asyncio
from typing import Final

from protocols.mqtt.codes import V5
from protocols.mqtt.encode import PublishHead, encode
from protocols.mqtt.packets import Disconnect, Will
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.support.daemon import DaemonProcess
from tests.support.mqtt_client import greeting
from tests.support.mqtt_world import SocketWorld

PATIENCE_S: Final = 30.0
CLIENTS: Final = 40
BURST: Final = 600  # single packets, of which a tick handles some 160
ROUNDS: Final = 10

CONNECT: Final = encode(greeting("fought for", clean=False, properties=[(SESSION_EXPIRY_INTERVAL, 100)]), V5)


async def fight(port: int) -> list[bytes]:
    """What each connection hears first."""
    heard: list[bytes] = []

    async def client() -> None:
        for _ in range(ROUNDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CONNECT)
            head = await reader.readexactly(2)
            heard.append(head + await reader.readexactly(head[1]))
            writer.close()

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return heard


def test_every_connect_is_answered(broker: DaemonProcess) -> None:
    heard = asyncio.run(fight(broker.ports["mqtt"]))
    assert len(heard) == CLIENTS * ROUNDS
    assert {answer[:1] + answer[3:4] for answer in heard} == {b"\x20\0"}


def test_a_client_that_has_disconnected_may_come_back_at_once(broker: DaemonProcess) -> None:
    """What it had sent arrives, also with QoS 0, and there is no will."""
    world = SocketWorld(broker.ports["mqtt"])
    reader = world.subscriber("reader", "burst", "will")
    client = world.connect("c", will=Will("will", b"gone"))
    for number in range(BURST):
        qos = number % 2  # packets of one QoS would be handled together
        head = PublishHead(V5, "burst", qos=qos)
        client.codec.send_publish(head, [b"%d" % number], [number + 1] if qos else [])
    client.codec.send(Disconnect())
    client.link.raw(client.codec.data_to_send())
    world.connect("c")
    found: list[bytes] = []
    while len(found) < BURST:
        reader.link.read()
        found += reader.payloads()
    assert found == [b"%d" % number for number in range(BURST)]
    world.close()
