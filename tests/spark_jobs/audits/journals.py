"""Small journals for the audits: one generated with everything in it, one by the engine itself, with a story."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.audit.books import Books
from bench.audit.generate import generate
from broker.engine.model.message import Message
from broker.engine.moves.transfer import MessageRange
from store.manifest import MANIFEST
from store.retention import kept
from store.segment import segment_number
from tests.simulation.world import journal_directory, small
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_files import SimFiles

SEGMENT_BYTES: Final = 256 << 10
SMALL_SEGMENT_BYTES: Final = 8 << 10


def generated(directory: Path, *, seed: int = 1, records: int = 4_000) -> Books:
    """A journal with every way in and out, in half a dozen segments or so; returns the true totals."""
    return generate(directory / "journal", records, seed, SEGMENT_BYTES)


def dump(files: SimFiles, source: str, target: Path) -> Path:
    """A journal of a simulated disk, on the real one."""
    paths = [f"{source}/{name}" for name in files.list_dir(source) if segment_number(name)]
    paths += kept(files, source)
    days = sorted({path.rpartition("/")[0] for path in paths} - {source})
    for path in [*paths, *(f"{day}/{MANIFEST}" for day in days)]:
        place = target / path.removeprefix(f"{source}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(files.read(path))
    return target


def lived(directory: Path) -> SimBroker:
    """A broker's journal in `directory`/journal: deaths, expiries, and dead letters that were brought back.

    On `orders`, each with two attempts: three messages `poison` of which the first is brought back and dies again;
    order 0 is brought back and consumed, order 1 is brought back and waits, 2 is rejected, 3 consumed, 4 waits.
    On `lost`, without a dead-letter address, one is killed.  On `brief` three expire to the expiry address: one that
    was delivered before, two while a consumer with another filter is there; on `unkept` one expires and is removed.
    On `events` one message goes to two subscriptions, and dies on one of them.
    """
    broker = SimBroker(
        small(
            {"match": "orders", "max-delivery-attempts": 2, "redelivery-delay": 100},
            {"match": "lost", "dead-letter-address": ""},
            {"match": "unkept", "expiry-address": ""},
            {"match": "brief", "max-delivery-attempts": -1},
            segment_bytes=SMALL_SEGMENT_BYTES,
        )
    )
    sender, worker = broker.connect(login="shop", passcode="x"), broker.connect(**{"client-id": "worker"})
    _orders(broker, sender, worker)
    sender.confirmed("/queue/lost", b"lost")
    worker.subscribe("/queue/lost", id="l")
    worker.nack(worker.messages()[-1], requeue="false")
    _expire(broker, sender, worker)
    _events(sender, worker)
    worker.drop()
    broker.advance(3_600_000)
    _bring_back(broker)
    broker.shut_down()
    dump(broker.files, journal_directory(broker.config), directory / "journal")
    return broker


def copied(directory: Path, *, retained: bool = False) -> SimBroker:
    """A journal in `directory`/journal whose oldest segments are gone, unless they are `retained`: of what is older
    there are only copies.

    On `held` a consumer has four messages, of which two are past their time; on a topic's subscription `slow` one
    expired just now, which `quick` had long consumed.  On `busy` messages came and went meanwhile.
    """
    broker = SimBroker(small(segment_bytes=SMALL_SEGMENT_BYTES, retained=retained))
    sender, idle, busy = broker.connect(), broker.connect(), broker.connect()
    quick, slow = (broker.connect(**{"client-id": name}) for name in ("quick", "slow"))
    for name, client in (("quick", quick), ("slow", slow)):
        client.subscribe("/topic/both", id="t", ack="client", **{"durable-subscription-name": name})
    idle.subscribe("/queue/held", id="h", ack="client")
    busy.subscribe("/queue/busy", id="b", ack="auto")
    soon, late = str(broker.now + 5_000), str(broker.now + 5_000_000)
    sender.confirmed("/topic/both", b"both", expires=soon)
    quick.ack(quick.messages()[-1])
    for n in range(4):
        sender.confirmed("/queue/held", b"%d" % n, expires=soon if n % 2 else late)
    for n in range(100):
        sender.confirmed("/queue/busy", b"%d" % n + bytes(500), expires=late)
        busy.messages()
        broker.advance(100)
    slow.drop()
    broker.run()
    dump(broker.files, journal_directory(broker.config), directory / "journal")
    return broker


def hollow(directory: Path) -> Path:
    """A journal in `directory`/journal, whose path it returns, with a hole in its middle that the broker has made.

    In each of the two segments in front of it is a message on `held` that nobody takes; on `busy` messages came and
    went before, within and behind.
    One on `slow` came within and left behind.
    """
    config = small(segment_bytes=SMALL_SEGMENT_BYTES, retained=False)
    journal = config.journal.model_copy(update={"compact_min_files": 1_000})  # nothing is copied forward
    broker = SimBroker(config.model_copy(update={"journal": journal}))
    sender, busy, slow = broker.connect(), broker.connect(), broker.connect()
    busy.subscribe("/queue/busy", id="b", ack="auto")
    slow.subscribe("/queue/slow", id="s", ack="client")
    for n in range(60):
        if n in (0, 12):
            sender.confirmed("/queue/held", b"held")
        if n == 30:
            sender.confirmed("/queue/slow", b"slow")
        sender.confirmed("/queue/busy", b"%d" % n + bytes(500))
        busy.messages()
        broker.advance(100)
    slow.ack(slow.messages()[-1])
    broker.run()
    return dump(broker.files, journal_directory(config), directory / "journal")


def broken_off(directory: Path) -> SimBroker:
    """A journal in `directory`/journal: retention was on, and was turned off.  Behind the kept segments is a hole.

    While it was on, four messages came to `held`, two to `brief`, and two from `orders` died.  Within the hole two on
    `held` were consumed, one of the dead letters, and one on `brief`, past its time; a consumer has the other one.
    On `busy` messages came and went all the time.
    """
    broker = SimBroker(small(segment_bytes=SMALL_SEGMENT_BYTES))
    sender, worker = broker.connect(), broker.connect()
    worker.subscribe("/queue/orders", id="o")
    for n in range(4):
        sender.confirmed("/queue/held", b"%d" % n)
    for n in range(2):
        sender.confirmed("/queue/brief", b"%d" % n, expires=str(broker.now + 60_000))
        sender.confirmed("/queue/orders", b"%d" % n)
    for message in worker.messages():
        worker.nack(message, requeue="false")
    worker.drop()
    _pass(broker, 80)
    broker.shut_down()
    config = small(segment_bytes=SMALL_SEGMENT_BYTES, retained=False)
    broker = SimBroker(config, files=broker.files, now=broker.now + 1_000)
    holder = broker.connect()
    for queue in ("held", "brief", "DLQ"):
        holder.subscribe(f"/queue/{queue}", id=queue, ack="client-individual")
    first, second, *_ = messages = holder.messages()
    broker.advance(70_000)
    _pass(broker, 15)
    brief, dead = ([each for each in messages if each.headers["subscription"] == name] for name in ("brief", "DLQ"))
    for message in (first, second, brief[0], dead[0]):
        holder.ack(message)
    _pass(broker, 60)
    dump(broker.files, journal_directory(config), directory / "journal")
    return broker


def _pass(broker: SimBroker, number: int) -> None:
    """Messages come to `busy` and go."""
    sender, busy = broker.connect(), broker.connect()
    busy.subscribe("/queue/busy", id="b", ack="auto")
    for n in range(number):
        sender.confirmed("/queue/busy", b"%d" % n + bytes(500))
        busy.messages()
        broker.advance(100)
    for client in (sender, busy):
        client.drop()
    broker.run()


def _orders(broker: SimBroker, sender: SimClient, worker: SimClient) -> None:
    for n in range(3):
        sender.confirmed("/queue/orders", b"poison", **{"correlation-id": f"p{n % 2}", "JMSXGroupID": "g"})
    for n in range(5):
        sender.confirmed("/queue/orders", b"order %d" % n, **{"correlation-id": f"c{n}"})
    worker.subscribe("/queue/orders", id="o")
    refused = (b"poison", b"order 0", b"order 1")
    for delay in (100, 0):
        for message in worker.messages():
            if message.body in refused:
                worker.nack(message)
            elif message.body == b"order 2":
                worker.nack(message, requeue="false", reason="not with us")
            elif message.body == b"order 3":
                worker.ack(message)
        broker.advance(delay)
    worker.do("UNSUBSCRIBE", {"id": "o"})


def _expire(broker: SimBroker, sender: SimClient, worker: SimClient) -> None:
    expires = str(broker.now + 5_000)
    sender.confirmed("/queue/brief", b"seen", expires=expires)
    worker.subscribe("/queue/brief", id="b")
    worker.nack(worker.messages()[-1])
    worker.do("UNSUBSCRIBE", {"id": "b"})
    worker.messages()  # it had come again
    worker.subscribe("/queue/brief", id="b", selector="colour = 'red'")
    for n in range(2):
        sender.confirmed("/queue/brief", b"unseen %d" % n, expires=expires)
    sender.confirmed("/queue/unkept", b"unkept", expires=expires)
    broker.advance(40_000)


def _events(sender: SimClient, worker: SimClient) -> None:
    for name in ("x", "y"):
        headers = {"durable-subscription-name": name}
        worker.subscribe("/topic/events", id=name, ack="client-individual", **headers)
    sender.confirmed("/topic/events", b"event")
    first, second = worker.messages()
    worker.ack(first)
    worker.nack(second, requeue="false")


def _bring_back(broker: SimBroker) -> None:
    """Three dead letters go back; then one is consumed, and one dies again."""
    dead = {body: message.id for body, message in _on(broker, "DLQ")}
    for body in (b"poison", b"order 0", b"order 1"):
        broker.parts.tick.enter()
        step = broker.engine.messages.retry(broker.engine.queue("DLQ"), MessageRange(ids=(dead[body],)))
        assert step.moved == 1
        broker.run()
    worker = broker.connect(**{"client-id": "worker-2"})
    worker.subscribe("/queue/orders", id="o")
    for message in worker.messages():
        if message.body == b"order 0":
            worker.ack(message)
        elif message.body == b"poison":
            worker.nack(message, requeue="false")
    worker.drop()


def _on(broker: SimBroker, queue: str) -> list[tuple[bytes, Message]]:
    found = [(body_of(message), message) for message, _ in broker.engine.messages.browse(broker.engine.queue(queue))]
    found = [(body_of(message), message) for message, _ in broker.engine.messages.browse(broker.engine.queue(queue))]
    return sorted(found, key=lambda each: -each[1].id)
