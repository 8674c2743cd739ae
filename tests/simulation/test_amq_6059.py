"""AMQ-6059: a message that was moved to the dead letters disappeared with the next restart.

There the copy shared the stored record of the original, and so its expiration.  Here a moved message is a record of
its own (promise P2): it survives a power cut at once after it was announced, without expiration, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.config import Config
from store.record import RemovalReason
from tests.simulation.world import check_accounts, held, lasting, reasons, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import ServerFrame

BODY = b"an order"


def orders(**settings: object) -> Config:
    return small({"match": "orders", **settings})


def only(broker: SimBroker, queue: str) -> ServerFrame:
    """The one message of a queue, as a consumer gets it that then goes away without acknowledging."""
    client = broker.connect()
    client.subscribe(f"/queue/{queue}")
    (message,) = client.messages()
    client.do("UNSUBSCRIBE", {"id": "s"})
    return message


def restarted_for_ever(broker: SimBroker, queue: str) -> ServerFrame:
    """Cut the power now, after a long time, and once more; the message is always the same."""
    broker = broker.restart()
    first = only(broker, queue)
    broker.advance(10 * 86_400_000)
    broker = broker.restart()
    again = only(broker, queue)
    assert lasting(again) == lasting(first)
    broker = broker.restart(crash=False)
    broker.advance(86_400_000)
    assert held(broker, queue) == [BODY]
    account = check_accounts(broker)
    assert len(account[queue].present) == 1
    assert not account["orders"].present
    return first


def expired(broker: SimBroker) -> None:
    client = broker.connect()
    client.confirmed("/queue/orders", BODY, expires=str(broker.now + 1000))
    assert held(broker, "orders") == [BODY]
    broker.advance(1000)
    assert held(broker, "orders") == []


def test_an_expired_message_is_still_there_after_a_power_cut() -> None:
    broker = SimBroker(orders())
    expired(broker)
    deadline = broker.now
    letter = restarted_for_ever(broker, "ExpiryQueue")
    assert letter.body == BODY
    assert letter.headers["expires"] == "0"
    assert letter.headers["_AMQ_DL_REASON"] == "expired"
    assert letter.headers["_AMQ_ORIG_ADDRESS"] == "orders"
    assert letter.headers["_AMQ_ORIG_QUEUE"] == "orders"
    assert letter.headers["_AMQ_ACTUAL_EXPIRY"] == str(deadline)
    assert letter.headers["_AMQ_DL_ORIG_EXPIRATION"] == str(deadline)


def test_the_expiry_itself_is_all_or_nothing() -> None:
    """The power goes before the entry of the move is written: the message is where it was, and expires again."""
    broker = SimBroker(orders(), lazy_disk=True)
    client = broker.connect()
    client.send("/queue/orders", BODY, persistent="true", expires=str(broker.now + 1000), receipt="r")
    broker.step()
    assert client.take("RECEIPT")
    broker.advance(1000)
    broker.files.crash(0.0)
    broker = SimBroker(broker.config, files=broker.files, now=broker.now - 1000)
    assert held(broker, "orders") == [BODY]
    assert held(broker, "ExpiryQueue") == []
    broker.advance(1000)
    restarted_for_ever(broker, "ExpiryQueue")


def rejected(client: SimClient) -> None:
    (message,) = client.messages()
    client.nack(message, requeue="false", reason="no such customer")


def failed(client: SimClient) -> None:
    for _ in range(3):
        (message,) = client.messages()
        client.nack(message)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("kill", "reason", "attempts"), [(failed, "max-deliveries", "3"), (rejected, "rejected", "1")])
def test_a_dead_letter_is_still_there_after_a_power_cut(
    kill: Callable[[SimClient], None], reason: str, attempts: str, strict: bool
) -> None:
    persistence = "strict" if strict else "on-return"
    broker = SimBroker(orders(**{"max-delivery-attempts": 3, "delivery-count-persistence": persistence}))
    client = broker.connect(**{"client-id": "clerk"})
    client.confirmed("/queue/orders", BODY, expires=str(broker.now + 3_600_000))
    client.subscribe("/queue/orders")
    kill(client)
    letter = restarted_for_ever(broker, "DLQ")
    assert letter.body == BODY
    assert letter.headers["expires"] == "0"
    assert letter.headers["_AMQ_DL_REASON"] == reason
    assert letter.headers["_AMQ_DL_ATTEMPTS"] == attempts
    assert letter.headers["_AMQ_DL_CLIENT"] == "clerk"
    assert letter.headers["_AMQ_ORIG_QUEUE"] == "orders"
    assert "_AMQ_ACTUAL_EXPIRY" not in letter.headers
    if kill is rejected:
        assert "no such customer" in letter.headers["_AMQ_DL_TEXT"]


def test_a_letter_that_dies_again_keeps_its_first_origin() -> None:
    once: dict[str, object] = {"match": "orders", "max-delivery-attempts": 1}
    broker = SimBroker(small(once, {"match": "DLQ", "dead-letter-address": "attic"}))
    client = broker.connect()
    client.confirmed("/queue/orders", BODY)
    client.subscribe("/queue/orders")
    client.nack(client.messages()[0])
    client.subscribe("/queue/DLQ", id="d")
    client.nack(client.messages()[0], requeue="false")
    letter = restarted_for_ever(broker, "attic")
    assert letter.headers["_AMQ_ORIG_ADDRESS"] == "DLQ"
    assert letter.headers["_AMQ_DL_FIRST_ADDRESS"] == "orders"
    assert letter.headers["_AMQ_DL_FIRST_REASON"] == "max-deliveries"
    assert letter.headers["_AMQ_DL_REASON"] == "rejected"
    assert letter.headers["_AMQ_DL_COUNT"] == "2"


def test_the_expiry_address_imposes_its_own_expiration() -> None:
    """A copy has no expiration of its own; what its new address wants is counted from the move, and survives too."""
    broker = SimBroker(small({"match": "ExpiryQueue", "expiry-delay": 60_000}))
    expired(broker)
    broker = broker.restart()
    assert only(broker, "ExpiryQueue").headers["expires"] == str(broker.now + 60_000)
    broker.advance(60_001)
    assert held(broker, "ExpiryQueue") == []
    assert reasons(check_accounts(broker)["ExpiryQueue"])[RemovalReason.EXPIRED] == 1
