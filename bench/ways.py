"""The way of a message through the code: which files it enters in what order, and how often it returns to one.

`python -m bench.ways` prints it for a durable publish, an acknowledgement and a dead letter over STOMP, on a simulated
disk: everything from the bytes of the request to the bytes of the answers, and the engine's verb alone.  A stay is a
stretch of calls within one file; a return, a stay in a file that was left before.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from tests.simulation.world import small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame

ROOT: Final = Path(__file__).parent.parent

#: Where the product is; its tests drive it.
PRODUCT: Final = ("broker", "protocols", "store")


@dataclass(frozen=True, slots=True)
class Way:
    """The files of some work, each as often as it was entered, in order."""

    stays: list[str]

    @property
    def files(self) -> Counter[str]:
        """How often each was entered, in the order of the first time."""
        return Counter(self.stays)

    @property
    def returns(self) -> int:
        """How many stays are in a file that was left before."""
        return len(self.stays) - len(self.files)


@contextmanager
def followed(verb: str = "") -> Iterator[Way]:
    """Follow the calls of the product's functions meanwhile; with a name, only while that function runs."""
    way = Way([])
    stays = way.stays
    running: list[FrameType] = []

    def note(called: FrameType, event: str, argument: object) -> None:
        if event == "return" and running and running[-1] is called:
            running.pop()
        if event != "call":
            return
        if called.f_code.co_qualname == verb:
            running.append(called)
        path = called.f_code.co_filename
        if path.startswith(str(ROOT)) and (running or not verb):
            file = path[len(str(ROOT)) + 1 :]
            if file.startswith(PRODUCT) and (not stays or stays[-1] != file):
                stays.append(file)

    sys.setprofile(note)
    try:
        yield way
    finally:
        sys.setprofile(None)


def _ready() -> SimClient:
    """A client that has subscribed, of a broker where all has been done once."""
    client = SimBroker(small({"match": "a", "max-delivery-attempts": 1})).connect()
    client.subscribe("/queue/a", ack="client-individual")
    for _ in range(2):
        client.raw(_SEND)
        _settle(client, "ACK")
    return client


_SEND: Final = frame("SEND", {"destination": "/queue/a", "persistent": "true", "receipt": "r"}, b"body")


def _settle(client: SimClient, command: str) -> None:
    message = client.messages()[-1]
    client.raw(frame(command, {"id": message.headers["ack"]}))


def publish(verb: str = "") -> Way:
    """A durable publish, to its receipt and its delivery."""
    client = _ready()
    with followed(verb) as way:
        client.raw(_SEND)
    return way


def acknowledge(verb: str = "") -> Way:
    """An acknowledgement."""
    client = _ready()
    client.raw(_SEND)
    with followed(verb) as way:
        _settle(client, "ACK")
    return way


def dead_letter(verb: str = "") -> Way:
    """A refusal that makes a dead letter."""
    client = _ready()
    for _ in range(2):  # the first one creates the dead-letter address, in other brokers' configurations
        client.raw(_SEND)
        with followed(verb) as way:
            _settle(client, "NACK")
    return way


#: Each way, and the engine's verb in the middle of it.
WAYS: Final[Mapping[str, tuple[Callable[[str], Way], str]]] = {
    "publish": (publish, "Producers.publish"),
    "acknowledgement": (acknowledge, "Consumers.acknowledge"),
    "dead letter": (dead_letter, "Consumers.give_back"),
}


def main() -> None:
    """Print the ways."""
    print("| way | stays | files | returns |")
    print("|---|---|---|---|")
    for name, (follow, verb) in WAYS.items():
        for title, way in ((f"{name}, to the last answer", follow("")), (f"`{verb}` alone", follow(verb))):
            print(f"| {title} | {len(way.stays)} | {len(way.files)} | {way.returns} |")
    for follow, verb in WAYS.values():
        print(f"\n{verb}")
        for file, count in follow(verb).files.items():
            print(f"{count:4} {file}")


if __name__ == "__main__":
    main()
