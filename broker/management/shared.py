"""State that the APIs of all HTTP acceptors and the console share, one instance per broker."""

from __future__ import annotations

from broker.management.dead_letters import GroupCounter
from broker.management.names import Names
from broker.management.ports import Broker
from broker.management.trails import TrailFinder
from broker.management.turns import Turns
from broker.management.uploads import BodyUploads


class Shared:
    """The shared state of one broker.

    All calls take `turns`; `names` are sorted once for all; calls of `groups` and `trails` queue up; the number of
    `uploads` is limited.
    """

    def __init__(self, broker: Broker) -> None:
        self.turns = Turns()
        self.names = Names(broker.engine)
        self.groups = GroupCounter(broker)
        self.trails = TrailFinder(broker)
        self.uploads = BodyUploads(broker)
