"""A shared subscription's queue goes with the last client that takes part."""

from __future__ import annotations

from tests.broker.engine.bench import Bench


def queues(bench: Bench) -> set[str]:
    """Those that were made here."""
    return set(bench.engine.queues) - {"DLQ", "ExpiryQueue"}


def test_the_queue_goes_with_the_last_client() -> None:
    bench = Bench()
    bench.take("$share.g.a")
    shared = bench.engine.shared
    for client in ("one", "two", "two"):
        shared.join("$share.g.a", client)
    shared.leave("$share.g.a", "two")
    assert "$share.g.a" in queues(bench)
    shared.leave("$share.g.a", "one")
    assert "$share.g.a" not in queues(bench)
    assert len(shared) == 0


def test_leaving_what_is_gone_is_harmless() -> None:
    bench = Bench()
    bench.engine.shared.leave("$share.g.a", "one")
    bench.engine.shared.join("$share.g.a", "one")
    bench.engine.shared.leave("$share.g.a", "one")
    assert queues(bench) == set()


def test_queues_in_which_nobody_takes_part_are_deleted_and_no_others() -> None:
    bench = Bench()
    for name in ("$share.g.a", "$share.g.b", "a"):
        bench.take(name)
    bench.engine.shared.join("$share.g.b", "one")
    bench.engine.shared.delete_abandoned("$share.")
    assert queues(bench) == {"$share.g.b", "a"}
