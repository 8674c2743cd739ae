"""What a user pastes finds what it means."""

from __future__ import annotations

import pytest

from broker.reasons.find import SUGGESTIONS_MAX, find, suggest
from broker.reasons.reason import Kind
from broker.reasons.table import reasons


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max-deliveries", ["dead-letter max-deliveries"]),
        ("MAX_DELIVERIES", ["dead-letter max-deliveries"]),
        ("  Max Deliveries  ", ["dead-letter max-deliveries"]),
        ("expired", ["dead-letter expired", "removal expired"]),
        ("disk-full", ["stays disk-full", "error disk-full"]),
        ("0x97", ["mqtt Quota exceeded"]),
        ("151", ["mqtt Quota exceeded"]),
        ("quota exceeded", ["mqtt Quota exceeded"]),
        ("QuotaExceeded", []),
        ("mqtt 0x97", ["mqtt Quota exceeded"]),
        ("mqtt reason code 5", ["mqtt Not authorized"]),
        ("0x05", ["mqtt Not authorized"]),
        ("exit 3", ["exit unreachable"]),
        ("exit status 75", ["exit in-use"]),
        ("10", ["dead-letter link-hops", "removal unroutable"]),
        ("75", ["exit in-use"]),
        ("421", ["http wrong-host"]),
        ("503", ["error not-readable", "http standby", "http too-many-connections", "http /livez", "http /readyz"]),
        (
            "http 503",
            ["error not-readable", "http standby", "http too-many-connections", "http /livez", "http /readyz"],
        ),
        ("HTTP status 403", ["error denied", "http cross-origin"]),
        ("HTTP/1.1 413 Content Too Large", ["error too-large", "http body-too-large"]),
        ("curl: (22) The requested URL returned error: 507", ["error disk-full"]),
        ("http 201", ["http created"]),
        ("exit 200", []),
        ("/readyz", ["http /readyz"]),
        ("The body is not JSON", ["http not-json"]),
        ('{"title": "The body is wrong", "status": 400}', ["http invalid-body"]),
        ("/api/v1/docs#not-readable", ["error not-readable"]),
        ('{"type": "/api/v1/docs#not-readable", "status": 503}', ["error not-readable"]),
        ("amqp:resource-limit-exceeded", ["amqp amqp:resource-limit-exceeded"]),
        ("resource-limit-exceeded", ["amqp amqp:resource-limit-exceeded"]),
        ("amqp:link:message-size-exceeded", ["amqp amqp:link:message-size-exceeded"]),
        ("address.auto_deleted", ["log address.auto_deleted"]),
        ("invalid priority", ["stomp invalid *"]),
        ("invalid heart-beat", ["stomp invalid heart-beat"]),
        ("stomp login refused", ["stomp login refused"]),
        ("_AMQ_DL_REASON:rejected", ["dead-letter rejected"]),
        ("_AMQ_DL_REASON: no-route", ["dead-letter no-route"]),
        ('2026-11-21T09:57:12.123Z WARNING  login.refused connection=stomp-12 user="bob"', ["log login.refused"]),
        ('{"level": "warning", "code": "login.refused", "remote": "::1"}', ["log login.refused"]),
        ("message:unknown subscription", ["stomp unknown subscription"]),
        ("amqp:not-found: queue x does not exist", ["amqp amqp:not-found"]),
        ("2053", ["ibm-mq MQRC_Q_FULL"]),
        ("0x00000805", ["ibm-mq MQRC_Q_FULL"]),
        ("0x805", ["ibm-mq MQRC_Q_FULL"]),
        ("0x25080000", ["ibm-mq MQRC_UNKNOWN_OBJECT_NAME"]),  # the bytes of a dump on Intel
        ("0x000007f3", ["ibm-mq MQRC_NOT_AUTHORIZED"]),
        ("mqrc_q_full", ["ibm-mq MQRC_Q_FULL"]),
        ("mqrc 2051", ["ibm-mq MQRC_PUT_INHIBITED"]),
        ("2051 0x00000803 MQRC_PUT_INHIBITED", ["ibm-mq MQRC_PUT_INHIBITED"]),
        ("MQPUT ended with reason code 2053", ["ibm-mq MQRC_Q_FULL"]),
        ("zzz", []),
        ("", []),
        ("99999", []),
    ],
)
def test_find(text: str, found: list[str]) -> None:
    assert [f"{reason.kind.value} {reason.word}" for reason in find(reasons(), text)] == found


def test_each_word_finds_itself() -> None:
    for reason in reasons():
        assert reason in find(reasons(), reason.word)
        if reason.number is not None:
            assert reason in find(reasons(), f"{reason.kind.value} {reason.number}")


@pytest.mark.parametrize(
    ("text", "near"), [("max-delivries", "max-deliveries"), ("stomp.eror", "stomp.error"), ("disk", "disk.full")]
)
def test_near_misses(text: str, near: str) -> None:
    assert near in suggest(reasons(), text)
    assert len(suggest(reasons(), text)) <= SUGGESTIONS_MAX


@pytest.mark.parametrize(
    ("sentence", "near"),
    [
        ("address orders is full: it holds 5 messages of 500 bytes", "address-full"),
        ("SEND: queue orders does not exist", "not-found"),
        ("the transaction took longer than it may and was rolled back", "transaction-closed"),
    ],
)
def test_of_a_sentence_what_says_the_same_is_near(sentence: str, near: str) -> None:
    assert find(reasons(), sentence) == []
    assert near in suggest(reasons(), sentence)


def test_nothing_is_near_to_noise() -> None:
    assert suggest(reasons(), "qqqqqqqq") == []
    assert suggest([], "disk") == []


def test_kinds_have_a_place_and_a_name() -> None:
    assert {reason.kind for reason in reasons()} == set(Kind)
    assert len({kind.title for kind in Kind}) == len({kind.label for kind in Kind}) == len(Kind)
