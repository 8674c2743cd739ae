"""Receipts, and the ERROR that follows them: in their order, and not before the disk has what they are about."""

from __future__ import annotations

import pytest

from tests.broker.sessions.stomp.harness import started
from tests.simulation.world import held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_files import Fault
from tests.support.stomp_client import frame


def lazy() -> tuple[SimBroker, SimClient]:
    broker = SimBroker(small(), lazy_disk=True)
    broker.step()
    return broker, broker.connect()


def test_no_receipt_before_the_disk_has_it() -> None:
    broker, client = lazy()
    client.send("/queue/a", b"1", persistent="true", receipt="r")
    assert client.take("RECEIPT") == []
    broker.step()
    assert [f.headers["receipt-id"] for f in client.take("RECEIPT")] == ["r"]
    assert held(broker.restart(), "a") == [b"1"]


@pytest.mark.parametrize("command", ["ACK", "NACK", "COMMIT", "DISCONNECT", "UNSUBSCRIBE", "SUBSCRIBE", "BEGIN"])
def test_every_receipt_waits_for_what_came_before_it(command: str) -> None:
    broker, client = lazy()
    client.subscribe("/queue/b")
    client.send("/queue/b", b"0", persistent="true")
    broker.step()
    broker.step()
    (message,) = client.messages()
    client.do("BEGIN", {"transaction": "t"})
    broker.step()
    client.send("/queue/a", b"1", persistent="true")
    headers = {
        "ACK": {"id": message.headers["ack"]},
        "NACK": {"id": message.headers["ack"], "requeue": "false"},
        "COMMIT": {"transaction": "t"},
        "BEGIN": {"transaction": "u"},
        "UNSUBSCRIBE": {"id": "s"},
        "SUBSCRIBE": {"id": "z", "destination": "/queue/z"},
        "DISCONNECT": {},
    }[command]
    client.do(command, {**headers, "receipt": "r"})
    assert client.take("RECEIPT") == []
    assert not client.closed
    broker.step()
    assert [f.headers["receipt-id"] for f in client.take("RECEIPT")] == ["r"]
    assert client.closed is (command == "DISCONNECT")


def test_a_receipt_of_what_is_not_durable_comes_at_once() -> None:
    _, client = lazy()
    client.send("/queue/DLQ", b"1", receipt="r")
    assert client.take("RECEIPT")


def test_receipts_come_in_order_and_once() -> None:
    broker, client = lazy()
    sends = [
        frame("SEND", {"destination": "/queue/a", "persistent": str(n % 3 > 0).lower(), "receipt": str(n)})
        for n in range(20)
    ]
    for start in range(0, 20, 5):
        client.raw(b"".join(sends[start : start + 5]))
    broker.step()
    assert [f.headers["receipt-id"] for f in client.take("RECEIPT")] == [str(n) for n in range(20)]


def test_a_failed_disk_confirms_nothing() -> None:
    broker, client = lazy()
    client.send("/queue/a", b"1", persistent="true", receipt="r")
    broker.files.plan(1, Fault.EIO)
    broker.step()
    broker.step()
    assert broker.failure is not None
    assert client.take("RECEIPT") == []


def pipelined(*destinations: str) -> bytes:
    """Durable sends in one go; their receipts are numbers."""
    return b"".join(
        frame("SEND", {"destination": each, "persistent": "true", "receipt": str(n)}, b"%d" % n)
        for n, each in enumerate(destinations)
    )


def said(client: SimClient) -> list[str]:
    """The receipts that a client has got in their order, and whether there was an ERROR."""
    return [each.headers["receipt-id"] if each.command == "RECEIPT" else each.command for each in client.frames]


def test_an_error_waits_for_the_receipts_of_what_came_before_it() -> None:
    broker, client = lazy()
    client.raw(pipelined("/queue/a", "/queue/b") + b"NONSENSE\n\n\0")
    assert (said(client), client.closed) == ([], False)
    client.raw(pipelined("/queue/c"))
    broker.step()
    assert (said(client), client.closed) == (["0", "1", "ERROR"], True)
    broker = broker.restart()
    assert (held(broker, "a"), held(broker, "b")) == ([b"0"], [b"1"])
    assert "c" not in broker.engine.queues


def test_of_several_errors_that_wait_the_first_is_sent() -> None:
    broker, client = lazy()
    client.raw(pipelined("/queue/a") + b"NONSENSE\n\n\0")
    broker.shut_down()
    broker.step()
    assert said(client) == ["0", "ERROR"]
    assert client.take("ERROR")[0].headers["message"] == "unknown command"


def test_the_goodbye_of_a_broker_that_stops_waits_for_receipts() -> None:
    broker, client = lazy()
    client.raw(pipelined("/queue/a"))
    with broker.turn():
        client.session.shut_down()
        broker.parts.tick.touch(client)
    assert (said(client), client.closed) == ([], False)
    broker.step()
    assert (said(client), client.closed) == (["0", "ERROR"], True)


@pytest.mark.parametrize("end", ["connection_lost", "timed_out"])
def test_an_error_that_waits_is_forgotten_with_its_connection(end: str) -> None:
    broker, client = lazy()
    client.raw(pipelined("/queue/a") + b"NONSENSE\n\n\0")
    with broker.turn():
        getattr(client.session, end)()
    broker.step()
    assert said(client) == []
    assert held(broker, "a") == [b"0"]


@pytest.mark.parametrize(
    ("destinations", "refused"), [("aab", 1), ("aba", 2), ("bbacab", 4), ("abab", 2), ("babab", 3), ("bcabcabc", 5)]
)
def test_receipts_say_what_was_taken_before_a_refusal_and_nothing_else_is(destinations: str, refused: int) -> None:
    broker, client = started({"match": "a", "max-size-messages": 1, "address-full-policy": "FAIL"})
    client.raw(pipelined(*(f"/queue/{each}" for each in destinations)))
    assert said(client) == [*map(str, range(refused)), "ERROR"]
    assert client.take("ERROR")[0].headers["receipt-id"] == str(refused)
    broker = broker.restart()
    kept = {body for name in broker.engine.queues for body in held(broker, name)}
    assert kept == {b"%d" % n for n in range(refused)}


@pytest.mark.parametrize("transaction", [False, True])
def test_frames_behind_a_refusal_are_not_done_whatever_they_belong_to(transaction: bool) -> None:
    """A transaction takes no more; what was sent outside of it, or within, behind that is nobody's."""
    broker, client = started({"match": "full", "max-size-messages": 1, "address-full-policy": "FAIL"})
    client.confirmed("/queue/full", b"0")
    client.do("BEGIN", {"transaction": "t"})
    broker.advance(broker.config.broker.transaction_timeout)
    into = {"transaction": "t"} if transaction else {"persistent": "true"}
    client.raw(
        b"".join(
            frame("SEND", {"destination": destination, "receipt": receipt, **headers})
            for receipt, destination, headers in [
                ("before", "/queue/a", {}),
                ("refused", "/queue/full", into),
                ("behind", "/queue/a", {}),
            ]
        )
    )
    assert said(client) == ["before", "ERROR"]
    assert client.take("ERROR")[0].headers["receipt-id"] == "refused"
    assert broker.engine.queue("a").message_count == 1
