"""Messages on their way: the tables walked exhaustively, and sessions compared with a naive model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.codes import PacketType, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.inflight import (
    PACKET_ID_MAX,
    RECEIVED,
    SENT,
    Acknowledged,
    Incoming,
    Outgoing,
    PacketIds,
    Received,
    Sent,
)

P = PacketType


def parts(outcome: Acknowledged[str]) -> tuple[list[str], list[int], list[int]]:
    return outcome.settled, outcome.release, outcome.unknown


def in_state(state: Sent, packet_id: int = 1) -> Outgoing[str]:
    """A message that was sent and got so far."""
    outgoing: Outgoing[str] = Outgoing(PacketIds())
    outgoing.restore(packet_id, state, None if state is Sent.RELEASED else "m")
    return outgoing


@pytest.mark.parametrize(
    ("state", "packet", "failed"), list(product(Sent, [P.PUBACK, P.PUBREC, P.PUBCOMP, P.PUBREL], [False, True]))
)
def test_every_acknowledgement_in_every_state(state: Sent, packet: PacketType, failed: bool) -> None:
    """4.3.2, 4.3.3: what is absent is a Protocol Error."""
    outgoing = in_state(state)
    steps = SENT.get((packet, failed), {})
    if state not in steps:
        with pytest.raises(MqttError, match="for packet identifier 1") as caught:
            outgoing.acknowledge(packet, [1], failed=failed)
        assert caught.value.reason == ReasonCode.PROTOCOL_ERROR
        assert list(outgoing) == list(in_state(state))
        return
    following = steps[state]
    outcome = outgoing.acknowledge(packet, [1], failed=failed)
    assert outcome.settled == ([] if state is Sent.RELEASED else ["m"])
    assert outcome.release == ([1] if following is Sent.RELEASED else [])
    assert [one for _, one, _ in outgoing] == ([] if following is None else [following])


def test_the_table_of_what_was_sent() -> None:
    """QoS 1 ends with PUBACK; QoS 2 with PUBCOMP, or with a PUBREC of failure."""
    done = {(state, *key) for key, steps in SENT.items() for state, following in steps.items() if following is None}
    assert done == {
        (Sent.AT_LEAST_ONCE, P.PUBACK, False),
        (Sent.AT_LEAST_ONCE, P.PUBACK, True),
        (Sent.EXACTLY_ONCE, P.PUBREC, True),
        (Sent.RELEASED, P.PUBCOMP, False),
        (Sent.RELEASED, P.PUBCOMP, True),
    }


def test_a_run_of_messages_in_several_states() -> None:
    outgoing: Outgoing[str] = Outgoing(PacketIds())
    assert outgoing.send(["a", "b"], 2) == [1, 2]
    outgoing.acknowledge(P.PUBREC, [2])
    assert outgoing.send(["c"], 2) == [3]
    assert parts(outgoing.acknowledge(P.PUBREC, [1, 2, 9, 3, 1])) == (["a", "c"], [1, 2, 3, 1], [9])
    assert parts(outgoing.acknowledge(P.PUBCOMP, [3, 1, 3])) == ([], [], [3])
    assert [one for one, _, _ in outgoing] == [2]


def test_a_message_of_qos_1() -> None:
    outgoing: Outgoing[str] = Outgoing(PacketIds())
    assert outgoing.send(["a", "b"], 1) == [1, 2]
    assert len(outgoing) == 2
    assert parts(outgoing.acknowledge(P.PUBACK, [2, 9, 1])) == (["b", "a"], [], [9])
    assert len(outgoing) == 0


def test_a_message_of_qos_2() -> None:
    """MQTT-4.3.3-4, MQTT-4.3.3-5: PUBREL is sent, and the packet id is used until PUBCOMP."""
    outgoing: Outgoing[str] = Outgoing(PacketIds())
    assert outgoing.send(["a"], 2) == [1]
    assert parts(outgoing.acknowledge(P.PUBREC, [1])) == (["a"], [1], [])
    assert list(outgoing) == [(1, Sent.RELEASED, None)]
    assert parts(outgoing.acknowledge(P.PUBREC, [1])) == ([], [1], [])
    assert parts(outgoing.acknowledge(P.PUBCOMP, [1])) == ([], [], [])
    assert list(outgoing) == []
    assert parts(outgoing.acknowledge(P.PUBREC, [1])) == ([], [], [1])


def test_the_quota() -> None:
    """MQTT-4.9.0-1, MQTT-4.9.0-2: PUBACK, PUBCOMP and a failing PUBREC give it back, and never more than all of it."""
    outgoing: Outgoing[int] = Outgoing(PacketIds())
    outgoing.connected(3)
    assert outgoing.send([1], 1) + outgoing.send([2, 3], 2) == [1, 2, 3]
    assert outgoing.quota == 0
    with pytest.raises(AssertionError):
        outgoing.send([4], 1)
    outgoing.acknowledge(P.PUBREC, [2])
    assert outgoing.quota == 0
    outgoing.acknowledge(P.PUBREC, [3], failed=True)
    assert outgoing.quota == 1
    outgoing.acknowledge(P.PUBCOMP, [2])
    outgoing.acknowledge(P.PUBACK, [1], failed=True)
    assert outgoing.quota == 3
    outgoing.acknowledge(P.PUBACK, [1])
    assert outgoing.quota == 3


def test_sending_again() -> None:
    """MQTT-4.4.0-1, MQTT-4.6.0-1: in order, PUBLISH or PUBREL, as far as the new quota goes."""
    outgoing: Outgoing[str] = Outgoing(PacketIds())
    outgoing.send(["a", "b"], 2)
    outgoing.send(["c", "d"], 1)
    outgoing.acknowledge(P.PUBREC, [2])
    outgoing.connected(2)
    assert outgoing.quota == 0
    assert outgoing.resend() == [(1, Sent.EXACTLY_ONCE, "a"), (2, Sent.RELEASED, None)]
    assert outgoing.resend() == []
    outgoing.acknowledge(P.PUBCOMP, [2])
    assert outgoing.resend() == [(3, Sent.AT_LEAST_ONCE, "c")]
    outgoing.acknowledge(P.PUBACK, [3])
    assert outgoing.resend() == [(4, Sent.AT_LEAST_ONCE, "d")]
    assert outgoing.quota == 0
    outgoing.acknowledge(P.PUBACK, [4])
    assert outgoing.quota == 1
    outgoing.acknowledge(P.PUBREC, [1])
    outgoing.acknowledge(P.PUBCOMP, [1])
    assert outgoing.quota == 2


def test_released_messages_count_in_the_quota_of_the_next_connection() -> None:
    """MQTT-3.3.4-9: sent and not completed are never more than Receive Maximum, over connections too."""
    outgoing: Outgoing[int] = Outgoing(PacketIds())
    outgoing.connected(3)
    outgoing.send([1, 2, 3], 2)
    outgoing.acknowledge(P.PUBREC, [1, 2, 3])
    outgoing.connected(3)
    assert [packet_id for packet_id, _, _ in outgoing.resend()] == [1, 2, 3]
    assert outgoing.quota == 0
    outgoing.acknowledge(P.PUBCOMP, [2])
    assert outgoing.quota == 1
    outgoing.send([4], 2)
    outgoing.connected(1)  # takes less from now on; what it has is answered, and so makes room
    assert [packet_id for packet_id, _, _ in outgoing.resend()] == [1, 3]
    assert outgoing.quota == 0
    outgoing.acknowledge(P.PUBCOMP, [1])
    assert outgoing.resend() == []
    outgoing.acknowledge(P.PUBCOMP, [3])
    assert outgoing.resend() == [(4, Sent.EXACTLY_ONCE, 4)]


def test_messages_acknowledged_before_they_are_sent_again() -> None:
    outgoing: Outgoing[str] = Outgoing(PacketIds())
    outgoing.send(["a", "b"], 1)
    outgoing.connected(1)
    outgoing.acknowledge(P.PUBACK, [1])
    assert outgoing.resend() == [(2, Sent.AT_LEAST_ONCE, "b")]


def test_a_session_is_restored() -> None:
    ids = PacketIds()
    outgoing: Outgoing[str] = Outgoing(ids)
    outgoing.restore(7, Sent.EXACTLY_ONCE, "a")
    outgoing.restore(3, Sent.RELEASED, None)
    for wrong in (7, 0, PACKET_ID_MAX + 1):
        with pytest.raises(ValueError, match="is in use or none"):
            outgoing.restore(wrong, Sent.RELEASED, None)
    outgoing.connected()
    assert outgoing.resend() == [(7, Sent.EXACTLY_ONCE, "a"), (3, Sent.RELEASED, None)]
    assert ids.allocate(8) == [1, 2, 4, 5, 6, 8, 9, 10]


# -- packet identifiers ------------------------------------------------------------------------------------------------


def test_packet_ids_go_round() -> None:
    """MQTT-2.2.1-3, MQTT-2.2.1-4: never 0, never one in use."""
    ids = PacketIds()
    assert ids.allocate(PACKET_ID_MAX) == list(range(1, PACKET_ID_MAX + 1))
    with pytest.raises(ValueError, match="1 packet identifiers wanted, 0 are free"):
        ids.allocate(1)
    ids.release([5, PACKET_ID_MAX, 4])
    assert ids.allocate(2) == [4, 5]
    assert ids.allocate(1) == [PACKET_ID_MAX]
    ids.release(range(1, 4))
    assert ids.allocate(3) == [1, 2, 3]
    assert len(ids) == PACKET_ID_MAX


def test_packet_ids_at_the_turn() -> None:
    ids = PacketIds()
    ids.allocate(PACKET_ID_MAX - 1)
    ids.release(range(1, PACKET_ID_MAX))
    assert ids.allocate(3) == [PACKET_ID_MAX, 1, 2]
    ids = PacketIds()
    ids.release(ids.allocate(PACKET_ID_MAX))
    assert ids.allocate(1) == [1]


@given(st.lists(st.one_of(st.integers(1, 30_000), st.integers(-30_000, -1)), max_size=20))
def test_packet_ids_are_never_used_twice(steps: list[int]) -> None:
    """Positive: take so many; negative: give so many of the oldest back."""
    ids = PacketIds()
    used: list[int] = []
    for step in steps:
        if step > 0:
            taken = ids.allocate(min(step, PACKET_ID_MAX - len(used)))
            used += taken
        else:
            ids.release(used[:-step])
            del used[:-step]
        assert len(set(used)) == len(used) == len(ids)
        assert not used or 1 <= min(used) <= max(used) <= PACKET_ID_MAX


# -- received ----------------------------------------------------------------------------------------------------------


def received(state: Received | None) -> Incoming:
    """A message of QoS 2 that was received and got so far."""
    incoming = Incoming()
    if state is not None:
        incoming.receive(2, [1])
    if state is Received.COMPLETING:
        incoming.release([1])
    return incoming


@pytest.mark.parametrize(
    ("state", "packet"), list(product([None, *Received], [P.PUBLISH, P.PUBREC, P.PUBREL, P.PUBCOMP]))
)
def test_every_packet_in_every_state_of_the_receiver(state: Received | None, packet: PacketType) -> None:
    """4.3.3: what is absent is a fault, but for a PUBREL of something unknown, which gets an answer."""
    incoming = received(state)
    steps: dict[PacketType, Callable[[], object]] = {
        P.PUBLISH: lambda: incoming.receive(2, [1]),
        P.PUBREC: lambda: incoming.refused([1]),
        P.PUBREL: lambda: incoming.release([1]),
        P.PUBCOMP: lambda: incoming.completed([1]),
    }
    if state is None and packet is P.PUBREL:
        assert steps[packet]() == [1]
        return
    if packet not in RECEIVED[state]:
        with pytest.raises(MqttError, match=f"{packet.name} for packet identifier 1"):
            steps[packet]()
        return
    outcome = steps[packet]()
    assert outcome == ([0] if packet is P.PUBLISH and state else [] if packet in (P.PUBLISH, P.PUBREL) else None)
    assert len(incoming) == (0 if RECEIVED[state][packet] is None else 1)


def test_a_repeated_message_is_known_until_it_is_released() -> None:
    """MQTT-4.3.3-10, MQTT-4.3.3-12; the packet id of a QoS 1 message is another matter (MQTT-4.3.2-5)."""
    incoming = Incoming()
    assert incoming.receive(2, [1, 2, 1]) == [2]
    assert incoming.receive(1, [1, 1]) == []
    assert list(incoming) == [1, 2]
    assert incoming.release([2, 3]) == [3]
    incoming.completed([2])
    assert incoming.receive(2, [2, 1]) == [1]
    assert list(incoming) == [1, 2]


def test_a_refused_message_is_forgotten() -> None:
    """MQTT-4.3.3-9."""
    incoming = Incoming()
    incoming.receive(2, [1])
    incoming.refused([1])
    assert incoming.receive(2, [1]) == []


def test_receive_maximum() -> None:
    """MQTT-3.3.4-7: as many as were announced, over both, and one more; repeated ones do not count."""
    incoming = Incoming(3)
    incoming.receive(1, [1])
    incoming.receive(2, [2, 3])
    assert incoming.receive(2, [2, 3]) == [0, 1]
    for qos in (1, 2):
        other = Incoming(3)
        other.receive(1, [1, 2])
        other.receive(2, [3])
        with pytest.raises(MqttError, match="more than 3 messages") as caught:
            other.receive(qos, [4])
        assert caught.value.reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    incoming.acknowledged(1)
    incoming.receive(1, [4])
    incoming.release([2])
    with pytest.raises(MqttError):
        incoming.receive(1, [5])


def test_messages_beyond_the_maximum_are_not_received() -> None:
    """Sent again on another connection, it is new, and no repetition that would be acknowledged and forgotten."""
    incoming = Incoming(2)
    incoming.receive(2, [1])
    with pytest.raises(MqttError, match="more than 2 messages"):
        incoming.receive(2, [2, 3])
    incoming.release([1])
    with pytest.raises(MqttError, match="packet identifier 1"):
        incoming.receive(2, [2, 1])
    assert list(incoming) == [1]
    incoming.connected(2)
    assert incoming.receive(2, [2, 3]) == []


def test_the_receive_maximum_is_a_connection_s() -> None:
    """4.9: what an earlier connection has left does not use up the quota of this one."""
    incoming = Incoming(2)
    incoming.receive(2, [1, 2])
    incoming.connected(2)
    assert incoming.receive(2, [1]) == [0]
    assert incoming.receive(2, [3, 4]) == []
    with pytest.raises(MqttError, match="more than 2 messages"):
        incoming.receive(1, [5])
    incoming.release([1, 2])
    incoming.completed([1, 2])
    with pytest.raises(MqttError, match="more than 2 messages"):
        incoming.receive(1, [5])
    incoming.release([3])
    incoming.completed([3])
    incoming.receive(1, [5])


def test_a_new_connection() -> None:
    """4.9: the maximum is another; what was received with QoS 2 is still known, also after a restart."""
    incoming = Incoming(2)
    incoming.receive(1, [1])
    incoming.receive(2, [2])
    incoming.connected(3)
    assert len(incoming) == 1
    restored = Incoming()
    restored.restore(list(incoming))
    assert restored.receive(2, [2]) == [0]


def test_completed_is_said_once() -> None:
    incoming = received(Received.COMPLETING)
    assert incoming.release([1]) == []
    incoming.completed([1])
    assert incoming.release([1]) == [1]
