"""What rules say of a dead letter at a time, against a model that lives through every millisecond."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import rules_of
from broker.engine.model.message import Message, MessageHeader
from broker.engine.moves.dead_letter_rules import (
    NEVER,
    Action,
    DeadLetter,
    DeadLetterRule,
    dead_letter,
    decide,
    unreached,
)
from broker.sessions.stomp.format import StompFormat
from tests.support.rules import sections
from tests.support.sim_broker import configured

MESSAGE = Message(MessageHeader("DLQ", StompFormat(()), durable=True, timestamp=0), b"", b"")
LETTER = DeadLetter("DLQ", MESSAGE, "rejected", 0, "orders.eu", "orders.eu::q", "shop", 3, 0)


def rule(**fields: object) -> DeadLetterRule:
    """A rule as the configuration makes it."""
    keys = {name.replace("_", "-"): value for name, value in fields.items()}
    (made,) = rules_of(configured(dead_letter_rules=sections(keys)))
    return made


# -- which dead letters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({}, True),
        ({"queue": "DLQ"}, True),
        ({"queue": "ExpiryQueue"}, False),
        ({"queue": "DL*"}, True),
        ({"reasons": ["expired", "rejected"]}, True),
        ({"reasons": ["expired"]}, False),
        ({"origin_address": "orders.#"}, True),
        ({"origin_address": "orders.*.x"}, False),
        ({"origin_queue": "orders.#"}, True),
        ({"origin_queue": "q"}, False),
        ({"user": "shop"}, True),
        ({"user": "sho"}, False),
        ({"min_attempts": 3}, True),
        ({"min_attempts": 4}, False),
        ({"selector": "AMQDurable = 'DURABLE'"}, True),
        ({"selector": "AMQDurable = 'NON_DURABLE'"}, False),
        ({"queue": "DLQ", "user": "other"}, False),
    ],
)
def test_whom_a_rule_fits(fields: dict[str, object], fits: bool) -> None:
    assert rule(action="leave", **fields).fits(LETTER) is fits


def test_a_message_that_has_not_died_is_no_dead_letter() -> None:
    assert dead_letter("DLQ", MESSAGE) is None
    header = MESSAGE.header.copy("DLQ", {"_AMQ_DL_REASON": "expired", "_AMQ_DL_TIME": 7, "_AMQ_DL_RETRIES": 2})
    message = Message.of(header, b"", b"")
    assert dead_letter("DLQ", message) == DeadLetter("DLQ", message, "expired", 7, retries=2)


def test_the_first_rule_that_fits_decides() -> None:
    rules = [rule(action="leave", user="other"), rule(action="discard", user="shop"), rule(action="leave")]
    decision = decide(rules, LETTER, 1)
    assert (decision.rule, decision.act, decision.due) == (rules[1], True, None)
    assert decide(rules[:1], LETTER, 1).rule is None


def test_an_age_is_reached_at_its_very_millisecond() -> None:
    rules = [rule(action="discard", min_age=1000), rule(action="leave")]
    early, ripe = decide(rules, LETTER, 999), decide(rules, LETTER, 1000)
    assert (early.rule, early.act, early.due) == (rules[1], False, 1000)
    assert (ripe.rule, ripe.act) == (rules[0], True)


def test_after_a_restart_the_last_attempt_is_made_before_the_next_rule_decides() -> None:
    rules = [rule(action="retry", every=100, at_most=3), rule(action="discard")]
    late = decide(rules, LETTER, 10_000, NEVER)
    assert (late.rule, late.act) == (rules[0], True)
    after = decide(rules, LETTER, 10_001, 10_000)
    assert (after.rule, after.act) == (rules[1], True)


def test_a_rule_behind_one_that_fits_everything_is_never_reached() -> None:
    retry, everything, last = rule(action="retry"), rule(action="leave"), rule(action="discard")
    assert unreached([retry, everything]) is None
    assert unreached([rule(action="move", to="a", user="x"), retry]) is None
    assert unreached([retry, everything, last]) == (last, everything)
    assert unreached([rule(action="reply"), last]) is None, "not every dead letter says where it wants answers"


# -- against the model -------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """Attempts of one dead letter, millisecond by millisecond; all of them are refused."""

    rules: list[DeadLetterRule]
    letter: DeadLetter

    def __post_init__(self) -> None:
        self.missed: dict[int, bool] = {}  # by rule: whether an attempt fell due since the last look
        self.fallen = [0] * len(self.rules)  # how many attempts have fallen due

    def tick(self, now: int) -> None:
        """One millisecond: attempts fall due."""
        for at, each in enumerate(self.rules):
            if each.action is Action.RETRY and self.fallen[at] < each.at_most - self.letter.retries:
                first = self.letter.died + (each.min_age or each.every)
                if now == first + self.fallen[at] * each.every:
                    self.fallen[at] += 1
                    self.missed[at] = True

    def look(self, now: int) -> tuple[DeadLetterRule | None, bool]:
        """What is to be done now."""
        found: tuple[DeadLetterRule | None, bool] | None = None
        for at, each in enumerate(self.rules):
            if not each.fits(self.letter) or now < self.letter.died + each.min_age or found is not None:
                continue
            if each.action is not Action.RETRY:
                found = each, each.action is not Action.LEAVE
            elif self.missed.get(at):
                found = each, True
            elif self.fallen[at] < each.at_most - self.letter.retries:
                found = each, False
        self.missed = {}
        return found or (None, False)


times = st.integers(0, 12)
some_rules = st.lists(
    st.builds(
        DeadLetterRule,
        name=st.just("r"),
        action=st.sampled_from(list(Action)),
        reasons=st.sampled_from([frozenset[str](), frozenset({"rejected"}), frozenset({"expired"})]),
        min_age=times,
        every=st.integers(1, 9),
        at_most=st.integers(1, 4),
    ),
    max_size=4,
)


@given(some_rules, st.integers(0, 3), st.integers(0, 3), st.sets(st.integers(0, 60), max_size=12))
def test_as_the_model_says(rules: list[DeadLetterRule], died: int, retries: int, looks: set[int]) -> None:
    """At whatever times it is looked at: the same rule, and as often."""
    letter = replace(LETTER, died=died, retries=retries)
    model = Model(rules, letter)
    looked = NEVER
    for now in range(61):
        model.tick(now)
        if now in looks and now >= died:
            decision = decide(rules, letter, now, looked)
            assert (decision.rule, decision.act) == model.look(now)
            looked = now


@given(some_rules, st.integers(0, 60), st.integers(-1, 60))
def test_nothing_is_different_before_it_is_due(rules: list[DeadLetterRule], now: int, looked: int) -> None:
    decision = decide(rules, LETTER, now, min(looked, now))
    if decision.act:
        return
    end = 200 if decision.due is None else decision.due
    assert end > now
    for later in range(now + 1, end):
        again = decide(rules, LETTER, later, now)
        assert (again.rule, again.act, again.due) == (decision.rule, False, decision.due)
    if decision.due is not None:
        then = decide(rules, LETTER, end, end - 1)
        assert then.act or (then.rule, then.due) != (decision.rule, decision.due)
