"""What the API of every HTTP acceptor and the console work with together: it is kept, or waited for, once a broker."""

from __future__ import annotations

from broker.management.dead_letters.counting import GroupCounter
from broker.management.names import Names
from broker.management.ports import Broker
from broker.management.trails import TrailFinder
from broker.management.uploads import BodyUploads


class Shared:
    """One broker's.  `names` are sorted once for all; `groups` and `trails` have their turns, whoever asks.

    Of `uploads` there are few at a time.
    """

    def __init__(self, broker: Broker) -> None:
        self.names = Names(broker.engine)
        self.groups = GroupCounter(broker)
        self.trails = TrailFinder(broker)
        self.uploads = BodyUploads(broker)
