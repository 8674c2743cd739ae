"""An MQTT broker of the simplest kind: what is published goes to all who subscribed, unless it is told to lose it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest

from bench.generator import Target
from protocols.mqtt.codes import PacketType
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Ack, Connack, Connect, Packet, Pingreq, Pingresp, Publish, Suback, Subscribe


def serve(listener: socket.socket, lose: int) -> None:
    """Takes connections, and sends what is published to those who subscribed; `lose`: all after so many is lost."""
    threads: list[threading.Thread] = []
    subscribers: list[socket.socket] = []

    def talk(sock: socket.socket) -> None:
        codec = MqttConnection()
        count = 0
        with sock, suppress(OSError):
            while data := sock.recv(1 << 16):
                codec.receive_data(data)
                while found := codec.events():
                    for packet in found:
                        if isinstance(packet, Publish):
                            copies = encoded(packet, codec.version, max(lose - count, 0) if lose else None)
                            count += len(packet.topics)
                            for other in subscribers:
                                other.sendall(copies)
                        answer(codec, packet, sock, subscribers)
                sock.sendall(codec.data_to_send())

    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            break
        threads.append(threading.Thread(target=talk, args=(sock,), daemon=True))
        threads[-1].start()
    for one in threads:
        one.join(10)


def encoded(run: Publish, version: int, most: int | None) -> bytes:
    """The packets as they came, the first `most` of them."""
    out: list[bytes] = []
    for topic, payload, packet_id in [*zip_longest(run.topics, run.payloads, run.packet_ids)][:most]:
        head = PublishHead(version, topic, qos=run.qos, retain=run.retain, properties=run.properties.raw)
        head.encode(out, [payload], [packet_id])
    return b"".join(out)


def answer(codec: MqttConnection, packet: Packet, sock: socket.socket, subscribers: list[socket.socket]) -> None:
    """What the specification demands of a broker."""
    if isinstance(packet, Connect):
        codec.send(Connack())
    elif isinstance(packet, Subscribe):
        codec.send(Suback(packet.packet_id, [packet.subscriptions[0].qos]))
        subscribers.append(sock)
    elif isinstance(packet, Pingreq):
        codec.send(Pingresp())
    elif isinstance(packet, Publish) and packet.qos:
        codec.send(Ack(PacketType.PUBACK, packet.packet_ids))


@contextmanager
def toy(lose: int = 0) -> Iterator[Target]:
    """A broker of the simplest kind."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, lose), daemon=True)
        thread.start()
        yield Target("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
