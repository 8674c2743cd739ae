"""What finding a destination has created, when nothing comes of the send."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.errors import DiskFull
from broker.engine.model.message import Message, RoutingType
from broker.engine.publish.send import Send
from tests.broker.engine.engine_harness import Bench, fill
from tests.simulation.world import small
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import SimFiles


def found(bench: Bench, name: str, *, size: int = 1, **more: Any) -> Send:
    """A send whose destination has been found, and created if it was missing; the tick stays open."""
    engine = bench.enter()
    header = bench.header(name, routing_type=RoutingType.ANYCAST, **more)
    send = Send(name, RoutingType.ANYCAST, header, access=UNRESTRICTED)
    send.messages = [Message(header, b"", b"x" * size)]
    engine.producers.find(send)
    return send


def there(bench: Bench, name: str) -> tuple[bool, bool]:
    """Whether an address and its queue are there."""
    return name in bench.engine.addresses, name in bench.engine.queues


@pytest.mark.parametrize("late", [False, True], ids=["rolled back", "timed out"])
def test_a_rolled_back_send_leaves_no_address(late: bool) -> None:
    bench = Bench(engine_limits={"addresses_max": 30})
    for number in range(100):
        tx = bench.begin()
        send = found(bench, f"a{number}")
        tx.send([send], send.messages)
        assert there(bench, f"a{number}") == (True, True)
        if late:
            bench.run()
            bench.broker.advance(300_000)
        else:
            bench.roll_back(tx)
        assert there(bench, f"a{number}") == (False, False)
    after = bench.restart()
    assert not [name for name in after.engine.addresses if name.startswith("a")]


def test_resources_that_others_use_by_then_stay() -> None:
    bench = Bench()
    tx = bench.begin()
    sends = [found(bench, name) for name in ("sent", "consumed", "committed")]
    tx.send(sends, [send.messages[0] for send in sends])
    other = bench.begin()
    again = found(bench, "committed")
    other.send([again], again.messages)
    bench.sent("sent", b"1")
    bench.take("consumed")
    bench.roll_back(tx)
    assert there(bench, "sent")[0]
    assert there(bench, "consumed")[0]
    bench.commit(other)
    assert there(bench, "committed") == (True, True)
    assert bench.bodies("committed") == [b"x"]


def test_resources_that_existed_before_stay(bench: Bench) -> None:
    bench.declare("a")
    tx = bench.begin()
    send = found(bench, "a")
    tx.send([send], send.messages)
    bench.roll_back(tx)
    assert there(bench, "a") == (True, True)


def test_a_refused_send_leaves_no_address() -> None:
    bench = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=96 << 10)))
    fill(bench, "full")
    send = found(bench, "a", size=4000)
    result = bench.engine.producers.publish([send])
    bench.run()
    assert [type(refusal.error) for refusal in result.refusals] == [DiskFull]
    assert there(bench, "a") == (False, False)


def test_a_refused_commit_leaves_no_address_once_it_is_rolled_back() -> None:
    bench = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=96 << 10)))
    fill(bench, "full")
    tx = bench.begin()
    send = found(bench, "a", size=4000)
    tx.send([send], send.messages)
    with pytest.raises(DiskFull):
        bench.engine.transactions.commit(tx)
    bench.roll_back(tx)
    assert there(bench, "a") == (False, False)


def test_a_send_that_is_given_up_leaves_no_address(bench: Bench) -> None:
    send = found(bench, "a")
    bench.engine.producers.give_up([send])
    bench.run()
    assert there(bench, "a") == (False, False)
    send = found(bench, "a")
    bench.engine.producers.publish([send]).check()
    bench.engine.producers.give_up([send])
    bench.run()
    assert bench.bodies("a") == [b"x"]
