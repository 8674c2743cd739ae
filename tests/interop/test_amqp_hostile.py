"""AMQP peers that do wrong, or nothing: they cost themselves, nobody else (promises P5, P6)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, TYPE_SASL, frame
from protocols.amqp.message import AMQP_VALUE, encode_section
from protocols.amqp.performatives import (
    SENDER,
    Accepted,
    Attach,
    Begin,
    Declare,
    Detach,
    Disposition,
    Flow,
    Open,
    Rejected,
    SaslCode,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from tests.support.amqp_client import AmqpClient, AmqpSocket, message
from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost, RawSocket

MIB: Final = 1 << 20

FRAMING: Final = "amqp:connection:framing-error"
CONNECTION, SESSION, LINK = "connection", "session", "link"

#: The beginning of a described performative whose fields are made by hand.
_ATTACH: Final = b"\x00\x53\x12"


def transfer(id: int | None = 0, *, handle: int = 0, payload: bytes = b"", tag: bytes = b"t", **more: bool) -> bytes:
    """A TRANSFER frame."""
    fields = Transfer(handle, id, None if id is None else tag, 0, **more)  # type: ignore[arg-type]
    return frame(0, fields.encode() + payload)


def attach(fields: bytes, count: int) -> bytes:
    """An ATTACH frame with these fields."""
    return frame(0, _ATTACH + b"\xd0" + struct.pack(">II", 4 + len(fields), count) + fields)


def properties(value: bytes) -> bytes:
    """An ATTACH with this value among its properties."""
    entries = b"\xa3\x01p" + value
    made = b"\xd1" + struct.pack(">II", 4 + len(entries), 2) + entries
    return attach(b"\xa1\x01n\x52\x09\x42" + b"\x40" * 10 + made, 14)


def nested(depth: int) -> bytes:
    """Lists in lists."""
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + struct.pack(">II", 4 + len(value), 1) + value
    return value


#: What is sent once a link with handle 0 is attached: the bytes, what it ends, and the condition.
BAD: Final[dict[str, tuple[bytes, str, str]]] = {
    "a frame of 7 bytes": (b"\0\0\0\x07\x02\0\0\0", CONNECTION, FRAMING),
    "a frame of no bytes": (bytes(8), CONNECTION, FRAMING),
    "a frame of 4 GiB": (b"\xff\xff\xff\xff\x02\0\0\0", CONNECTION, FRAMING),
    "a frame just too large": (
        struct.pack(">IBBH", (128 << 10) + 1, 2, 0, 0),
        CONNECTION,
        FRAMING,
    ),
    "a data offset of 1": (b"\0\0\0\x08\x01\0\0\0", CONNECTION, FRAMING),
    "a data offset beyond the frame": (b"\0\0\0\x08\x03\0\0\0", CONNECTION, FRAMING),
    "a frame of an unknown type": (b"\0\0\0\x08\x02\x07\0\0", CONNECTION, FRAMING),
    "a SASL frame after OPEN": (
        frame(0, SaslInit("ANONYMOUS").encode(), TYPE_SASL),
        CONNECTION,
        FRAMING,
    ),
    "a protocol header after OPEN": (AMQP_HEADER, CONNECTION, FRAMING),
    "a SASL header after OPEN": (SASL_HEADER, CONNECTION, FRAMING),
    "a second OPEN": (frame(0, Open("again").encode()), CONNECTION, "amqp:illegal-state"),
    "an unknown performative": (frame(0, b"\x00\x53\x2f\x45"), CONNECTION, "amqp:decode-error"),
    "a performative named by a string": (frame(0, b"\x00\xa1\x04open\x45"), CONNECTION, "amqp:decode-error"),
    "a body that is no performative": (frame(0, b"\x45"), CONNECTION, "amqp:decode-error"),
    "a performative that ends early": (frame(0, b"\x00\x53\x14\xc0\x20\x05\x43"), CONNECTION, "amqp:decode-error"),
    "more fields than bytes": (
        frame(0, b"\x00\x53\x14\xd0\0\0\0\x05\xff\xff\xff\xff\x43"),
        CONNECTION,
        "amqp:decode-error",
    ),
    "a channel that was not begun": (frame(7, Flow(0, 1, 0, 1).encode()), CONNECTION, "amqp:not-allowed"),
    "a channel beyond the highest": (
        frame(2000, Begin(None, 0, 1, 1).encode()),
        CONNECTION,
        FRAMING,
    ),
    "a channel that was begun before": (frame(0, Begin(None, 0, 1, 1).encode()), CONNECTION, "amqp:not-allowed"),
    "values nested too deep": (properties(nested(40)), CONNECTION, "amqp:decode-error"),
    "an array of 2^32 nulls": (
        properties(b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40"),
        CONNECTION,
        "amqp:decode-error",
    ),
    "an array of 2^28 true": (properties(b"\xf0\0\0\0\x05\x10\0\0\0\x41"), CONNECTION, "amqp:decode-error"),
    "an array of 2^16 empty lists": (properties(b"\xf0\0\0\0\x05\0\x01\0\0\x45"), CONNECTION, "amqp:decode-error"),
    "a map of 2^31 entries": (properties(b"\xd1\0\0\0\x06\xff\xff\xff\xfe\x40\x40"), CONNECTION, "amqp:decode-error"),
    "a map of three values": (properties(b"\xd1\0\0\0\x07\0\0\0\x03\x40\x40\x40"), CONNECTION, "amqp:decode-error"),
    "a list longer than its size": (properties(b"\xc0\x02\x05\x40"), CONNECTION, "amqp:decode-error"),
    "a binary of 4 GiB": (properties(b"\xb0\xff\xff\xff\xff"), CONNECTION, "amqp:decode-error"),
    "a name that is not UTF-8": (attach(b"\xa1\x02\xff\xfe\x52\x09\x42", 3), CONNECTION, "amqp:decode-error"),
    "a symbol that is not ASCII": (properties(b"\xa3\x02\xc3\xa4"), CONNECTION, "amqp:decode-error"),
    "a handle beyond the highest": (
        frame(0, Attach("n", 5000, SENDER, target=Target("a"), initial_delivery_count=0).encode()),
        CONNECTION,
        FRAMING,
    ),
    "a handle in use": (
        frame(0, Attach("n", 0, SENDER, target=Target("a"), initial_delivery_count=0).encode()),
        SESSION,
        "amqp:session:handle-in-use",
    ),
    "a transfer on no link": (transfer(handle=9), SESSION, "amqp:session:unattached-handle"),
    "a transfer after its link was closed": (
        frame(0, Detach(0, True).encode()) + transfer(),
        SESSION,
        "amqp:session:unattached-handle",
    ),
    "a delivery id that skips": (transfer(0) + transfer(5), SESSION, "amqp:invalid-field"),
    "a transfer without a delivery id": (transfer(None), SESSION, "amqp:invalid-field"),
    "dispositions from last to first": (
        transfer(0) + frame(0, Disposition(SENDER, 5, 2, True).encode()),
        SESSION,
        "amqp:invalid-field",
    ),
    "another delivery within one": (transfer(0, more=True) + transfer(1), SESSION, "amqp:invalid-field"),
    "a tag of 33 bytes": (transfer(tag=bytes(33)), LINK, "amqp:invalid-field"),
}


def ends(client: AmqpClient, scope: str, link: object) -> str | None:
    """Wait for what an error ends: its condition."""
    if scope == CONNECTION:
        error = client.rest()
    else:
        of = client.ses if scope == SESSION else link
        client.wait(lambda: of in client.ends)
        error = client.ends[of]
    return None if error is None else error.condition


@contextmanager
def innocent(broker: DaemonProcess) -> Iterator[Callable[[], None]]:
    """Somebody else, who was there before and goes on: to be called when the harm is done."""
    with AmqpSocket(broker.ports["amqp"], container="innocent") as client:
        link = client.sender("queue://innocent")
        client.receiver("queue://innocent")

        def go_on() -> None:
            assert client.put(link, message("still here")) == [Accepted()]
            (delivery,) = client.take(1)
            assert delivery.body == "still here"
            client.settle(delivery, settled=False)
            client.wait(lambda: delivery.id in client.confirmed)

        go_on()
        yield go_on


@pytest.mark.parametrize("name", BAD)
def test_bad_input_costs_only_its_sender(broker: DaemonProcess, name: str) -> None:
    data, scope, condition = BAD[name]
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as culprit:
        link = culprit.sender("queue://culprit")
        culprit.raw(data)
        assert ends(culprit, scope, link) == condition
        go_on()


def test_more_messages_than_credit(broker: DaemonProcess) -> None:
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as culprit:
        link = culprit.sender("queue://eager")
        allowed = link.credit
        payload = message("x", durable=False)
        culprit.raw(b"".join(transfer(id, payload=payload, settled=True) for id in range(allowed * 3)))
        assert ends(culprit, LINK, link) == "amqp:link:transfer-limit-exceeded"
        go_on()
    # What was gathered before credit was used up counts; credit was given anew as messages were taken.
    assert broker.queue("eager")["messages"] >= allowed


def test_empty_frames_without_end(broker: DaemonProcess) -> None:
    """More frames than a session's window holds, all of one message: they cost nothing that lasts."""
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as culprit:
        culprit.sender("queue://endless")
        before = broker.memory_bytes()
        culprit.raw(transfer(0, more=True))
        for _ in range(20):
            culprit.raw(transfer(None, more=True) * 1000)
            go_on()
        culprit.raw(transfer(None, payload=message("1")))
        culprit.receiver("queue://endless")
        assert [delivery.body for delivery in culprit.take(1)] == ["1"]
        assert broker.memory_bytes() - before < 10 * MIB


def test_a_message_that_never_ends_is_cut_off(broker: DaemonProcess) -> None:
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as culprit:
        link = culprit.sender("queue://endless")
        before = broker.memory_bytes()
        culprit.raw(transfer(0, payload=b"x" * 100_000, more=True))
        for _ in range(110):
            culprit.raw(transfer(None, payload=b"x" * 100_000, more=True))
        assert ends(culprit, LINK, link) == "amqp:link:message-size-exceeded"
        go_on()
        assert broker.memory_bytes() - before < 30 * MIB
        # The link is gone, the session goes on: our codec has to know of the delivery that we made ourselves.
        culprit.ses.next_delivery_id = 1
        assert culprit.put(culprit.sender("queue://endless"), message("1")) == [Accepted()]


def test_many_messages_that_never_end_cost_little_memory(broker: DaemonProcess) -> None:
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as culprit:
        before = broker.memory_bytes()
        for handle in range(8):
            culprit.sender(f"queue://endless.{handle}")
            culprit.raw(transfer(handle, handle=handle, payload=b"x" * 100_000, more=True))
            culprit.raw(transfer(None, handle=handle, payload=b"x" * 100_000, more=True) * 80)
        go_on()
        assert broker.memory_bytes() - before < 80 * MIB


def test_half_a_message_and_a_dead_socket(broker: DaemonProcess) -> None:
    with AmqpSocket(broker.ports["amqp"]) as sender:
        sender.sender("queue://amqp-half")
        sender.raw(transfer(0, payload=message("1"), more=True))
        sender.drop()
    with AmqpSocket(broker.ports["amqp"]) as other:
        assert other.put(other.sender("queue://amqp-half"), message("2")) == [Accepted()]
    assert broker.queue("amqp-half")["messages"] == 1


def test_a_message_after_an_aborted_one(broker: DaemonProcess) -> None:
    """An aborted message is nothing, and the next has its credit and its id."""
    with AmqpSocket(broker.ports["amqp"]) as client:
        link = client.sender("queue://aborted")
        parts = [
            transfer(0, payload=b"half", more=True),
            transfer(None, aborted=True),
            transfer(1, payload=message("1")),
        ]
        client.raw(b"".join(parts))
        client.receiver("queue://aborted")
        assert [delivery.body for delivery in client.take(1)] == ["1"]
        assert link not in client.ends


def test_ids_go_round(broker: DaemonProcess) -> None:
    """Delivery ids and transfer ids are serial numbers: after 2^32 - 1 comes 0."""
    with AmqpSocket(broker.ports["amqp"]) as client:
        session = client.ses = client.codec.new_session()
        session.next_outgoing_id = session.next_delivery_id = 2**32 - 2
        session.send_begin()
        link = session.new_sender("round")
        link.delivery_count = 2**32 - 2
        link.send_attach(source=Source("me"), target=Target("queue://round"))
        client.wait(lambda: link.credit > 0)
        for number in range(5):
            assert client.put(link, message(number)) == [Accepted()]
        client.receiver("queue://round")
        assert [delivery.body for delivery in client.take(5)] == list(range(5))


@pytest.mark.parametrize("count", [3_000, 5_000])
def test_unsettled_deliveries_that_we_never_heard_of(broker: DaemonProcess, count: int) -> None:
    """ATTACH with a large unsettled map: as many as a frame may have values, or an error."""
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as culprit:
        unsettled: dict[bytes, Any] = {id.to_bytes(2): None for id in range(count)}
        made = Attach("n", 3, SENDER, target=Target("queue://u"), unsettled=unsettled, initial_delivery_count=0)
        link = culprit.sender("queue://u")
        culprit.raw(frame(0, made.encode()))
        if count > 4_096:
            assert ends(culprit, CONNECTION, None) == "amqp:decode-error"
        go_on()
    assert link not in culprit.ends


def test_transactions_left_open_are_limited_and_rolled_back(broker: DaemonProcess) -> None:
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as culprit:
        coordinator, link = culprit.coordinator(), culprit.sender("queue://left-open")
        open_ones = [culprit.declare(coordinator) for _ in range(100)]
        [refused] = culprit.put(coordinator, encode_section(AMQP_VALUE, Declare()))
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == "amqp:resource-limit-exceeded"
        for tx in open_ones[:10]:
            culprit.put(link, message("never"), tx=tx)
        culprit.drop()
        go_on()
    assert broker.queue("left-open")["messages"] == 0


def test_a_transaction_of_somebody_else(broker: DaemonProcess) -> None:
    with AmqpSocket(broker.ports["amqp"]) as owner, AmqpSocket(broker.ports["amqp"]) as thief:
        tx = owner.declare(owner.coordinator())
        link = thief.sender("queue://stolen")
        thief.post(link, message("x"), tx=tx)
        assert ends(thief, LINK, link) == "amqp:transaction:unknown-id"


# -- before and around the handshake -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        AMQP_HEADER + frame(0, Begin(None, 0, 1, 1).encode()),
        AMQP_HEADER + transfer(),
        SASL_HEADER + frame(0, Open("c").encode()),
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x02\x01\x00\x00",
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"\xff" * 20_000,
    ],
    ids=["BEGIN first", "a transfer first", "OPEN instead of SASL", "AMQP 0-9-1", "TLS", "another protocol", "noise"],
)
def test_a_client_without_a_header_gets_nothing(broker: DaemonProcess, first: bytes) -> None:
    names = broker.queue_names()
    with innocent(broker) as go_on:
        names |= {"innocent"}
        with RawSocket(broker.ports["amqp"]) as stranger:
            with suppress(Lost):
                stranger.raw(first)
            heard = stranger.rest()
        assert b"AMQP" in heard or not heard
        go_on()
    assert broker.queue_names() == names


def test_an_unfinished_handshake_is_cut_off(tmp_path: Path) -> None:
    settings = '[acceptors.http]\nprotocol = "http"\n[acceptors.amqp]\nprotocol = "amqp"\nhandshake-timeout = "300ms"\n'
    with running(tmp_path, settings) as broker, RawSocket(broker.ports["amqp"]) as stranger:
        stranger.raw(AMQP_HEADER)
        stranger.rest()
        broker.await_log("connection.handshake_timeout")


def test_logins(tmp_path: Path) -> None:
    with running(tmp_path, "[security]\nlogin-failure-delay = 0\n", users={"alice": "secret"}) as broker:
        wrong = [
            SaslInit("PLAIN", b"\0alice\0wrong"),
            SaslInit("PLAIN", b"\0alice\0"),
            SaslInit("ANONYMOUS"),
            SaslInit("X"),
        ]
        for login in wrong:
            opening = AMQP_HEADER + frame(0, Open("c").encode())
            with RawSocket(broker.ports["amqp"]) as stranger:
                stranger.raw(SASL_HEADER + frame(0, login.encode(), TYPE_SASL) + opening)
                heard = stranger.rest()
            assert SaslOutcome(SaslCode.AUTH).encode() in heard or login.mechanism == "X", login
            assert heard.count(b"AMQP") == 1, "nothing but SASL was spoken"
        with RawSocket(broker.ports["amqp"]) as without:
            without.raw(AMQP_HEADER + frame(0, Open("c").encode()))
            assert without.rest()[:8] == SASL_HEADER
        assert "secret" not in broker.log


def test_a_client_that_never_reads_stalls_nobody_and_costs_little(broker: DaemonProcess) -> None:
    """The backlog of a consumer that does not read is the queue's; only a window of it is in flight."""
    body = "x" * 65_536
    with innocent(broker) as go_on, AmqpSocket(broker.ports["amqp"]) as deaf, AmqpSocket(broker.ports["amqp"]) as other:
        deaf.receiver("queue://unread", credit=100_000)
        before = broker.memory_bytes()
        link = other.sender("queue://unread")
        for number in range(400):
            other.post(link, message(body, durable=False))
            if number % 100 == 0:
                go_on()
        other.wait(lambda: len(other.outcomes) == 400)
        queue = broker.queue("unread")
        assert queue["messages"] > 300
        assert queue["delivering"] * len(body) <= 12 * MIB
        assert broker.memory_bytes() - before < 400 * len(body) + 24 * MIB
