"""Messages for several addresses at once: in order on every queue, in the journal, after a restart; never half."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.errors import DiskFull
from broker.engine.model.message import Message, RoutingType
from broker.engine.publish.order import in_order
from broker.engine.publish.send import Send
from broker.engine.queues.consumer import AckMode
from broker.engine.routing import destinations
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, reasons
from tests.support.interpreted import interpreted

MULTICAST = RoutingType.MULTICAST


def subscription(bench: Bench, name: str, pattern: str) -> None:
    """A durable subscription whose client is away."""
    taker = bench.take(pattern, MULTICAST, durable_name=name, client_id="c", ack_mode=AckMode.INDIVIDUAL)
    bench.close(taker, redelivery.CLOSED)


def made(bench: Bench, topics: list[str], *, durable: bool = True, **more: Any) -> tuple[list[Message], list[Send]]:
    """Messages that say where they stand, with their runs."""
    engine = bench.enter()
    runs: dict[str, Send] = {}
    messages = []
    for at, topic in enumerate(topics):
        if topic not in runs:
            address, _ = destinations.destination(engine._state, topic, MULTICAST)
            first = Message(bench.header(topic, durable=durable, **more), b"", b"%d" % at)
            runs[topic] = Send.at(address, None, None, [first])
            messages.append(first)
            continue
        run = runs[topic]
        message = Message(run.header, b"", b"%d" % at)
        run.messages.append(message)
        messages.append(message)
    return messages, list(runs.values())


def publish(bench: Bench, topics: list[str], **more: Any) -> list[int]:
    messages, runs = made(bench, topics, **more)
    assert in_order(bench.engine._state, runs, messages) == []
    bench.run()
    return [run.routed for run in runs]


def possible(bench: Bench, topics: list[str], head: bytes = b"") -> bool:
    """Whether such messages go together; if not, nothing is done."""
    messages, runs = made(bench, topics)
    for message in messages:
        message.head = head
    went = not in_order(bench.engine._state, runs, messages)
    assert went or {message.id for message in messages} == {0}
    bench.run()
    return went


TOPICS = ["t.a", "t.b", "u", "t.a", "t.b", "t.a", "nobody", "u", "t.b"]
OF_T = [b"0", b"1", b"3", b"4", b"5", b"8"]


@pytest.mark.parametrize("durable", [True, False])
def test_each_queue_has_what_it_wants_in_order(bench: Bench, durable: bool) -> None:
    for name, pattern in (("all", "t.#"), ("one", "t.b"), ("other", "u")):
        subscription(bench, name, pattern)
    assert publish(bench, TOPICS, durable=durable) == [3, 3, 2, 0]
    wanted = {"all": OF_T, "one": [b"1", b"4", b"8"], "other": [b"2", b"7"]}
    assert {name: bench.bodies(name) for name in wanted} == wanted
    bench.check()
    bench = bench.restart()
    assert {name: bench.bodies(name) for name in wanted} == (wanted if durable else {name: [] for name in wanted})
    check_accounts(bench.broker)


def test_identities_rise_with_arrival_and_records_with_identities(bench: Bench) -> None:
    subscription(bench, "all", "#")
    publish(bench, TOPICS)
    ids = [message.id for message in bench.messages("all")]
    assert ids == list(range(ids[0], ids[0] + len(TOPICS)))
    taker = bench.take("t", MULTICAST, durable_name="all2", client_id="c")
    assert taker.take() == []
    bench = bench.restart()
    assert [message.id for message in bench.messages("all")] == ids


def test_messages_without_a_queue_leave_by_name(bench: Bench) -> None:
    subscription(bench, "all", "t.#")
    publish(bench, TOPICS)
    assert bench.engine._state.totals.unrouted == 3
    assert not {"nobody", "u"} & set(bench.engine.addresses)


def test_one_entry(bench: Bench) -> None:
    """A crash leaves all or nothing: an entry cannot be torn within."""
    subscription(bench, "all", "t.#")
    ticket = bench.engine.journal.ticket
    messages, runs = made(bench, TOPICS)
    assert in_order(bench.engine._state, runs, messages) == []
    assert bench.engine.journal.ticket == ticket
    bench.run()
    assert bench.bodies("all") == OF_T


@pytest.mark.parametrize("limit", ["max-size-messages", "max-size-bytes"])
def test_sends_that_could_fill_an_address_go_another_way(limit: str) -> None:
    most = 4 if limit == "max-size-messages" else 4 * 289
    bench = Bench({"match": "t.a", limit: most})
    subscription(bench, "all", "#")
    assert not possible(bench, ["t.a", "u"] + ["t.a"] * 3)
    assert possible(bench, ["t.a", "u"] + ["t.a"] * 2 + ["u"] * 8)
    assert not possible(bench, ["u", "t.a", "u"])
    assert possible(bench, ["u", "v", "u"])


def test_duplicate_ids_diverts_and_a_full_memory_go_another_way() -> None:
    bench = Bench({"match": "noted", "enable-ingress-timestamp": True})
    subscription(bench, "all", "#")
    assert not possible(bench, ["a", "b", "a"], b"_AMQ_DUPL_ID:1")
    assert not possible(bench, ["a", "noted", "a"])
    bench.engine.usage.bytes_max = 4 * 289
    assert possible(bench, ["a", "b", "a"])
    assert not possible(bench, ["a", "b", "a"])


def test_expirations_of_some_addresses_only() -> None:
    bench = Bench({"match": "t.b", "expiry-delay": 5_000})
    subscription(bench, "all", "t.#")
    messages, runs = made(bench, TOPICS)
    for run in runs:
        header = run.messages[0].header
        header.expiration, header.expiry_source = run.address.settings.expiration(0, header.timestamp)
    assert in_order(bench.engine._state, runs, messages) == []
    bench.run()
    assert bench.bodies("all") == OF_T
    bench.broker.advance(100_000)
    assert bench.bodies("all") == [b"0", b"3", b"5"]
    assert reasons(check_accounts(bench.broker)["all"]) == {RemovalReason.EXPIRED: 3}


@interpreted
def test_no_room_refuses_before_anything_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    subscription(bench, "all", "#")
    messages, runs = made(bench, TOPICS)

    def full(state: object, need: int, *, essential: bool) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr("broker.engine.queues.arrival.reserve_bytes", full)
    result = bench.engine.producers.publish(runs, messages)
    assert [(type(refusal.error), refusal.messages) for refusal in result.refusals] == [
        (DiskFull, run.messages) for run in runs
    ]
    assert {message.id for message in messages} == {0}
    bench.run()
    assert bench.bodies("all") == []
    check_accounts(bench.broker)
