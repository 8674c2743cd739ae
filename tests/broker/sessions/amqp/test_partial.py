"""Messages in several frames that have not come whole: charged, and limited for all connections together."""

from __future__ import annotations

from protocols.amqp.frames import frame
from protocols.amqp.performatives import Transfer
from protocols.amqp.sender import Sender
from tests.broker.sessions.amqp.harness import started
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker

#: All may have a quarter of it.
MEMORY = 40_000


def transfer(client: AmqpSim, link: Sender, payload: bytes, *, more: bool = False, aborted: bool = False) -> None:
    """One frame of a message: the first if `more` come, else the last."""
    id = link.session.next_delivery_id if more else None
    sent = Transfer(link.handle, id, b"tag" if more else None, 0, more=more, aborted=aborted)
    link.session.send_transfer(link, frame(link.session.channel, sent.encode() + payload), begins=more)
    client.say()
    link.session.next_delivery_id += more


def half(client: AmqpSim, nbytes: int) -> Sender:
    """A link on which half of a message has come."""
    link = client.sender("q", "queue")
    transfer(client, link, message("x" * nbytes)[:nbytes], more=True)
    return link


def test_half_a_message_is_charged_until_it_is_whole_aborted_or_gone() -> None:
    broker, client = started()
    usage = broker.engine.usage
    whole, aborted, lost, kept = (half(client, 5000) for _ in range(4))
    assert (usage.bytes, usage.messages) == (20_000, 0)
    transfer(client, whole, message("x" * 5000)[5000:])
    assert usage.bytes - broker.engine.addresses["q"].size_bytes == 15_000
    transfer(client, aborted, b"", aborted=True)
    client.detach(lost)
    assert usage.bytes - broker.engine.addresses["q"].size_bytes == 5000
    assert kept.session.sends
    client.drop()
    broker.run()
    assert usage.bytes == broker.engine.addresses["q"].size_bytes
    assert broker.engine.partial.bytes == 0


def test_beyond_a_part_of_the_memory_who_holds_more_than_its_share_must_end() -> None:
    """Limit: a quarter of the memory, and beyond it the same for each that holds something."""
    broker = SimBroker(engine_limits={"global_size_max": MEMORY})
    greedy, modest, late = (AmqpSim(broker, name) for name in ("greedy", "modest", "late"))
    half(greedy, MEMORY // 4)
    half(modest, 1000)
    assert [each.closed for each in (greedy, modest)] == [False, False], "it is told when it sends more"
    half(late, MEMORY // 12)
    assert not late.closed
    half(greedy, 1)
    assert greedy.closing.condition == "amqp:resource-limit-exceeded"
    assert [each.closed for each in (modest, late)] == [False, False]
    assert broker.engine.partial.bytes == MEMORY // 12 + 1000
    half(modest, MEMORY // 12)
    assert not modest.closed, "there is room again"


def test_a_broker_without_a_limit_of_memory_sets_none() -> None:
    broker = SimBroker()
    broker.engine.usage.bytes_max = -1
    client = AmqpSim(broker)
    half(client, 90_000)
    assert not client.closed
    assert broker.engine.partial.bytes == 90_000
