"""What an application does with stomp.py, in each version of the protocol, against a real broker."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.support.daemon import DaemonProcess
from tests.support.stomp_py import DURABLE, VERSIONS, Client, Received, connected

_NAMES = count(1)


@pytest.fixture(params=VERSIONS)
def client(request: pytest.FixtureRequest, broker: DaemonProcess) -> Iterator[Client]:
    """A connection in each version."""
    with connected(broker.port, request.param) as client:
        yield client


@pytest.fixture(params=VERSIONS[1:])
def newer(request: pytest.FixtureRequest, broker: DaemonProcess) -> Iterator[Client]:
    """A connection in each version that has NACK, and headers that are escaped."""
    with connected(broker.port, request.param) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"n{next(_NAMES)}"


def expires(milliseconds: int) -> dict[str, str]:
    """Headers of a durable message that lives so long."""
    return {**DURABLE, "expires": str(int(time.time() * 1000) + milliseconds)}


# -- sending and receiving ---------------------------------------------------------------------------------------------


def test_the_version_is_the_one_asked_for(client: Client) -> None:
    assert client.connected.headers.get("version", "1.0") == client.version
    assert client.connected.headers["server"].startswith("bartleby/")


def test_a_message_comes_as_it_was_sent(client: Client, name: str) -> None:
    client.put(f"/queue/{name}", "grüße", {**DURABLE, "content-type": "text/plain", "colour": "blue", "priority": "7"})
    client.subscribe(f"/queue/{name}")
    message = client.take()
    assert message.text == "grüße"
    header = {"destination": f"/queue/{name}", "colour": "blue", "content-type": "text/plain", "priority": "7"}
    header |= {"persistent": "true", "redelivered": "false", "expires": "0", "content-length": "7"}
    assert header.items() <= message.headers.items()
    assert int(message.headers["timestamp"]) <= time.time() * 1000


def test_headers_that_need_escapes(newer: Client, name: str) -> None:
    value = "a:b\\c\nd"
    newer.subscribe(f"/queue/{name}")
    newer.send(f"/queue/{name}", b"x", {"odd": value})
    assert newer.take().headers["odd"] == value


def test_versions_read_each_other(broker: DaemonProcess, name: str) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(broker.port, version)) for version in VERSIONS]
        for client in clients:
            client.subscribe(f"/topic/{name}")
        for client in clients:
            client.put(f"/topic/{name}", client.version, {"a": "b"})
        for client in clients:
            received = [client.take() for _ in VERSIONS]
            assert [message.text for message in received] == list(VERSIONS)
            assert {message.headers["a"] for message in received} == {"b"}


def test_a_body_of_zeros_and_a_large_one(client: Client, name: str) -> None:
    zeros, large = bytes(1000), bytes(range(256)) * 8192
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", zeros, DURABLE)
    client.put(f"/queue/{name}", large, DURABLE)
    assert client.take().body == zeros
    assert client.take().body == large


def test_a_text_without_content_length(broker: DaemonProcess, name: str) -> None:
    with connected(broker.port) as client:
        client.connection.auto_content_length = False
        client.subscribe(f"/queue/{name}")
        client.send(f"/queue/{name}", "words")
        assert client.take().text == "words"


def test_a_queue_shares_and_a_topic_copies(broker: DaemonProcess, name: str) -> None:
    with connected(broker.port) as one, connected(broker.port) as other:
        for client in (one, other):
            client.subscribe(f"/queue/{name}", id="q")
            client.subscribe(f"/topic/{name}.t", id="t")
        for number in range(10):
            one.send(f"/queue/{name}", str(number))
            one.send(f"/topic/{name}.t", str(number))
        seen: dict[str, list[list[str]]] = {"q": [], "t": []}
        for client in (one, other):
            mine: dict[str, list[str]] = {"q": [], "t": []}
            for message in (client.take() for _ in range(15)):
                mine[message.headers["subscription"]].append(message.text)
            for id, texts in mine.items():
                seen[id].append(texts)
    everything = [str(number) for number in range(10)]
    assert seen["t"] == [everything, everything]
    assert sorted(seen["q"][0] + seen["q"][1], key=int) == everything
    assert [len(texts) for texts in seen["q"]] == [5, 5]


def test_priorities_and_order(client: Client, name: str) -> None:
    for number, priority in enumerate("4904"):
        client.send(f"/queue/{name}", f"{priority}-{number}", {**DURABLE, "priority": priority})
    client.put(f"/queue/{name}", "4-4", DURABLE)
    client.subscribe(f"/queue/{name}")
    assert client.texts(5) == ["9-1", "4-0", "4-3", "4-4", "0-2"]


def test_a_selector_on_a_queue_and_on_a_topic(client: Client, name: str) -> None:
    client.subscribe(f"/queue/{name}", headers={"selector": "colour = 'red' AND AMQPriority > 4"})
    client.subscribe(f"/topic/{name}.t", headers={"selector": "colour <> 'red'"})
    for destination in (f"/queue/{name}", f"/topic/{name}.t"):
        for colour, priority in (("blue", "9"), ("red", "4"), ("red", "9")):
            client.put(destination, f"{colour}{priority}", {"colour": colour, "priority": priority})
    assert sorted(client.texts(2)) == ["blue9", "red9"]


def test_wildcards_take_what_fits(client: Client, name: str) -> None:
    one, many = client.subscribe(f"/topic/{name}.*"), client.subscribe(f"/topic/{name}.#")
    for words in ("a", "a.b"):
        client.put(f"/topic/{name}.{words}", words)
    received = [client.take() for _ in range(3)]
    assert {(message.headers["subscription"], message.text) for message in received} == {
        (one, "a"),
        (many, "a"),
        (many, "a.b"),
    }
    assert {message.headers["destination"] for message in received} == {f"/topic/{name}.a", f"/topic/{name}.a.b"}


def test_a_queue_of_an_address_by_its_full_name(client: Client, name: str, broker: DaemonProcess) -> None:
    client.subscribe(f"{name}::{name}.one", "client", {"subscription-type": "ANYCAST"})
    client.put(f"{name}::{name}.two", "two", {**DURABLE, "destination-type": "ANYCAST"})
    client.put(f"/queue/{name}::{name}.one", "one", DURABLE)
    assert client.take().text == "one"
    assert broker.queue(f"{name}.two")["ready"] == 1


def test_a_durable_subscription_is_for_one(broker: DaemonProcess, name: str) -> None:
    headers = {"durable-subscription-name": "news"}
    with connected(broker.port, client_id=name) as first, connected(broker.port, client_id=name) as second:
        first.subscribe(f"/topic/{name}", headers=headers)
        refused = {"id": "1", "destination": f"/topic/{name}.other", **headers}
        second.frame("SUBSCRIBE", refused, confirm=False)
        assert name in second.error().text
        first.put(f"/topic/{name}", "still mine", DURABLE)
        assert first.take().text == "still mine"


def test_request_and_reply(broker: DaemonProcess, name: str) -> None:
    with connected(broker.port) as asking, connected(broker.port) as answering:
        answering.subscribe(f"/queue/{name}")
        asking.subscribe(f"/queue/{name}.answers")
        asking.send(f"/queue/{name}", "6 * 7", {"reply-to": f"/queue/{name}.answers", "correlation-id": "c-1"})
        request = answering.take()
        answering.send(request.headers["reply-to"], "42", {"correlation-id": request.headers["correlation-id"]})
        reply = asking.take()
    assert (reply.text, reply.headers["correlation-id"]) == ("42", "c-1")


def test_unsubscribing_ends_deliveries(client: Client, name: str, broker: DaemonProcess) -> None:
    id = client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "before")
    assert client.take().text == "before"
    client.frame("UNSUBSCRIBE", {"id": id})
    client.put(f"/queue/{name}", "after")
    assert broker.queue(name)["messages"] == 1


# -- acknowledging -----------------------------------------------------------------------------------------------------


def test_messages_of_an_automatic_subscription_are_gone(client: Client, name: str, broker: DaemonProcess) -> None:
    client.subscribe(f"/queue/{name}", "auto")
    client.put(f"/queue/{name}", "x", DURABLE)
    client.take()
    client.leave()
    assert broker.queue(name)["messages"] == 0


def test_a_cumulative_ack_takes_all_before_it(client: Client, name: str, broker: DaemonProcess) -> None:
    for number in range(5):
        client.put(f"/queue/{name}", str(number), DURABLE)
    client.subscribe(f"/queue/{name}", "client")
    messages = [client.take() for _ in range(5)]
    client.ack(messages[2])
    assert broker.queue(name)["messages"] == 2
    client.ack(messages[4])
    assert broker.queue(name)["messages"] == 0


def test_an_individual_ack_takes_one(client: Client, name: str, broker: DaemonProcess) -> None:
    for number in range(3):
        client.put(f"/queue/{name}", str(number), DURABLE)
    client.subscribe(f"/queue/{name}", "client-individual")
    messages = [client.take() for _ in range(3)]
    client.ack(messages[1])
    client.leave()
    with connected(broker.port) as later:
        later.subscribe(f"/queue/{name}")
        back = [later.take(), later.take()]
    assert [message.text for message in back] == ["0", "2"]
    assert [message.redelivered for message in back] == [True, True], "both had left, and the client has ended"


def test_a_small_window_gives_one_message_at_a_time(client: Client, name: str, broker: DaemonProcess) -> None:
    client.subscribe(f"/queue/{name}", "client-individual", {"consumer-window-size": "0"})
    for number in range(3):
        client.put(f"/queue/{name}", str(number), DURABLE)
    for number in range(3):
        message = client.take()
        assert message.text == str(number)
        assert broker.queue(name)["delivering"] == 1
        client.ack(message)


def test_an_unknown_ack_is_an_error(client: Client, name: str) -> None:
    client.send(f"/queue/{name}", "x")
    client.subscribe(f"/queue/{name}", "client-individual")
    message = client.take()
    client.ack(message)
    receipt = client.receipt()
    client.connection.ack(*client._named(message), receipt=receipt)
    error = client.error()
    assert error.headers["receipt-id"] == receipt
    assert b"is not waiting for an acknowledgement" in error.body


# -- failing -----------------------------------------------------------------------------------------------------------


def test_a_nack_brings_the_message_back_at_the_head(newer: Client, name: str) -> None:
    for number in range(3):
        newer.put(f"/queue/{name}", str(number), DURABLE)
    newer.subscribe(f"/queue/{name}", "client-individual", {"consumer-window-size": "0"})
    first = newer.take()
    newer.nack(first)
    again = newer.take()
    assert (again.text, first.redelivered, again.redelivered) == ("0", False, True)
    newer.ack(again)
    assert newer.take().text == "1"


def test_poison_dies_with_its_reason(newer: Client, name: str, broker: DaemonProcess) -> None:
    queue_name = f"poison.{name}"
    newer.put(f"/queue/{queue_name}", "poison", {**DURABLE, "order": "7"})
    newer.subscribe(f"/queue/{queue_name}", "client-individual")
    first = newer.take()
    newer.nack(first)
    for _ in range(2):
        newer.nack(newer.take(), reason="no such customer")
    dead = dead_letter(newer, "/queue/dead.poison")
    assert (dead.text, dead.headers["order"], dead.redelivered) == ("poison", "7", False)
    said = dead.headers
    assert said["destination"] == "/queue/dead.poison"
    assert said["_AMQ_ORIG_ADDRESS"] == said["_AMQ_ORIG_QUEUE"] == said["_AMQ_DL_FIRST_ADDRESS"] == queue_name
    assert said["_AMQ_ORIG_MESSAGE_ID"] == first.headers["message-id"].partition(",")[2]
    assert (said["_AMQ_DL_REASON"], said["_AMQ_DL_ATTEMPTS"], said["_AMQ_DL_COUNT"]) == ("max-deliveries", "3", "1")
    assert said["_AMQ_DL_TEXT"].startswith("delivered 3 times without success")
    assert said["_AMQ_DL_TEXT"].endswith("no such customer")
    assert said["_AMQ_DL_CLIENT_ADDRESS"].startswith("127.0.0.1:")
    assert int(said["_AMQ_DL_TIME"]) >= int(said["timestamp"])
    assert broker.queue(queue_name)["counters"]["dead_lettered"] == 1


def test_a_nack_without_requeue_kills_at_once(newer: Client, name: str) -> None:
    newer.put(f"/queue/poison.{name}", "bad", DURABLE)
    newer.subscribe(f"/queue/poison.{name}", "client-individual")
    newer.nack(newer.take(), requeue="false", reason="schema 12 is unknown")
    said = dead_letter(newer, "/queue/dead.poison").headers
    assert (said["_AMQ_DL_REASON"], said["_AMQ_DL_ATTEMPTS"]) == ("rejected", "1")
    assert "schema 12 is unknown" in said["_AMQ_DL_TEXT"]


def test_a_sender_cannot_forge_a_reason(newer: Client, name: str) -> None:
    forged = {"_AMQ_DL_REASON": "admin", "_AMQ_ORIG_QUEUE": "elsewhere", "redelivered": "true", "message-id": "1"}
    newer.subscribe(f"/queue/{name}")
    newer.put(f"/queue/{name}", "x", forged)
    said = newer.take().headers
    assert "_AMQ_DL_REASON" not in said
    assert "_AMQ_ORIG_QUEUE" not in said
    assert (said["redelivered"], said["message-id"] == "1") == ("false", False)


def test_redelivery_waits_while_others_flow(newer: Client, name: str) -> None:
    newer.put(f"/queue/delayed.{name}", "bad", DURABLE)
    newer.subscribe(f"/queue/delayed.{name}", "client-individual")
    bad = newer.take()
    before, receipt = time.monotonic(), newer.receipt()
    newer.connection.nack(*newer._named(bad), receipt=receipt)
    # Without waiting, or the delay might be over before it is sent on a busy machine.
    newer.send(f"/queue/delayed.{name}", "good", DURABLE)
    newer.confirmed(receipt)
    good = newer.take()
    newer.ack(good)
    bad = newer.take()
    assert (good.text, bad.text, bad.redelivered) == ("good", "bad", True)
    assert time.monotonic() - before > 0.298  # clocks of whole milliseconds may be one ahead
    newer.ack(bad)


def test_deliveries_to_a_lost_connection_are_redelivered(client: Client, name: str, broker: DaemonProcess) -> None:
    """Of 100 messages sent ahead any may have been processed; one of them counts as failed, the oldest."""
    for number in range(100):
        client.put(f"/queue/{name}", str(number), DURABLE)
    client.subscribe(f"/queue/{name}", "client-individual")
    for _ in range(100):
        client.take()
    client.drop()
    with connected(broker.port) as other:
        other.subscribe(f"/queue/{name}", "client-individual")
        again = [other.take() for _ in range(100)]
        assert {message.redelivered for message in again} == {True}
        shown = broker.get(f"queues/{name}/messages", limit=1000)["messages"]
        counts = {m["id"]: m["failed_deliveries"] for m in shown}
        oldest = int(again[0].headers["message-id"].partition(",")[2])
        assert counts == {id: int(id == oldest) for id in counts}


def test_a_lost_connection_brings_messages_back(client: Client, name: str, broker: DaemonProcess) -> None:
    client.put(f"/queue/{name}", "x", DURABLE)
    client.subscribe(f"/queue/{name}", "client")
    client.take()
    client.drop()
    with connected(broker.port) as other:
        other.subscribe(f"/queue/{name}", "client")
        message = other.take()
    assert (message.text, message.redelivered) == ("x", True)


def dead_letter(client: Client, destination: str) -> Received:
    """The one dead letter that is there, taken away."""
    id = client.subscribe(destination, "client-individual")
    message = client.take()
    client.ack(message)
    client.frame("UNSUBSCRIBE", {"id": id})
    return message


# -- time --------------------------------------------------------------------------------------------------------------


def test_expired_messages_are_kept(client: Client, name: str) -> None:
    headers = expires(150)
    client.put(f"/queue/brief.{name}", "old", headers)
    client.put(f"/queue/brief.{name}", "fresh", expires(60_000))
    late = client.subscribe("/queue/late")
    message = client.take()
    said = message.headers
    assert (message.text, said["expires"], said["subscription"]) == ("old", "0", late)
    assert (said["_AMQ_ORIG_QUEUE"], said["_AMQ_DL_REASON"]) == (f"brief.{name}", "expired")
    assert said["_AMQ_DL_ORIG_EXPIRATION"] == headers["expires"] <= said["_AMQ_ACTUAL_EXPIRY"]
    client.subscribe(f"/queue/brief.{name}")
    assert client.take().text == "fresh"


def test_scheduled_messages_come_when_due(client: Client, name: str) -> None:
    client.subscribe(f"/queue/{name}")
    begun = time.time()
    # Without waiting, or the first might be due before the last is sent on a busy machine.
    client.send(f"/queue/{name}", "delayed", {**DURABLE, "AMQ_SCHEDULED_DELAY": "300"})
    client.send(f"/queue/{name}", "timed", {**DURABLE, "AMQ_SCHEDULED_TIME": str(int(begun * 1000) + 600)})
    client.send(f"/queue/{name}", "now", DURABLE)
    arrived = [(client.take().text, time.time() - begun) for _ in range(3)]
    assert [text for text, _ in arrived] == ["now", "delayed", "timed"]
    # Clocks of whole milliseconds may be one ahead.
    assert arrived[1][1] > 0.298
    assert arrived[2][1] > 0.598


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_transaction_is_all_or_nothing(client: Client, name: str, broker: DaemonProcess) -> None:
    client.put(f"/queue/{name}.in", "work", DURABLE)
    client.subscribe(f"/queue/{name}.in", "client-individual")
    message = client.take()
    for end, left, made in (("ABORT", 1, 0), ("COMMIT", 0, 2)):
        client.connection.begin("t")
        client.put(f"/queue/{name}.out", "one", {**DURABLE, "transaction": "t"})
        client.put(f"/queue/{name}.out", "two", {**DURABLE, "transaction": "t"})
        client.ack(message, transaction="t")
        client.frame(end, {"transaction": "t"})
        assert broker.queue(f"{name}.in")["messages"] == left
        names = broker.queue_names()
        assert (broker.queue(f"{name}.out")["messages"] if f"{name}.out" in names else 0) == made
        if end == "ABORT":
            message = client.take()
            assert message.redelivered


def test_a_transaction_ends_with_its_connection(client: Client, name: str, broker: DaemonProcess) -> None:
    client.put(f"/queue/{name}", "before", DURABLE)
    client.connection.begin("t")
    client.put(f"/queue/{name}", "lost", {**DURABLE, "transaction": "t"})
    client.drop()
    broker.get("status")
    with connected(broker.port) as other:
        other.subscribe(f"/queue/{name}")
        assert other.take().text == "before"
        other.put(f"/queue/{name}", "after", DURABLE)
        assert other.take().text == "after"


def test_a_nack_in_a_transaction(newer: Client, name: str) -> None:
    newer.put(f"/queue/poison.{name}", "x", DURABLE)
    newer.subscribe(f"/queue/poison.{name}", "client-individual")
    message = newer.take()
    newer.connection.begin("t")
    newer.nack(message, transaction="t", requeue="false", reason="in a transaction")
    newer.frame("COMMIT", {"transaction": "t"})
    assert "in a transaction" in dead_letter(newer, "/queue/dead.poison").headers["_AMQ_DL_TEXT"]


def test_a_transaction_that_does_not_exist_cannot_be_committed(client: Client) -> None:
    client.frame("COMMIT", {"transaction": "nobody"}, confirm=False)
    assert b"nobody" in client.error().body


# -- durable subscriptions ---------------------------------------------------------------------------------------------


def test_a_durable_subscription_collects(broker: DaemonProcess, name: str) -> None:
    headers = {"durable-subscription-name": "news"}
    with connected(broker.port, client_id=name) as reader:
        reader.subscribe(f"/topic/{name}", "client-individual", headers)
        reader.leave()
    with connected(broker.port) as sender:
        sender.put(f"/topic/{name}", "while you were away", DURABLE)
    with connected(broker.port, client_id=name) as reader:
        id = reader.subscribe(f"/topic/{name}", "client-individual", headers)
        message = reader.take()
        assert message.text == "while you were away"
        reader.ack(message)
        reader.frame("UNSUBSCRIBE", {"id": id, **headers})
    assert f"{name}.news" not in broker.queue_names()


def test_no_local_keeps_ones_own_messages_away(broker: DaemonProcess, name: str) -> None:
    with connected(broker.port) as one, connected(broker.port) as other:
        one.subscribe(f"/topic/{name}", headers={"no-local": "true"})
        one.put(f"/topic/{name}", "mine")
        other.put(f"/topic/{name}", "theirs")
        assert one.take().text == "theirs"


# -- heart-beats and limits --------------------------------------------------------------------------------------------


def test_heart_beats_keep_both_sides_alive(broker: DaemonProcess, name: str) -> None:
    with connected(broker.port, heart_beats=(500, 500)) as client:
        assert client.connected.headers["heart-beat"] == "500,500"
        client.subscribe(f"/queue/{name}")
        # Longer than either side would stand silence: the broker 1 s, stomp.py 0.5 s and a half.
        with pytest.raises(queue.Empty):
            client.take(2.5)
        client.put(f"/queue/{name}", "still here")
        assert client.take().text == "still here"


def test_a_full_address_that_fails(client: Client, name: str, broker: DaemonProcess) -> None:
    for number in range(10):
        client.put(f"/queue/small.{name}", str(number), DURABLE)
    client.send(f"/queue/small.{name}", "one too many", {**DURABLE, "receipt": "r-full"})
    error = client.error()
    assert error.headers["receipt-id"] == "r-full"
    assert "full" in error.headers["message"] + error.text
    assert broker.queue(f"small.{name}")["messages"] == 10
