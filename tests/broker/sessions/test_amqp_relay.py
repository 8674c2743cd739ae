"""The anonymous relay: each message says where it goes."""

from __future__ import annotations

import pytest

from protocols.amqp.performatives import Accepted, Properties, Rejected, Source, Target
from tests.broker.sessions.test_amqp import started
from tests.simulation.world import held
from tests.support.sim_amqp import message


def test_the_anonymous_relay_goes_where_each_message_says() -> None:
    broker, client = started()
    link = client.sender(None)
    outcomes = client.send(
        link,
        message("1", properties=Properties(to="queue://a")),
        message("2"),
        message("3", properties=Properties(to="queue://b")),
        message("4", properties=Properties(to="queue://b")),
    )
    states = {outcome.context: outcome.state for outcome in outcomes}
    assert [type(states[n]) for n in range(4)] == [Accepted, Rejected, Accepted, Accepted]
    rejected = states[1]
    assert isinstance(rejected, Rejected)
    assert rejected.error is not None
    assert (rejected.error.condition, rejected.error.info) == ("amqp:invalid-field", {"delivery-tag": b"\0\0\0\1"})
    assert (len(held(broker, "a")), len(held(broker, "b"))) == (1, 2)


@pytest.mark.parametrize(
    ("outcomes", "settled", "ends"),
    [
        ((), False, False),
        (("amqp:accepted:list", "amqp:rejected:list"), False, False),
        (("amqp:accepted:list",), False, True),
        (("amqp:accepted:list", "amqp:rejected:list"), True, True),
    ],
)
def test_the_relay_ends_a_link_that_could_not_hear_of_a_rejection(
    outcomes: tuple[str, ...], settled: bool, ends: bool
) -> None:
    """What came before the message is kept, what came after it is not."""
    broker, client = started()
    link = client.ses.new_sender("relay")
    link.send_attach(source=Source("me", outcomes=outcomes), target=Target(None))
    client.say()
    payloads = [message(str(n), properties=Properties(to=to)) for n, to in enumerate(["queue://a", "a.#", "queue://b"])]
    client.send(link, *payloads, settled=settled)
    if ends:
        error = client.refused(link)
        assert error.info is not None
        assert error.info["delivery-tag"] == b"\0\0\0\1"
    assert len(held(broker, "a")) == 1
    assert ("b" in broker.engine.router.queues) is not ends
