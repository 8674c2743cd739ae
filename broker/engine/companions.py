"""What goes along with addresses and queues as they come, change and go: rings of retroactive addresses, notifications,
the watch over slow consumers.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.address import Address
from broker.engine.alarms import Alarms
from broker.engine.consumer import Consumer
from broker.engine.core import Core
from broker.engine.notifications import Notifications
from broker.engine.queue import Queue
from broker.engine.redelivery import LOST, Return
from broker.engine.retroactive import Retroactive
from broker.engine.router import Router
from broker.engine.sessions import StoredSessions
from broker.engine.slow import SlowConsumers
from broker.engine.watcher import Watcher


class Companions(Watcher):
    """All of them.  `end_consumer` and `delete_queue` are the engine's verbs."""

    def __init__(
        self,
        core: Core,
        router: Router,
        alarms: Alarms,
        sessions: StoredSessions,
        *,
        end_consumer: Callable[[Consumer, Return, str], None],
        delete_queue: Callable[[Queue], None],
    ) -> None:
        def kill(consumer: Consumer, reason: str) -> None:
            end_consumer(consumer, LOST, reason)

        self.retroactive = Retroactive(core, router, delete_queue)
        self.notifications = Notifications(core, router)
        self.slow = SlowConsumers(core, router, alarms, kill)
        self._sessions = sessions
        router.watchers += [self, self.retroactive, self.notifications]

    def settle(self) -> None:
        """After a start and whenever settings have changed.  Call within a tick."""
        self.retroactive.settle()
        self.notifications.settle()
        self.slow.settle()

    # -- what the router tells -------------------------------------------------------------------------------------

    def address_made(self, address: Address) -> None:
        if address.settings.slow_consumer_threshold >= 0:
            self.slow.watch(address.settings.slow_consumer_check_period)

    def queue_gone(self, queue: Queue) -> None:
        self._sessions.queue_gone(queue)
