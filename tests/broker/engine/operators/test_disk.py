"""A disk that is too full: producers wait or are refused, consumers go on, and it heals by itself."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.errors import AddressFull
from broker.engine.queues.room import Disk
from tests.broker.engine.engine_harness import Bench, Producing
from tests.simulation.world import check_accounts, check_counters, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker, SimClient, configured
from tests.support.sim_files import SimFiles

CAPACITY = 10 << 20
PERIOD = 5_000


def watched(files: SimFiles, *settings: dict[str, object], **limits: Any) -> SimBroker:
    section = small().broker.model_copy(update={"max_disk_usage": 50, **limits})
    return SimBroker(small(*settings, broker=section), files=files)


def fill(files: SimFiles, percent: int) -> None:
    """Somebody else's file, of which the disk is so full."""
    files.put("/elsewhere", b"")
    files.put("/elsewhere", bytes(CAPACITY * percent // 100 - files.used()))


def is_read(client: SimClient) -> bool:
    return client.reading


@pytest.mark.parametrize(
    ("used", "free", "usage_max", "free_min", "full"),
    [
        (89, 11, 90, -1, False),
        (90, 10, 90, -1, True),
        (901, 99, 90, -1, True),
        (899, 101, 90, -1, True),  # 89.9 are 90, as df has it
        (0, 0, 90, -1, False),
        (100, 0, 100, -1, True),
        (100, 0, -1, -1, False),
        (0, 100, 0, -1, True),
        (99, 10, 90, 10, False),  # what must be free counts before what may be used
        (1, 9, 90, 10, True),
        (1, 0, -1, 0, False),
    ],
)
def test_the_limit(used: int, free: int, usage_max: int, free_min: int, full: bool) -> None:
    disk = Disk(usage_max=usage_max, free_min=free_min)
    disk.used_bytes, disk.free_bytes = used, free
    assert disk.exceeded is full


def test_the_limit_that_is_not_met_is_told() -> None:
    """49 % used says nothing to somebody whose limit is on free bytes."""
    files = SimFiles(capacity=CAPACITY)
    bench = Bench(running=watched(files, {"match": "f", "address-full-policy": "FAIL"}, min_disk_free=6 << 20))
    fill(files, 49)
    bench.broker.advance(PERIOD)
    free = CAPACITY - files.used()
    unmet = f"the disk has {free:,} bytes free, min-disk-free is 6291456"
    (told,) = bench.broker.reported("disk.full")
    assert (told["limit"], told["free"]) == (unmet, free)
    with pytest.raises(AddressFull, match=f"address f takes no messages: {unmet}"):
        bench.send("f", b"2")
    bench.run()


def test_block_stops_producers_until_a_look_finds_room_while_consumers_go_on() -> None:
    files = SimFiles(capacity=CAPACITY)
    broker = watched(files)
    producer, consumer = broker.connect(), broker.connect()
    producer.confirmed("/queue/a", b"1")
    assert is_read(producer)
    fill(files, 60)
    producer.confirmed("/queue/a", b"2")
    assert is_read(producer), "nobody has looked yet"
    broker.advance(PERIOD)
    (told,) = broker.reported("disk.full")
    assert told["percent"] == 60
    producer.confirmed("/queue/a", b"3")
    assert not is_read(producer)
    consumer.subscribe("/queue/a")
    for taken in consumer.messages():
        consumer.ack(taken)
    assert is_read(consumer)
    assert not is_read(producer), "the queue is empty, and the disk is as full as it was"
    fill(files, 40)
    broker.advance(PERIOD)
    assert len(broker.reported("disk.room")) == 1
    producer.confirmed("/queue/a", b"4")
    assert is_read(producer)
    check_accounts(broker)
    check_counters(broker)


def test_fail_and_drop_refuse_everything_durable_or_not() -> None:
    files = SimFiles(capacity=CAPACITY)
    bench = Bench(
        running=watched(
            files, {"match": "f", "address-full-policy": "FAIL"}, {"match": "d", "address-full-policy": "DROP"}
        )
    )
    bench.sent("f", b"1")
    bench.sent("d", b"1")
    fill(files, 50)
    bench.broker.advance(PERIOD)
    for durable in (True, False):
        with pytest.raises(AddressFull, match="no messages: 50 % of the disk is used, max-disk-usage is 50 %"):
            bench.send("f", b"2", durable=durable)
        bench.run()
        bench.sent("d", b"2", durable=durable)
    assert bench.bodies("f") == bench.bodies("d") == [b"1"]
    assert bench.engine.addresses["d"].dropped == 2
    fill(files, 49)
    bench.broker.advance(PERIOD)
    bench.sent("f", b"3")
    bench.sent("d", b"3")
    assert bench.bodies("f") == bench.bodies("d") == [b"1", b"3"]
    check_counters(bench.broker)


def test_dead_letters_and_moves_are_not_refused() -> None:
    files = SimFiles(capacity=CAPACITY)
    bench = Bench(
        running=watched(
            files, {"match": "a.#", "address-full-policy": "FAIL"}, {"match": "DLQ", "address-full-policy": "FAIL"}
        )
    )
    bench.sent("a.b", b"1")
    fill(files, 70)
    bench.broker.advance(PERIOD)
    taker = bench.take("a.b")
    bench.nack(taker, *taker.taken, requeue=False)
    assert bench.bodies("DLQ") == [b"1"]


def test_a_start_on_a_disk_that_is_too_full_and_a_limit_that_is_off() -> None:
    files = SimFiles(capacity=CAPACITY)
    fill(files, 95)
    broker = watched(files, disk_scan_period=-1)
    assert broker.engine.usage.disk.full
    fill(files, 10)
    broker.advance(10 * PERIOD)
    assert broker.engine.usage.disk.full, "nobody looks a second time"
    broker.files.crash()
    fill(files, 95)
    assert not watched(files, max_disk_usage=-1).engine.usage.disk.full


def test_the_last_figure_holds_while_the_disk_cannot_be_read() -> None:
    files = SimFiles(capacity=CAPACITY)
    broker = watched(files)
    fill(files, 60)
    broker.advance(PERIOD)
    files.unseen = True
    fill(files, 10)
    broker.advance(PERIOD)
    assert broker.engine.usage.disk.full
    assert len(broker.reported("disk.check_failed")) == 1
    files.unseen = False
    broker.advance(PERIOD)
    assert not broker.engine.usage.disk.full


def test_other_settings_do_not_let_producers_go_on_while_the_disk_is_too_full() -> None:
    files = SimFiles(capacity=CAPACITY)
    bench = Bench(running=watched(files))
    bench.sent("a", b"1")
    fill(files, 60)
    bench.broker.advance(PERIOD)
    producer = Producing()
    producer.blocked = bench.enter().producers.wait_for_room(bench.engine.addresses["a"], producer)
    assert producer.blocked
    assert bench.broker.reported("address.full.blocking") == [], "the address is not what is full"


@pytest.mark.parametrize("address", ["a", None])
def test_artemis_1732_amqp_senders_get_no_credit_while_the_disk_is_too_full(address: str | None) -> None:
    """ARTEMIS-1732: the anonymous relay's were given credit all the same."""
    files = SimFiles(capacity=CAPACITY)
    broker = watched(files)
    fill(files, 60)
    broker.advance(PERIOD)
    client = AmqpSim(broker)
    link = client.sender(address, "queue")
    assert link.credit == 0
    left = client.sender(address, "queue")
    client.detach(left)
    fill(files, 10)
    broker.advance(PERIOD)
    assert link.credit > 0
    assert left.credit == 0
    if address is not None:
        client.send(link, message("1"))
        assert broker.engine.queue("a").message_count == 1


def test_the_shipped_limit_is_that_of_artemis() -> None:
    section = configured().broker
    assert (section.max_disk_usage, section.min_disk_free, section.disk_scan_period) == (90, -1, 5_000)
