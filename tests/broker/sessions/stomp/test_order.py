"""A subscriber gets the messages of a sender in the order in which they were sent, over all destinations."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from broker.engine.model.message import RoutingType
from tests.simulation.world import check_accounts, check_counters, held, small
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame


def sends(places: Sequence[tuple[str, dict[str, str]]]) -> bytes:
    """SENDs to these destinations with these headers, in one read; the bodies are numbers."""
    return b"".join(
        frame("SEND", {"destination": destination, **headers}, b"%d" % number)
        for number, (destination, headers) in enumerate(places)
    )


def to(*destinations: str, **headers: str) -> bytes:
    """SENDs that agree in their headers."""
    return sends([(destination, headers) for destination in destinations])


def numbers(count: int) -> list[bytes]:
    """Bodies in their order."""
    return [b"%d" % number for number in range(count)]


PLACES = ("/topic/a.b", "/topic/a.c", "/topic/a.b", "/topic/x", "/topic/a.c", "/topic/a.b")
OF_A = [b"0", b"1", b"2", b"4", b"5"]


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_wildcard_sees_the_sender_s_order(persistent: str, durable: bool) -> None:
    client = SimBroker(small()).connect(**{"client-id": "c"})
    client.subscribe("/topic/a.*", **({"durable-subscription-name": "d"} if durable else {}))
    client.raw(to(*PLACES, persistent=persistent))
    assert client.bodies() == OF_A


def test_several_names_of_one_address() -> None:
    client = SimBroker(small()).connect()
    client.subscribe("/queue/a")
    client.raw(to("/queue/a", "a", "/queue/a::a", "a::a", "/queue/a", "a", "/queue/a::a"))
    assert client.bodies() == numbers(7)


def test_a_durable_message_does_not_overtake_where_both_are_in_memory() -> None:
    """A subscription that is not durable has nothing to wait for."""
    client = SimBroker(small(), lazy_disk=True).connect()
    client.subscribe("/topic/a.*")
    client.raw(sends([(place, {"persistent": "true"} if at % 2 else {}) for at, place in enumerate(PLACES)]))
    assert client.bodies() == OF_A


@pytest.mark.parametrize("reads", [1, 3])
def test_a_transaction_publishes_in_order(reads: int) -> None:
    client = SimBroker(small()).connect()
    client.subscribe("/topic/a.*")
    client.do("BEGIN", {"transaction": "t"})
    frames = [
        frame("SEND", {"destination": place, "transaction": "t"}, b"%d" % at) for at, place in enumerate(PLACES * 3)
    ]
    size = len(frames) // reads
    for at in range(0, len(frames), size):
        client.raw(b"".join(frames[at : at + size]))
    assert client.bodies() == []
    client.do("COMMIT", {"transaction": "t"})
    assert client.bodies() == [b"%d" % at for at, place in enumerate(PLACES * 3) if place != "/topic/x"]


def test_transactions_beside_each_other_and_none() -> None:
    client = SimBroker(small()).connect()
    client.subscribe("/topic/a.*")
    for name in "tu":
        client.do("BEGIN", {"transaction": name})
    marks: list[dict[str, str]] = [{}, {"transaction": "t"}, {"transaction": "u"}]
    client.raw(sends([(PLACES[at % 6], marks[at * 7 // 5 % 3]) for at in range(60)]))
    expected = [[at for at in range(60) if at * 7 // 5 % 3 == mark and at % 6 != 3] for mark in range(3)]
    assert [int(body) for body in client.bodies()] == expected[0]
    for name, wanted in (("u", expected[2]), ("t", expected[1])):
        client.do("COMMIT", {"transaction": name})
        assert [int(body) for body in client.bodies()] == wanted


def test_sends_that_cannot_go_together_go_in_turn() -> None:
    """With a divert, a limit that is near, duplicate ids, and a large body the order is the same."""
    settings: list[dict[str, object]] = [{"match": "a.c", "max-size-messages": 4, "address-full-policy": "BLOCK"}]
    client = SimBroker(small(*settings)).connect()
    client.subscribe("/topic/a.*")
    client.raw(to(*PLACES * 2))
    assert client.bodies() == [b"%d" % at for at in range(12) if at % 6 != 3]
    marked = [(place, {"_AMQ_DUPL_ID": str(at // 2)}) for at, place in enumerate(PLACES)]
    client.raw(sends(marked))
    assert client.bodies() == OF_A
    client.raw(sends(marked))
    assert client.bodies() == []


def test_a_large_message_keeps_its_place() -> None:
    client = SimBroker(small()).connect()
    client.subscribe("/topic/a.*")
    large = frame("SEND", {"destination": "/topic/a.c", "content-length": "200000"}, b"L" * 200_000)
    client.raw(to("/topic/a.b", "/topic/a.c", "/topic/a.b") + large + to("/topic/a.c", "/topic/a.b", "/topic/a.c"))
    assert [body[:1] for body in client.bodies()] == [b"0", b"1", b"2", b"L", b"0", b"1", b"2"]


@pytest.mark.parametrize("places", [("/topic/a.b", "/topic/a.c"), ("/topic/a.b", "/topic/x")])
def test_frames_before_a_refusal_count_and_none_after(places: tuple[str, str]) -> None:
    settings: list[dict[str, object]] = [{"match": "a.b", "max-size-messages": 1, "address-full-policy": "FAIL"}]
    broker = SimBroker(small(*settings))
    taker = broker.subscriber("/topic/#", **{"consumer-window-size": "0"})
    broker.connect().raw(to("/topic/a.b"))
    assert taker.bodies() == [b"0"]
    client = broker.connect()
    client.raw(b"".join([to(places[1], receipt="before"), to(places[0], places[1], places[0], receipt="r")]))
    assert [frame.headers["receipt-id"] for frame in client.take("RECEIPT")] == ["before"]
    (error,) = client.take("ERROR")
    assert error.headers["receipt-id"] == "r"
    assert client.closed
    (queue,) = [queue for queue in broker.engine.queues.values() if queue.address.name == "#"]
    assert [body_of(message) for message, _ in broker.engine.messages.browse(queue)][1:] == [b"0"]


#: Headers of a send in the random tests, and how often.
_HEADERS: list[tuple[dict[str, str], int]] = [
    ({}, 12),
    ({"persistent": "true"}, 4),
    ({"receipt": "r"}, 3),
    ({"JMSXGroupID": "g"}, 1),
    ({"note": "a\\cb"}, 1),
    ({"AMQ_SCHEDULED_DELAY": "500"}, 1),
    ({"expires": "1"}, 1),
    ({"transaction": "t"}, 3),
]
_DESTINATIONS = ("/topic/a.b", "/topic/a.c", "/topic/a.d.e", "a.b", "/topic/a.b", "/queue/q", "q", "/topic/x")


@pytest.mark.parametrize("seed", range(40))
def test_any_sends_keep_their_order(seed: int) -> None:
    """Random sends in random reads; each subscriber sees those of one kind in the order of the sender."""
    random = Random(seed)
    settings: list[list[dict[str, object]]] = [
        [],
        [{"match": "a.c", "max-size-messages": 6}],
        [{"match": "a.#", "max-size-messages": 9, "address-full-policy": "PAGE"}],
    ]
    broker = SimBroker(small(*random.choice(settings)), seed=seed)
    client, patterns = broker.connect(), ("/topic/a.#", "/topic/a.*", "/topic/#", "/queue/q", "/topic/a.b")
    takers: dict[str, SimClient] = {pattern: broker.connect() for pattern in patterns}
    for pattern, taker in takers.items():
        taker.subscribe(pattern, ack=random.choice(["auto", "client-individual"]))
    kinds: list[str] = []
    seen: dict[str, list[bytes]] = {pattern: [] for pattern in patterns}

    def look() -> None:
        for pattern, taker in takers.items():
            for message in taker.messages():
                if not message.headers["destination"].endswith("ExpiryQueue"):
                    seen[pattern].append(message.body)
                if "ack" in message.headers:
                    taker.do("ACK", {"id": message.headers["ack"]})

    for _ in range(6):
        client.do("BEGIN", {"transaction": "t"})
        read = b""
        for _ in range(random.randint(1, 25)):
            (headers,) = random.choices([h for h, _ in _HEADERS], [weight for _, weight in _HEADERS])
            read += frame("SEND", {"destination": random.choice(_DESTINATIONS), **headers}, b"%d" % len(kinds))
            kinds.append(" ".join(headers))
        cut = random.randint(0, len(read))
        for part in (read[:cut], read[cut:]):
            client.raw(part)
            look()
        client.do("COMMIT" if random.random() < 0.7 else "ABORT", {"transaction": "t"})
        for _ in range(3):
            look()
    broker.advance(1_000)
    for _ in range(3):
        look()
    assert not client.closed
    # A message keeps its place among those that go the same way: now (durable or not), at the commit, later.
    for pattern, bodies in seen.items():
        assert bodies or pattern == "/queue/q"
        ways: dict[str, list[int]] = {}
        for body in bodies:
            kind = kinds[int(body)]
            now = kind in ("", "persistent", "receipt", "JMSXGroupID", "note")
            ways.setdefault("" if now else kind, []).append(int(body))
        assert all(way == sorted(way) for way in ways.values()), (pattern, ways)
    check_accounts(broker)
    check_counters(broker)
    assert held(broker, "q") == []


@pytest.mark.parametrize("transaction", [{}, {"transaction": "t"}])
def test_nothing_behind_a_send_without_a_destination_is_accepted(transaction: dict[str, str]) -> None:
    broker = SimBroker(small({"match": "no.#", "auto-create-addresses": False}))
    client = broker.connect()
    if transaction:
        client.do("BEGIN", transaction)
    places = ("/queue/a", "/queue/b", "/queue/a", "/queue/no.where", "/queue/b", "/queue/no.more", "/queue/new")
    client.raw(sends([(place, {"receipt": f"r{n}", **transaction}) for n, place in enumerate(places)]))
    (error,) = client.take("ERROR")
    assert error.headers["receipt-id"] == "r3"
    assert b"no.where does not exist" in error.body
    assert [frame.headers["receipt-id"] for frame in client.take("RECEIPT")] == ["r0", "r1", "r2"]
    expected = ([], []) if transaction else ([b"0", b"2"], [b"1"])
    assert (held(broker, "a"), held(broker, "b")) == expected


TX = {"transaction": "t"}


def _in_steps(broker: SimBroker) -> None:
    """Let a tick do a little of a commit."""
    steps = broker.engine._state.steps
    steps.budget, steps.budget_min, steps.together_max = 100, 50, 4


@pytest.mark.parametrize("end", ["goes on", "refused", "drops"])
def test_frames_after_a_long_commit_wait_for_it(end: str) -> None:
    broker = SimBroker(small({"match": "gone", "auto-create-queues": False, "auto-create-addresses": False}))
    broker.tick.enter()
    home = broker.engine.configuration.declare("gone", {RoutingType.ANYCAST})
    broker.engine.configuration.declare_queue(home, "gone", RoutingType.ANYCAST, durable=True, selector="")
    broker.run()
    client = broker.connect()
    client.do("BEGIN", {"transaction": "t"})
    late = [{"destination": "/queue/a", "expires": str(broker.now + 10**6 + n), **TX} for n in range(80)]
    client.raw(b"".join([frame("SEND", headers) for headers in late]))
    if end == "refused":
        client.raw(frame("SEND", {"destination": "/queue/gone", **TX}, b"x"))
        with broker.turn():
            broker.engine.delete_queue(broker.engine.queue("gone"))
    _in_steps(broker)
    broker.hold_disk()
    last = frame("SEND", {"destination": "/queue/a"}, b"last")
    client._tell(lambda: client.session.receive_data(frame("COMMIT", {"receipt": "c", **TX}) + last))
    assert not client.reading
    broker._woken = False
    broker.parts.tick.end()
    assert client.take("RECEIPT") == []
    if end == "drops":
        client.drop()
    broker.release_disk()
    broker.run()
    bodies = held(broker, "a") if "a" in broker.engine.queues else []
    if end == "refused":
        assert bodies == []
        assert [each.command for each in client.frames] == ["ERROR"]
        return
    assert bodies == [b""] * 80 + [b"last"]
    assert (end == "drops") or [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["c"]
    assert not broker.reported("connection.failed")
