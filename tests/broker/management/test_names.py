"""Names in their order, while queues and addresses come and go."""

from __future__ import annotations

from broker.management.names import Names
from tests.broker.engine.engine_harness import Bench


def test_they_are_in_order_whatever_comes_and_goes() -> None:
    bench = Bench()
    names = Names(bench.engine)
    bench.sent("b", b"1")
    assert (names.queues(), names.addresses()) == (["DLQ", "ExpiryQueue", "b"], ["DLQ", "ExpiryQueue", "b"])
    bench.sent("a", b"1")
    assert names.queues() == names.addresses() == ["DLQ", "ExpiryQueue", "a", "b"]
    assert names.queues() is names.queues(), "sorted once"
    bench.enter().delete_temporary(bench.engine.addresses["b"])
    bench.run()
    assert names.queues() == names.addresses() == ["DLQ", "ExpiryQueue", "a"]
