"""The parts of the engine that follow the creation, change and deletion of addresses and queues: retroactive addresses,
notifications, slow consumers, the rules for dead letters.
"""

from __future__ import annotations

from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.delivery.slow_consumers import SlowConsumers
from broker.engine.delivery.transaction import Transactions
from broker.engine.model.access import Security
from broker.engine.moves.retroactive import Retroactive
from broker.engine.moves.rule_runs import DeadLetterRules
from broker.engine.operators.notifications import Notifications
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork
from broker.engine.queues.watcher import Watcher


class Watchers(Watcher):
    """All watchers of one engine."""

    def __init__(self, state: State, security: Security, sessions: StoredSessions, transactions: Transactions) -> None:
        self.retroactive = Retroactive(state)
        self.notifications = Notifications(state)
        self.slow = SlowConsumers(state)
        self.dead_letter_rules = DeadLetterRules(state, security, transactions.holding)
        self._sessions = sessions
        state.registry.watchers += [self, self.retroactive, self.notifications]

    def apply_settings(self) -> LongWork:
        """Apply the settings, after a start and whenever they have changed."""
        yield from self.retroactive.apply_settings()
        yield from self.slow.apply_settings()
        self.notifications.apply_settings()
        self.dead_letter_rules.apply_settings()

    def address_made(self, address: Address) -> None:
        if address.settings.slow_consumer_threshold >= 0:
            self.slow.schedule_check(address.settings.slow_consumer_check_period)

    def queue_gone(self, queue: Queue) -> None:
        self._sessions.in_flight.queue_deleted(queue)
