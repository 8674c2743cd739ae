"""Links to brokers of others, in both directions: every message counted, with kill -9 of either end in the middle.

The proton broker is always there.  The others are tried if they are installed; `make link-tests` demands them, kills
both ends, and sends more.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from secrets import randbits
from typing import Any, Final

import pytest

from protocols.amqp.performatives import Accepted, Properties
from tests.support.amqp_client import message
from tests.support.daemon import DaemonProcess, running
from tests.support.link_books import LinkBooks, await_complete, send_until_killed, take_all
from tests.support.link_peers import FULL_MAX, PEERS, LinkPeer, bartleby, demanded, missing
from tests.support.peers import free_port
from tests.support.process import NotAvailable, awaited

#: Messages of a round, and rounds, each of which ends with a SIGKILL.
MESSAGES, ROUNDS = (400, 10) if demanded() else (250, 2)

#: The longest that a broker lives in a round, in seconds.
LIFE_S: Final = 0.2

SHARED: Final = """
[broker]
name = "here"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "DLQ"
max-delivery-attempts = 3

[addresses."orders.out".queues."orders.out"]
routing-type = "ANYCAST"
"""


@pytest.fixture(params=PEERS, scope="module")
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkPeer]:
    """A broker of others that runs."""
    name = request.param
    try:
        made = PEERS[name](tmp_path_factory.mktemp(name))
        made.process.start()
    except NotAvailable as why:
        missing(name, why)
    yield made
    made.process.close()


def routes(peer: LinkPeer) -> str:
    """One in each direction."""
    return (
        f'[links.far.send.orders]\nqueue = "orders.out"\naddress = "{peer.address("orders")}"\n'
        f'[links.far.receive.invoices]\nqueue = "{peer.address("invoices")}"\naddress = "invoices.in"\n'
    )


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Which peer it is."""
    found: str = request.node.callspec.params["peer"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("direction", ["send", "receive"])
def test_nothing_is_lost(peer: LinkPeer, direction: str, tmp_path: Path) -> None:
    seed = randbits(32)
    print(f"seed {seed}")
    chance = Random(seed)
    books = LinkBooks(chance)
    settings = SHARED + peer.settings(tmp_path) + routes(peer)
    with running(tmp_path, settings) as broker:
        here = bartleby(broker)
        (source, filled), (target, taken) = (here, "orders.out"), (peer, "orders")
        if direction == "receive":
            (source, filled), (target, taken) = (peer, "invoices"), (here, "invoices.in")
        for number in range(ROUNDS):
            victim = peer if demanded() and number % 2 else here
            killer = threading.Timer(chance.uniform(0, LIFE_S), victim.process.signal, (signal.SIGKILL,))
            killer.start()
            send_until_killed(source, filled, books, MESSAGES)
            killer.join()
            victim.process.wait()
            victim.process.start()
        assert send_until_killed(source, filled, books, MESSAGES)
        await_complete(target, taken, books)
        broker.stop()
        take_all(peer, "orders" if direction == "send" else "invoices", books)
    print(f"{len(books.entries)} sent, {len(books.wanted)} wanted, {len(books.doubled)} doubled")
    assert not books.missing


# -- what cannot be delivered there ------------------------------------------------------------------------------------

#: RabbitMQ 3.10 drops the connection when a queue refuses a message, without any answer.
ANSWERING: Final = [each for each in PEERS if each != "rabbitmq-3"]

#: Each has its own words for a queue that is full; RabbitMQ gives no reason.
FULL: Final = {"proton": "the queue is full", "artemis": 'Address "full" is full', "rabbitmq-4": "no reason given"}

RABBITS: Final = [each for each in PEERS if each.startswith("rabbitmq")]


def dead_letters(broker: DaemonProcess) -> list[dict[str, Any]]:
    """What is on the dead-letter queue, as annotations."""
    if "DLQ" not in broker.queue_names():
        return []
    return [each["annotations"] for each in broker.get("queues/DLQ/messages")["messages"]]


def route(broker: DaemonProcess, name: str) -> dict[str, Any]:
    """A route of the link."""
    [link] = broker.get("links")["links"]
    [found] = [each for each in link["routes"] if each["name"] == name]
    return dict(found)


def send(broker: DaemonProcess, queue: str, *payloads: bytes) -> None:
    """Messages that are accepted."""
    with bartleby(broker).client() as client:
        assert client.put(client.sender(f"queue://{queue}"), *payloads) == [Accepted()] * len(payloads)


def takes(broker: DaemonProcess, peer: LinkPeer, count: int = 3) -> None:
    """The route `orders` passes messages on: it takes what is sent, and gives it to the other end."""
    books = LinkBooks(Random(0), non_durable=0)
    assert send_until_killed(bartleby(broker), "orders.out", books, count)
    await_complete(peer, "orders", books)
    assert not books.doubled


@pytest.mark.parametrize("peer", ANSWERING, indirect=True)
def test_a_full_queue_there(peer: LinkPeer, name: str, tmp_path: Path) -> None:
    take_all(peer, "full", LinkBooks(Random(0)))
    full = f'[links.far.send.full]\nqueue = "full.out"\naddress = "{peer.address("full")}"\n'
    with running(tmp_path, SHARED + peer.settings(tmp_path) + routes(peer) + full) as broker:
        books = LinkBooks(Random(0), non_durable=0)
        assert send_until_killed(bartleby(broker), "full.out", books, FULL_MAX + 3)
        awaited(lambda: len(dead_letters(broker)) == 3, what="three dead letters")
        assert take_all(peer, "full", books) == FULL_MAX
        for letter in dead_letters(broker):
            assert letter["_AMQ_ORIG_QUEUE"] == "full.out"
            assert letter["_AMQ_DL_REASON"] == "queue-full"
            for word in ("link far", peer.url, peer.address("full"), FULL[name]):
                assert word in letter["_AMQ_DL_TEXT"]
        takes(broker, peer)


@pytest.mark.parametrize("peer", ANSWERING, indirect=True)
def test_a_full_queue_there_that_has_room_again(peer: LinkPeer, tmp_path: Path) -> None:
    """Without a dead letter nothing is given up: the route waits, the others go on, and all arrives."""
    take_all(peer, "full", LinkBooks(Random(0)))
    full = f'[links.far.send.full]\nqueue = "full.out"\naddress = "{peer.address("full")}"\nuse-dead-letter = false\n'
    with running(tmp_path, SHARED + peer.settings(tmp_path) + routes(peer) + full) as broker:
        books = LinkBooks(Random(0), non_durable=0)
        assert send_until_killed(bartleby(broker), "full.out", books, FULL_MAX + 3)
        awaited(lambda: route(broker, "full")["state"] == "retrying", what="the route waits")
        assert peer.address("full") in route(broker, "full")["error"]
        takes(broker, peer)
        await_complete(peer, "full", books)
        assert not books.doubled
        assert not dead_letters(broker)
        awaited(lambda: broker.queue("full.out")["messages"] == 0, what="nothing waits")


@pytest.mark.parametrize("use_dead_letter", [True, False])
def test_an_address_that_is_not_there(peer: LinkPeer, tmp_path: Path, use_dead_letter: bool) -> None:
    address = peer.address("nowhere")
    if address == "/amq/queue/nowhere":  # RabbitMQ 3 has no word against it before a consumer comes
        address = "/exchange/nowhere/nowhere"
    lost = f'[links.far.send.lost]\nqueue = "lost.out"\naddress = "{address}"\n'
    lost += f"use-dead-letter = {str(use_dead_letter).lower()}\n"
    with running(tmp_path, SHARED + peer.settings(tmp_path) + routes(peer) + lost) as broker:
        send(broker, "lost.out", message("lost"))
        awaited(lambda: route(broker, "lost")["state"] == "retrying", what="the route waits")
        takes(broker, peer)
        error = route(broker, "lost")["error"]
        assert address in error
        assert "amqp:not-found" in error
        if use_dead_letter:
            awaited(lambda: dead_letters(broker), what="a dead letter")
            [letter] = dead_letters(broker)
            for word in (address, "amqp:not-found"):
                assert word in letter["_AMQ_DL_TEXT"]
        else:
            assert broker.queue("lost.out")["messages"] == 1


def test_a_queue_that_is_forbidden(peer: LinkPeer, tmp_path: Path) -> None:
    forbidden = f'[links.far.receive.hidden]\nqueue = "{peer.address("forbidden")}"\naddress = "hidden.in"\n'
    with running(tmp_path, SHARED + peer.settings(tmp_path) + routes(peer) + forbidden) as broker:
        awaited(lambda: route(broker, "hidden")["state"] == "retrying", what="the route waits")
        assert "amqp:unauthorized-access" in route(broker, "hidden")["error"]
        takes(broker, peer)


@pytest.mark.parametrize("peer", RABBITS, indirect=True)
def test_a_message_that_ends_the_session(peer: LinkPeer, tmp_path: Path) -> None:
    """RabbitMQ ends the whole session for a user id that is not its user's: that message dies, and no other."""
    books = LinkBooks(Random(0), non_durable=0)
    with (
        running(tmp_path, SHARED + peer.settings(tmp_path) + routes(peer)) as broker,
        bartleby(broker).client() as client,
    ):
        books.send(client, "queue://orders.out", 40)
        [outcome] = client.put(client.sender("queue://orders.out"), message(properties=Properties(user_id=b"nobody")))
        assert outcome == Accepted()
        books.send(client, "queue://orders.out", 40)
        await_complete(peer, "orders", books)
        awaited(lambda: dead_letters(broker), what="a dead letter")
        [letter] = dead_letters(broker)
        assert "user_id property set to 'nobody'" in letter["_AMQ_DL_TEXT"]
        takes(broker, peer)


@pytest.mark.parametrize("peer", ["rabbitmq-4"], indirect=True)
def test_a_message_that_is_too_large(peer: LinkPeer, tmp_path: Path) -> None:
    """More than the other end says that it takes in a message."""
    with running(tmp_path, SHARED + peer.settings(tmp_path) + routes(peer)) as broker:
        send(broker, "orders.out", message(bytes(17 << 20)))
        awaited(lambda: dead_letters(broker), what="a dead letter")
        takes(broker, peer)


# -- other ways --------------------------------------------------------------------------------------------------------


def test_a_remote_queue(peer: LinkPeer, tmp_path: Path) -> None:
    remote = f'[links.far.remote-queues."far.orders"]\nqueue = "{peer.address("orders")}"\n'
    with running(tmp_path, SHARED + peer.settings(tmp_path) + remote) as broker:
        books = LinkBooks(Random(0))
        assert send_until_killed(bartleby(broker), "far.orders", books, 20)
        await_complete(peer, "orders", books)
        assert not books.doubled
        awaited(lambda: broker.queue("link.far")["messages"] == 0, what="nothing waits")


def test_the_next_url(peer: LinkPeer, tmp_path: Path) -> None:
    nobody = f"amqp://127.0.0.1:{free_port()}"
    settings = peer.settings(tmp_path).replace(f'"{peer.url}"', f'["{nobody}", "{peer.url}"]')
    with running(tmp_path, SHARED + settings + routes(peer)) as broker:
        takes(broker, peer)
        assert broker.get("links")["links"][0]["remote"] == peer.url


@pytest.mark.parametrize("peer", ["artemis"], indirect=True)
def test_topics(peer: LinkPeer, tmp_path: Path) -> None:
    """What is published here under a name is published there under the same."""
    topics = '[links.far.topics.news]\naddress = "news.#"\n'
    with running(tmp_path, SHARED + peer.settings(tmp_path) + topics) as broker, peer.client() as reader:
        reader.receiver("news", "topic")
        awaited(lambda: route(broker, "news")["state"] == "running", what="the route runs")
        with bartleby(broker).client() as client:
            client.put(client.sender("news", "topic"), message("extra"))
        assert [each.body for each in reader.take(1)] == ["extra"]
