"""What the generator itself costs: each half alone, against a thread that swallows or feeds its bytes.

`time.thread_time` counts this thread only, system calls included, so the other thread does not show in the figures.
"""

from __future__ import annotations

import socket
import threading
import time

from bench.consumer import AckMode, Consumer
from bench.link import READ_BYTES, Link
from bench.messages import LAP, Pool
from bench.producer import Producer

# What brokers add to a message, about 150 bytes.
_ADDED = (
    b"MESSAGE\nsubscription:0\nmessage-id:ID-host-40000-1700000000000-3:1,123456789\n"
    b"ack:ID-host-40000-1700000000000-3:1,123456789\nredelivered:false\ntimestamp:1700000000000\ndestination:"
)


def producing(pool: Pool, messages: int) -> float:
    """CPU microseconds to make and send one message."""
    near, far = socket.socketpair()

    def swallow() -> None:
        while far.recv(READ_BYTES):
            pass

    thread = threading.Thread(target=swallow)
    thread.start()
    try:
        producer = Producer(Link(near), pool, messages)
        start = time.thread_time()
        while producer.sent < messages:
            if not producer.pump(messages):
                time.sleep(0.0005)
        return 1e6 * (time.thread_time() - start) / messages
    finally:
        near.close()
        thread.join()
        far.close()


def consuming(pool: Pool, laps: int, ack: AckMode, ack_every: int) -> float:
    """CPU microseconds to read, check and acknowledge one message."""
    near, far = socket.socketpair()
    buffers = [pool.lap(lap).replace(b"SEND\ndestination:", _ADDED) for lap in range(laps)]

    def feed() -> None:
        for buffer in buffers:
            far.sendall(buffer)

    def swallow() -> None:
        while far.recv(READ_BYTES):
            pass

    threads = [threading.Thread(target=feed), threading.Thread(target=swallow)]
    for thread in threads:
        thread.start()
    try:
        consumer = Consumer(Link(near), pool, ack, ack_every)
        start = time.thread_time()
        while consumer.received < laps * LAP:
            if not consumer.pump(None):
                time.sleep(0.0005)
        return 1e6 * (time.thread_time() - start) / (laps * LAP)
    finally:
        near.close()
        for thread in threads:
            thread.join()
        far.close()
