"""SEND: every header, as the message comes out at the other end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import Config
from broker.engine.queues.address import Address
from broker.sessions.stomp import send
from broker.sessions.stomp.delivery import COPY_BYTES_MAX
from tests.broker.sessions.stomp.harness import started
from tests.simulation.world import held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import ServerFrame, frame

#: What the broker says of every message by itself.
_OWN = {"subscription", "message-id", "ack", "destination", "redelivered", "priority", "persistent", "timestamp"}
_OWN |= {"expires", "destination-type", "content-length"}


def pair(*settings: dict[str, object], to: str = "/queue/a", version: str = "1.2", ack: str = "auto") -> SimClient:
    """A client that has subscribed."""
    broker = SimBroker(small(*settings))
    client = broker.connect(version)
    client.subscribe(to, ack=ack)
    return client


def through(
    client: SimClient, headers: dict[str, str] | None = None, *, to: str = "/queue/a", content: bytes = b"x"
) -> ServerFrame:
    """A message from a client to itself."""
    client.send(to, content, **(headers or {}))
    (message,) = client.messages()
    return message


def own(message: ServerFrame) -> dict[str, str]:
    """The headers that came with the message."""
    return {name: value for name, value in message.headers.items() if name not in _OWN}


@pytest.mark.parametrize(
    ("to", "sent", "given_back", "kind"),
    [
        ("/queue/a", "/queue/a", "/queue/a", "ANYCAST"),
        ("/topic/a", "/topic/a", "/topic/a", "MULTICAST"),
        ("/queue/a", "a", "/queue/a", None),
        ("a", "/topic/a", "a", "MULTICAST"),
        ("a", "a", "a", None),
        ("/queue/a::q", "a::q", "/queue/a", None),
        ("/topic/a.*", "/topic/a.b", "/topic/a.b", "MULTICAST"),
        ("/other/a", "/other/a", "/other/a", None),
    ],
)
def test_destinations_and_their_prefixes(to: str, sent: str, given_back: str, kind: str | None) -> None:
    message = through(pair(to=to), to=sent)
    assert message.headers["destination"] == given_back
    assert message.headers.get("destination-type") == kind


def test_destination_type() -> None:
    client = pair()
    assert through(client, {"destination-type": "ANYCAST"}, to="a").headers["destination-type"] == "ANYCAST"
    client.send("a", b"", **{"destination-type": "anycast", "receipt": "r"})
    (error,) = client.take("ERROR")
    assert error.headers["message"] == "invalid destination-type"
    assert error.headers["receipt-id"] == "r"
    assert b"ANYCAST or MULTICAST" in error.body
    assert client.closed


def test_a_stated_type_makes_the_address(client: SimClient, broker: SimBroker) -> None:
    client.send("b", b"1", **{"destination-type": "ANYCAST"})
    client.send("c", b"1", **{"destination-type": "MULTICAST"})
    assert held(broker, "b") == [b"1"]
    assert "c" not in broker.engine.queues


@pytest.mark.parametrize(("given", "shown"), [({}, "false"), ({"persistent": "true"}, "true")])
def test_persistent(given: dict[str, str], shown: str) -> None:
    broker, client = started()
    client.send("/queue/a", b"1", **given)
    broker = broker.restart(crash=False)
    assert held(broker, "a") == ([b"1"] if shown == "true" else [])
    assert through(pair(), given).headers["persistent"] == shown


@pytest.mark.parametrize("priority", [None, "0", "4", "9"])
def test_priority(priority: str | None) -> None:
    given = {} if priority is None else {"priority": priority}
    assert through(pair(), given).headers["priority"] == (priority or "4")


def test_higher_priorities_come_first(client: SimClient) -> None:
    for priority in "0494":
        client.send("/queue/a", priority.encode(), priority=priority)
    client.subscribe("/queue/a")
    assert client.bodies() == [b"9", b"4", b"4", b"0"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("persistent", "yes"),
        ("priority", "10"),
        ("priority", "-1"),
        ("priority", "high"),
        ("expires", "soon"),
        ("expires", "-5"),
        ("expires", "9" * 30),
        ("AMQ_SCHEDULED_DELAY", "x"),
        ("AMQ_SCHEDULED_TIME", "1.5"),
        ("_AMQ_SCHED_DELIVERY", "tomorrow"),
    ],
)
def test_headers_that_cannot_be(client: SimClient, broker: SimBroker, name: str, value: str) -> None:
    client.send("/queue/a", b"", **{name: value, "receipt": "r"})
    assert "a" not in broker.engine.addresses
    (error,) = client.take("ERROR")
    assert name in error.headers["message"]
    assert value[:10].encode() in error.body
    assert error.headers["receipt-id"] == "r"
    assert not client.take("RECEIPT")
    assert client.closed


@pytest.mark.parametrize(
    ("name", "value"),
    [("AMQ_SCHEDULED_CRON", "0 * * * *"), ("AMQ_SCHEDULED_PERIOD", "1000"), ("AMQ_SCHEDULED_REPEAT", "9")],
)
def test_a_schedule_that_repeats_is_refused(client: SimClient, broker: SimBroker, name: str, value: str) -> None:
    """ActiveMQ Classic's; once is what this broker does."""
    client.send("/queue/a", b"x", AMQ_SCHEDULED_DELAY="1000", **{name: value, "receipt": "r"})
    (error,) = client.take("ERROR")
    assert (error.headers["message"], error.headers["receipt-id"]) == ("not supported", "r")
    assert name.encode() in error.body
    assert b"AMQ_SCHEDULED_DELAY" in error.body
    assert client.closed
    assert "a" not in broker.engine.addresses


def test_a_transaction_with_one_is_not_committed(client: SimClient, broker: SimBroker) -> None:
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/a", b"1", transaction="t", AMQ_SCHEDULED_REPEAT="9")
    client.take("ERROR")
    assert client.closed
    assert "a" not in broker.engine.addresses


def test_a_schedule_that_asks_for_nothing_more_is_none() -> None:
    nothing = {"AMQ_SCHEDULED_CRON": "", "AMQ_SCHEDULED_PERIOD": "0", "AMQ_SCHEDULED_REPEAT": "0"}
    assert own(through(pair(), nothing)) == {}


def test_expires() -> None:
    client = pair()
    later = str(client.broker.now + 5000)
    assert through(client, {"expires": later}).headers["expires"] == later
    assert through(client, {"expires": "0"}).headers["expires"] == "0"
    client.send("/queue/a", b"late", expires=str(client.broker.now - 1))
    assert client.messages() == []
    assert held(client.broker, "ExpiryQueue") == [b"late"]


def test_the_address_decides_about_expiration() -> None:
    client = pair({"match": "a", "expiry-delay": 1000})
    assert through(client).headers["expires"] == str(client.broker.now + 1000)
    client = pair({"match": "a", "no-expiry": True})
    assert through(client, {"expires": str(client.broker.now + 5)}).headers["expires"] == "0"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"AMQ_SCHEDULED_DELAY": "5000"}, 5000),
        ({"AMQ_SCHEDULED_TIME": "+3000"}, 3000),
        ({"_AMQ_SCHED_DELIVERY": "+3000"}, 3000),
        ({"AMQ_SCHEDULED_DELAY": "5000", "AMQ_SCHEDULED_TIME": "+2000"}, 2000),
        ({"AMQ_SCHEDULED_DELAY": "5000", "AMQ_SCHEDULED_TIME": "0"}, 5000),
        ({"AMQ_SCHEDULED_DELAY": "0"}, 0),
        ({"AMQ_SCHEDULED_DELAY": "-5"}, 0),
        ({"AMQ_SCHEDULED_TIME": "5"}, 0),
    ],
)
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_scheduled(headers: dict[str, str], wait: int, persistent: str) -> None:
    client = pair()
    now = client.broker.now
    given = {name: str(now + int(value)) if value.startswith("+") else value for name, value in headers.items()}
    client.send("/queue/a", b"1", persistent=persistent, **given)
    client.send("/queue/a", b"2", persistent=persistent)
    if wait:
        assert client.bodies() == [b"2"]
        client.broker.advance(wait - 1)
        assert client.bodies() == []
        client.broker.advance(1)
        (message,) = client.messages()
        assert message.body == b"1"
        assert own(message) == {}, "how it was scheduled is nothing that its consumer is told"
    else:
        assert client.bodies() == [b"1", b"2"]


def test_other_headers_travel() -> None:
    headers = {
        "content-type": "text/plain",
        "correlation-id": "c1",
        "reply-to": "/queue/answers",
        "type": "order",
        "JMSXGroupID": "g",
        "my header": " with spaces ",
        "empty": "",
        "umlaut-\u00e4": "\u20ac",
    }
    assert own(through(pair(), headers)) == headers


@pytest.mark.parametrize(
    "other", [{}, {"priority": "5"}, {"AMQ_SCHEDULED_DELAY": "0"}, {"destination-type": "ANYCAST"}]
)
def test_headers_of_the_broker_cannot_be_set_by_a_client(other: dict[str, str]) -> None:
    """By the short way of ordinary sends and by the long one."""
    forged = {
        "_AMQ_ORIG_ADDRESS": "x",
        "_AMQ_ORIG_QUEUE": "x",
        "_AMQ_DL_REASON": "rejected",
        "_AMQ_DL_FIRST_TIME": "1",
        "_AMQ_DL_": "x",
        "_AMQ_ACTUAL_EXPIRY": "1",
        "message-id": "1,1",
        "subscription": "other",
        "ack": "1,1",
        "redelivered": "true",
        "timestamp": "5",
        "ingress-timestamp": "5",
        "JMSXUserID": "root",
    }
    for name, value in forged.items():
        message = through(pair(), {"mine": "1", name: value, **other})
        assert own(message) == {"mine": "1"}, name
        assert message.headers.get(name) != value, name


def test_names_that_only_look_reserved_travel() -> None:
    headers = {"_AMQ_GROUP_ID": "g", "x_AMQ_ORIG_ADDRESS": "x", "JMSX": "1"}
    assert own(through(pair(), headers)) == headers


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_reserved_name_is_caught_however_it_is_written(version: str) -> None:
    client = pair(version=version)
    padding = b" " if version == "1.0" else b""
    client.raw(b"SEND\ndestination:/queue/a\n%b_AMQ_DL_REASON:x\nredelivered:true\nredelivered:true\n\n\0" % padding)
    (message,) = client.messages()
    assert own(message) == {}
    assert message.headers["redelivered"] == "false"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("sized", [False, True])
def test_every_message_with_a_body_says_its_length_once(
    version: str, sized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the sender did not (STOMP 1.2, content-length: a frame with a body SHOULD have it)."""
    client = pair(version=version)
    raw: list[bytes] = []
    read = client.heard

    def listen(data: bytes) -> None:
        raw.append(data)
        read(data)

    monkeypatch.setattr(client, "heard", listen)
    headers = {"destination": "/queue/a", "x-content-length": "no", "colour": "r\ned" if version != "1.0" else "red"}
    sizes = (1, 12, 1023, 1024, 1025, COPY_BYTES_MAX + 1)
    for size in sizes:
        client.raw(frame("SEND", headers, b"x" * size, content_length=sized, version=version))
    client.raw(frame("SEND", headers, b"", content_length=False, version=version))
    found = [(len(m.body), m.headers.get("content-length")) for m in client.messages()]
    assert found == [*((size, str(size)) for size in sizes), (0, None)]
    assert b"".join(raw).count(b"\ncontent-length:") == len(sizes)


def test_a_body_of_bytes() -> None:
    body = bytes(range(256))
    message = through(pair(), content=body)
    assert (message.body, message.headers["content-length"]) == (body, "256")


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_bodies_of_every_size(size: int) -> None:
    body = bytes([65 + n % 26 for n in range(1000)]) * (size // 1000 + 1)
    assert through(pair(), content=body[:size]).body == body[:size]


def test_a_body_that_is_too_large() -> None:
    shipped = small()
    stomp = shipped.acceptors["stomp"].model_copy(update={"stomp_min_large_message_size": -1})
    limits = shipped.limits.model_copy(update={"body_bytes_max": 1000})
    config = small(limits=limits, acceptors=dict(shipped.acceptors) | {"stomp": stomp})
    broker = SimBroker(config)
    client = broker.connect()
    client.send("/queue/a", bytes(1000), receipt="1")
    assert client.take("RECEIPT")
    client.send("/queue/a", bytes(1001), receipt="2")
    (error,) = client.take("ERROR")
    assert error.headers["message"] == "body too large"
    assert held(broker, "a") == [bytes(1000)]


NASTY = "colon : and\nline\\feed"


@pytest.mark.parametrize("receiver", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("sender", ["1.0", "1.1", "1.2"])
def test_escapes_between_versions(broker: SimBroker, sender: str, receiver: str) -> None:
    taker, giver = broker.connect(receiver), broker.connect(sender)
    taker.subscribe("/queue/a", ack="auto")
    value = "colon : and \\ back\\nslash" if sender == "1.0" else NASTY
    giver.send("/queue/a", b"", na="plain", nasty=value)
    (message,) = taker.messages()
    found = message.headers["nasty"]
    if receiver == "1.0":
        assert "\n" not in found, "a 1.0 peer must not see a line that is none"
    else:
        assert found == value
    assert message.headers["na"] == "plain"


def test_a_carriage_return_survives_between_peers_that_can_write_it() -> None:
    client = pair()
    assert own(through(client, {"cr": "a\rb"})) == {"cr": "a\rb"}
    broker = client.broker
    old = broker.connect("1.1")
    old.subscribe("/queue/b", ack="auto")
    client.send("/queue/b", b"", cr="a\rb")
    (message,) = old.messages()
    assert "\n" not in message.headers["cr"]


def test_escapes_survive_a_restart(broker: SimBroker) -> None:
    broker.connect().confirmed("/queue/a", b"1", nasty=NASTY)
    broker = broker.restart()
    for version in ("1.1", "1.2"):
        client = broker.connect(version)
        client.subscribe("/queue/a", ack="client")
        (message,) = client.messages()
        assert message.headers["nasty"] == NASTY
        client.do("UNSUBSCRIBE", {"id": "s"})


def test_many_sends_in_one_read_keep_their_order_within_a_destination() -> None:
    client = pair()
    client.subscribe("/queue/b", id="b", ack="auto")
    sends = []
    for n in range(60):
        headers = {"destination": "/queue/a" if n % 3 else "/queue/b", "n": str(n)}
        if n % 5 == 0:
            headers["JMSXGroupID"] = "g"
        if n % 7 == 0:
            headers["destination-type"] = "ANYCAST"
        if n % 4 == 0:
            headers["correlation-id"] = "c"
        sends.append(frame("SEND", headers, b"%d" % n))
    client.raw(b"".join(sends))
    found = [(m.headers["subscription"], int(m.body)) for m in client.messages()]
    for id, expected in (("s", [n for n in range(60) if n % 3]), ("b", [n for n in range(60) if not n % 3])):
        assert [n for sub, n in found if sub == id] == expected


def test_headers_of_one_send_do_not_leak_into_the_next() -> None:
    client = pair()
    client.raw(
        frame("SEND", {"destination": "/queue/a", "one": "1", "receipt": "r"}, b"1")
        + frame("SEND", {"destination": "/queue/a", "two": "2"}, b"2")
    )
    assert [own(m) for m in client.messages()] == [{"one": "1"}, {"two": "2"}]


# -- full addresses ----------------------------------------------------------------------------------------------------


def is_read(client: SimClient) -> bool:
    return client.reading


def limited(policy: str) -> Config:
    return small({"match": "a", "max-size-messages": 2, "address-full-policy": policy})


def test_an_error_of_a_gathered_send_keeps_back_nobody_else_and_confirms_nothing_later() -> None:
    broker = SimBroker(limited("FAIL"))
    client = broker.connect()
    client.confirmed("/queue/a", b"1")
    client.confirmed("/queue/a", b"2")
    client.raw(
        frame("SEND", {"destination": "/queue/a", "receipt": "bad"}, b"3")
        + frame("SEND", {"destination": "/queue/b", "receipt": "good"}, b"4")
        + frame("DISCONNECT", {"receipt": "bye"})
    )
    (error,) = client.take("ERROR")
    assert error.headers["receipt-id"] == "bad"
    assert client.take("RECEIPT") == []
    assert client.closed


def test_drop_is_confirmed_and_counted() -> None:
    broker = SimBroker(limited("DROP"))
    client = broker.connect()
    for n in range(4):
        client.confirmed("/queue/a", b"%d" % n)
    assert held(broker, "a") == [b"0", b"1"]
    assert broker.engine.addresses["a"].dropped == 2


@pytest.mark.parametrize("transaction", [False, True])
def test_block_stops_the_reading(transaction: bool) -> None:
    broker = SimBroker(limited("BLOCK"))
    producer, consumer = broker.connect(), broker.connect()
    if transaction:
        producer.do("BEGIN", {"transaction": "t"})
        for n in range(2):
            producer.send("/queue/a", b"%d" % n, transaction="t")
        assert is_read(producer)
        producer.do("COMMIT", {"transaction": "t", "receipt": "c"})
        assert producer.take("RECEIPT")
    else:
        producer.confirmed("/queue/a", b"0")
        assert is_read(producer)
        producer.confirmed("/queue/a", b"1")
    assert not is_read(producer)
    consumer.subscribe("/queue/a")
    messages = consumer.messages()
    assert not is_read(producer), "delivered is not gone"
    consumer.ack(messages[0])
    assert is_read(producer)
    assert producer.frames == []


def test_after_a_long_commit_its_addresses_are_asked_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 30,000."""
    broker = SimBroker(limited("BLOCK"))
    asked: list[str] = []
    wait, producers = broker.engine.producers.wait_for_room, type(broker.engine.producers)

    def note(self: object, address: Address, producer: object) -> bool:
        asked.append(f"{broker.tick.ended} {address.name}")
        return wait(address, producer)  # type: ignore[arg-type]

    monkeypatch.setattr(producers, "wait_for_room", note)
    monkeypatch.setattr(send, "ASKED_TOGETHER", 2)
    producer, consumer = broker.connect(), broker.connect()
    producer.do("BEGIN", {"transaction": "t"})
    for name in ("a", "a", "c", "d", "e", "f"):
        producer.send(f"/queue/{name}", b"1", transaction="t")
    steps = broker.engine._state.steps
    steps.together_max, steps.budget, steps.budget_min = 1, 1, 1
    producer.do("COMMIT", {"transaction": "t", "receipt": "c"})
    assert producer.take("RECEIPT")
    assert [each.split()[1] for each in asked] == ["a", "c", "d", "e", "f"]
    assert len({each.split()[0] for each in asked}) == 3, "ticks"
    assert not is_read(producer)
    consumer.subscribe("/queue/a", ack="auto")
    assert is_read(producer)


def test_a_transaction_waits_at_its_first_send_to_a_full_address() -> None:
    """Else every new connection could commit one more, however full the address is."""
    broker = SimBroker(limited("BLOCK"))
    first, second, consumer = broker.connect(), broker.connect(), broker.connect()
    for n in range(2):
        first.confirmed("/queue/a", b"%d" % n)
    second.do("BEGIN", {"transaction": "t"})
    second.send("/queue/a", b"2", transaction="t")
    assert not is_read(second)
    consumer.subscribe("/queue/a", ack="auto")
    assert is_read(second)
    second.do("COMMIT", {"transaction": "t", "receipt": "c"})
    assert second.take("RECEIPT")
    assert [message.body for message in consumer.messages()] == [b"0", b"1", b"2"]


def test_but_not_one_that_acknowledges_and_so_makes_room() -> None:
    broker = SimBroker(limited("BLOCK"))
    producer, client = broker.connect(), broker.connect()
    for n in range(2):
        producer.confirmed("/queue/a", b"%d" % n)
    client.subscribe("/queue/a", ack="client-individual")
    client.do("BEGIN", {"transaction": "t"})
    client.ack(client.messages()[0], transaction="t")
    client.send("/queue/a", b"again", transaction="t")
    client.do("COMMIT", {"transaction": "t", "receipt": "c"})
    assert client.take("RECEIPT")


def test_a_stopped_producer_that_leaves_is_forgotten() -> None:
    broker = SimBroker(limited("BLOCK"))
    producer, consumer = broker.connect(), broker.connect()
    for _ in range(2):
        producer.confirmed("/queue/a", b"")
    blocked = broker.engine.addresses["a"].blocked
    assert len(blocked) == 1
    producer.drop()
    assert not blocked
    consumer.subscribe("/queue/a", ack="auto")
    assert held(broker, "a") == []
    assert not producer.reading


def test_a_send_with_rare_headers_stands_alone_within_one_read() -> None:
    broker = SimBroker(seed=1)
    client = broker.connect()
    to = {"destination": "/queue/a"}
    client.raw(
        frame("SEND", {**to, "AMQ_SCHEDULED_DELAY": "60000"}, b"later")
        + frame("SEND", to, b"now")
        + frame("SEND", {**to, "message-id": "forged", "kind": "x"}, b"named")
        + frame("SEND", {**to, "message-id": "again"}, b"named too")
        + frame("SEND", {**to, "AMQ_SCHEDULED_DELAY": "1000"}, b"soon")
        + frame("SEND", {**to, "AMQ_SCHEDULED_DELAY": "90000"}, b"last")
    )
    client.subscribe("/queue/a", ack="auto")
    messages = client.messages()
    assert [message.body for message in messages] == [b"now", b"named", b"named too"]
    assert not any("forged" in message.headers.values() or "again" in message.headers.values() for message in messages)
    for ms, body in ((1_000, b"soon"), (59_000, b"later"), (30_000, b"last")):
        broker.advance(ms)
        assert client.bodies() == [body]


def test_receipts_do_not_travel_with_the_messages_of_one_read() -> None:
    client = pair()
    sends = [frame("SEND", {"destination": "/queue/a", "n": str(n), "receipt": f"r{n}"}) for n in range(3)]
    client.raw(b"".join([*sends, frame("SEND", {"destination": "/queue/a", "n": "3"})]))
    assert [own(message) for message in client.messages()] == [{"n": str(n)} for n in range(4)]
    assert [receipt.headers["receipt-id"] for receipt in client.take("RECEIPT")] == ["r0", "r1", "r2"]


#: What may be said of a message beside its destination: what the broker consumes, what travels, what makes it special.
_VARIED: dict[str, list[str]] = {
    "persistent": ["true", "false"],
    "priority": ["9", "0"],
    "expires": ["4102444800000"],
    "n": ["1", "2:3", "Q"],
    "_AMQ_DL_REASON": ["mine"],
    "JMSXGroupID": ["one", "two"],
    "reply-to": ["/queue/b"],
    "correlation-id": ["7"],
    "receipt": ["r"],
}


@given(
    sent=st.lists(
        st.tuples(
            st.sampled_from(["/queue/a", "/queue/b"]),
            st.dictionaries(st.sampled_from(sorted(_VARIED)), st.integers(0, 1), max_size=3),
            st.sampled_from([b"", b"body", b"a\0b", b"\n\n"]),
        ),
        max_size=10,
    )
)
def test_frames_read_together_are_those_read_one_by_one(
    sent: list[tuple[str, dict[str, int], bytes]],
) -> None:
    """A client's later reads have frames that begin as earlier ones did: they come out as on a new connection."""
    raws = [
        frame("SEND", {"destination": to, **{name: (2 * _VARIED[name])[at] for name, at in more.items()}}, body)
        for to, more, body in sent
    ]
    broker = SimBroker(small())
    consumer = broker.connect()
    for number, name in enumerate("ab"):
        consumer.subscribe(f"/queue/{name}", f"{number}")
    together = broker.connect()
    for _ in range(2):
        together.raw(b"".join(raws))
    again = [shown(message) for message in consumer.messages()]
    for raw in raws:
        broker.connect().raw(raw)
    single = [shown(message) for message in consumer.messages()]
    assert sorted(again) == sorted(2 * single), "in another order where their priorities differ"


def shown(message: ServerFrame) -> tuple[list[tuple[str, str]], bytes]:
    """A message but for its identity: what it says, and its body."""
    left = [item for item in message.headers.items() if item[0] not in ("message-id", "ack", "timestamp")]
    return sorted(left), message.body
