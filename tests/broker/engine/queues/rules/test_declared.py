"""Attributes of queues that the configuration has: at the start, at a reload, beside what an operator sets."""

from __future__ import annotations

from broker.config import Config
from broker.config.addresses import AddressSection, Queue
from broker.daemon.wiring import declare, settings_table
from broker.engine.delivery.redelivery import CLOSED
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.rules.queues import put
from tests.simulation.world import small


def configured(*settings: dict[str, object], **attributes: object) -> Config:
    """One queue with these attributes."""
    values = {name.replace("_", "-"): value for name, value in attributes.items()}
    queue = Queue.model_validate({"routing-type": "ANYCAST", **values})
    return small(*settings, addresses={"q": AddressSection(queues={"q": queue})})


def started(config: Config) -> Bench:
    """A broker with this configuration."""
    return Bench(addresses=config.addresses)


def reload(bench: Bench, config: Config) -> None:
    """What the daemon does with a changed configuration."""
    engine = bench.enter()
    engine.configuration.change_settings(settings_table(config))
    declare(engine, config)
    bench.run()


def test_a_reload_resizes_a_ring() -> None:
    bench = started(configured(ring_size=5))
    put(bench, "q", *[b"%d" % n for n in range(5)])
    reload(bench, configured(ring_size=3))
    assert len(bench.bodies("q")) == 5, "not at once"
    put(bench, "q", b"5")
    assert bench.bodies("q") == [b"1", b"2", b"3", b"4", b"5"]
    reload(bench, configured())
    put(bench, "q", b"6")
    assert len(bench.bodies("q")) == 6
    assert bench.left("q") == {"evicted": 1}


def test_a_queue_that_does_not_say_follows_the_settings() -> None:
    bench = started(configured())
    reload(bench, configured({"match": "q", "default-ring-size": 2}))
    put(bench, "q", b"1", b"2", b"3")
    assert bench.bodies("q") == [b"2", b"3"]


def test_an_operators_change_lasts_until_the_reload_and_whether_it_is_enabled_stays() -> None:
    bench = started(configured(ring_size=5))
    bench.change("q", ring_size=2, enabled=False)
    reload(bench, configured(ring_size=5))
    attributes = bench.queue("q").attributes
    assert (attributes.ring_size, attributes.enabled) == (5, False)
    reload(bench, configured(ring_size=5, enabled=True))
    assert bench.queue("q").attributes.enabled


def test_a_plain_queue_becomes_a_last_value_queue_and_back() -> None:
    bench = started(configured())
    for key in ("a", "b", "a"):
        put(bench, "q", key.encode(), key=key)
    put(bench, "q", b"plain")
    reload(bench, configured(last_value=True))
    assert bench.bodies("q") == [b"b", b"a", b"plain"]
    put(bench, "q", b"b2", key="b")
    assert bench.bodies("q") == [b"a", b"plain", b"b2"]
    reload(bench, configured())
    put(bench, "q", b"b3", key="b")
    assert bench.bodies("q") == [b"a", b"plain", b"b2", b"b3"]
    assert bench.left("q") == {"replaced": 2}


def test_after_a_restart_the_configuration_holds() -> None:
    bench = started(configured(ring_size=5, last_value=True))
    assert bench.queue("q").attributes.last_value
    bench.change("q", ring_size=2)
    bench = bench.restart()
    assert bench.queue("q").attributes.ring_size == 5


def test_a_queue_that_begins_to_purge_is_purged_when_it_has_no_consumers() -> None:
    bench = started(configured())
    taker = bench.take("q", window=0)
    put(bench, "q", b"1")
    reload(bench, configured(purge_on_no_consumers=True))
    put(bench, "q", b"2")
    assert bench.bodies("q") == [b"1", b"2"]
    bench.close(taker, CLOSED)
    assert bench.bodies("q") == []
    reload(bench, configured())
    put(bench, "q", b"3")
    reload(bench, configured(ring_size=7, purge_on_no_consumers=True))
    assert (bench.bodies("q"), bench.queue("q").left[RemovalReason.PURGED]) == ([], 3)
    assert bench.restart().bodies("q") == []
    bench = started(configured())
    put(bench, "q", b"3")
    assert bench.bodies("q") == [b"3"]
