"""The calls on rules for dead letters: what the rules in force did, and what they or others would do."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.engine import Trial
from broker.engine.model.settings_match import InvalidMatch
from broker.management.callers import managed, require_queue
from broker.management.calls import CallerAccess, Calls, authorize_whole
from broker.management.cursors import cursor, place
from broker.management.models.base import Name
from broker.management.models.dead_letter_rules import RuleList, Tried, Try, rule_list, tried
from broker.management.ports import Broker
from broker.management.problems import Refused

#: Messages that one call examines, over many ticks: half a second of work.
LOOKED_AT_MAX: Final = 10_000


#: Bytes of the rules to try: the most rules allowed, with long selectors.
BODY_BYTES_MAX: Final = 1 << 20


class DeadLetterRuleCalls:
    """The calls on one broker's rules."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add("GET", "/dead-letter-rules", self.list, authorize=authorize_whole)
        path = "/queues/{name}/dead-letter-rules:try"
        calls.add("POST", path, self.attempt, authorize=self._authorize, problems=(503,), body_bytes_max=BODY_BYTES_MAX)

    async def _authorize(self, name: Name, access: CallerAccess) -> None:
        require_queue(access, self._engine, name)

    async def list(self, access: CallerAccess) -> RuleList:
        """The rules in force, with what each did; and the queues that they may apply to."""
        queues = {queue.name: queue.address.name for queue in self._engine.messages.dead_letter_queues()}
        names = await managed(access, [*queues], lambda name: (queues[name], name))
        return rule_list(self._engine.dead_letter_rules, names)

    async def attempt(self, name: Name, body: Try) -> Tried:
        """What rules would do with the dead letters of a queue, each as if it had just died; nothing is changed.

        One call examines some thousand messages; `next` says where the next one continues.
        """
        rules, queue = self._engine.dead_letter_rules, self._engine.queue(name)
        try:
            chosen = None if body.rules is None else [rule.rule(rules) for rule in body.rules]
        except InvalidMatch as error:
            raise Refused("invalid-body", str(error)) from None
        trial = Trial(last=place("dead-letter-rules", body.after, 0))
        while not trial.complete and trial.counts.total() + trial.other < LOOKED_AT_MAX:
            self._broker.tick.enter()
            rules.attempt(queue, trial, chosen)
            await asyncio.sleep(0)
        next = None if trial.complete else cursor("dead-letter-rules", trial.last)
        return tried(queue.name, trial, next)
