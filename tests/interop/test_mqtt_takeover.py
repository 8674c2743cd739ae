"""Clients that fight for one session over real sockets: each CONNECT has its CONNACK, whoever wins."""

from __future__ import annotations

import asyncio
from typing import Final

from protocols.mqtt.codes import V5
from protocols.mqtt.encode import encode
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.support.daemon import DaemonProcess
from tests.support.mqtt_client import greeting

PATIENCE_S: Final = 30.0
CLIENTS: Final = 40
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
