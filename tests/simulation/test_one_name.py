"""Random clients of three protocols whose subscriptions have one name, against a naive model of their queue.

The queue belongs to nobody, to a client of STOMP or AMQP, or to a session of MQTT, which may be away.  Only its holder
gets its messages, nobody else may join or delete it, and it ends only with its holder's consent, or with its session.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final

import pytest

from tests.simulation.world import SCALE
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import SimClient

SEEDS: Final = range(40 * SCALE)
STEPS: Final = 60

QUEUE: Final = "c.a.b"
DURABLE: Final[dict[str, Any]] = {"durable": 2, "expiry_policy": "never"}


class Holder(Enum):
    """Who gets what is on the queue."""

    NOBODY = "nobody"
    STOMP = "stomp"
    AMQP = "amqp"
    SESSION = "session"
    AWAY = "away"  # a session whose client is


@dataclass(slots=True)
class Session:
    """A session: its client while that is here, whether it outlives the connection and ever did, its subscription."""

    client: MqttClient | None
    lasting: bool
    stored: bool
    qos: int | None = None


class Run:
    """One broker, and what must be on its queue."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sim = SimWorld()
        self.sent = 0
        self.waiting: list[bytes] | None = None  # on the queue; None: there is none
        self.durable = False
        self.holder = Holder.NOBODY
        self.stomp: SimClient | None = None
        self.amqp: AmqpSim | None = None
        self.session: Session | None = None

    # -- the queue -------------------------------------------------------------------------------------------------

    def make(self, *, durable: bool) -> None:
        if self.waiting is None:
            self.waiting, self.durable = [], durable

    def gone(self) -> None:
        self.waiting, self.holder = None, Holder.NOBODY

    def check(self) -> None:
        queue = self.sim.broker.engine.queues.get(QUEUE)
        assert (queue is None) == (self.waiting is None)
        if queue is not None:
            assert self.waiting is not None
            assert (queue.message_count, queue.durable) == (len(self.waiting), self.durable)

    def drain(self) -> None:
        """The holder gets all that is waiting, in order."""
        got: list[object] | None = None
        if self.holder is Holder.STOMP:
            assert self.stomp is not None
            messages = self.stomp.messages()
            got = [message.body for message in messages]
            for message in messages:
                self.stomp.ack(message)
        elif self.holder is Holder.AMQP:
            assert self.amqp is not None
            deliveries = self.amqp.take()
            got = [str(delivery.body).encode() for delivery in deliveries]
            self.amqp.settle(*deliveries)
        elif self.holder is Holder.SESSION:
            assert self.session is not None
            assert self.session.client is not None
            got = [*self.session.client.payloads()]
        if got is not None:
            assert got == self.waiting
            self.waiting = []

    def publish(self) -> None:
        self.sent += 1
        body = b"%d" % self.sent
        self.sim.broker.connect().confirmed("/topic/a.b", body)
        if self.waiting is not None:
            self.waiting.append(body)
        self.drain()

    # -- STOMP and AMQP --------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        client = self.sim.broker.connect(**{"client-id": "c"})
        client.subscribe("/topic/a.b", **{"durable-subscription-name": "a.b"})
        self._joined(Holder.STOMP, bool(client.take("ERROR")))
        if self.holder is Holder.STOMP and self.stomp is None:
            self.stomp = client
            self.drain()
        else:
            client.drop()

    def attach(self) -> None:
        client = AmqpSim(self.sim.broker, "c")
        link = client.receiver("a.b", "topic", name="a.b", **DURABLE)
        refused = link in client.ends
        self._joined(Holder.AMQP, refused)
        if refused:
            client.drop()
            return
        if self.amqp is not None:  # of the same container: it takes the link over
            assert [error and error.condition for error in self.amqp.ends.values()] == ["amqp:link:stolen"]
            self.amqp.drop()
        self.amqp = client
        self.drain()

    def _joined(self, kind: Holder, refused: bool) -> None:
        same = kind is self.holder and kind is not Holder.SESSION  # STOMP shares with another connection
        fits = self.waiting is None or self.durable
        assert refused == (not fits or not (self.holder is Holder.NOBODY or same))
        if not refused:
            self.make(durable=True)
            self.holder = kind

    def leave(self) -> None:
        for client in (self.stomp, self.amqp):
            if client is not None:
                client.drop()
                self.holder = Holder.NOBODY
        self.stomp = self.amqp = None

    def close(self) -> None:
        """The AMQP client ends its subscription."""
        if self.amqp is not None:
            [link] = self.amqp.ses.links
            self.amqp.detach(link)
            self.amqp.drop()
            self.amqp = None
            self.gone()

    def unsubscribe(self) -> None:
        """A STOMP client ends the subscription without being subscribed."""
        client = self.sim.broker.connect(**{"client-id": "c"})
        client.do("UNSUBSCRIBE", {"durable-subscription-name": "a.b", "receipt": "r"})
        self._ended(refused=bool(client.take("ERROR")))
        client.drop()

    def look_up(self) -> None:
        """An AMQP client ends it without being attached."""
        client = AmqpSim(self.sim.broker, "c")
        link = client.receiver(None, name="a.b", source=None, credit=0)
        refused = link in client.ends
        if not refused:
            client.detach(link)
        self._ended(refused=refused)
        client.drop()

    def _ended(self, *, refused: bool) -> None:
        assert refused == (self.waiting is None or self.holder is not Holder.NOBODY)
        if not refused:
            self.gone()

    # -- MQTT ------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        session = self.session
        if session is not None and session.client is not None:
            return
        clean, lasting = self.random.random() < 0.4, self.random.random() < 0.7
        client = self.sim.connect("c", clean=clean, expiry=FOR_EVER if lasting else 0)
        if clean or session is None:
            self._session_ended()
            self.session = Session(client, lasting, lasting)
        else:
            session.client, session.lasting, session.stored = client, lasting, True
            if self.holder is Holder.AWAY:
                self.holder = Holder.SESSION
            elif session.qos is not None:
                self._taken_over(session.qos)
        self.drain()

    def _taken_over(self, qos: int) -> bool:
        assert self.session is not None
        if self.holder is not Holder.NOBODY:
            return False
        self.make(durable=qos > 0 and self.session.lasting)
        self.holder = Holder.SESSION
        return True

    def subscribe_session(self) -> None:
        session = self.session
        if session is None or session.client is None:
            return
        qos = self.random.choice([0, 1])
        [code] = session.client.subscribe("a/b", qos=qos)
        if self.holder is not Holder.SESSION:
            taken = self._taken_over(qos)
            assert code == (qos if taken else 0x83)
            if taken:
                session.qos = qos
        else:
            assert code == qos
            if (session.qos, qos, self.durable) == (0, 1, False):  # another queue
                self.durable = session.lasting
            session.qos = qos
        self.drain()

    def unsubscribe_session(self) -> None:
        session = self.session
        if session is not None and session.client is not None:
            session.client.unsubscribe("a/b")
            session.qos = None
            if self.holder is Holder.SESSION:
                self.gone()

    def disconnect(self) -> None:
        if self.session is not None and self.session.client is not None:
            (self.session.client.disconnect if self.random.random() < 0.5 else self.session.client.drop)()
            self._disconnected(self.session)

    def _disconnected(self, session: Session) -> None:
        session.client = None
        if not session.lasting:
            self._session_ended()
        elif self.holder is Holder.SESSION and session.qos:
            self.holder = Holder.AWAY
        elif self.holder is Holder.SESSION:
            self.gone()

    def _session_ended(self) -> None:
        self.session = None
        if self.holder in (Holder.SESSION, Holder.AWAY):
            self.gone()

    # -- restarts --------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        crash = self.random.random() < 0.7
        self.sim.restart(crash=crash)
        self.stomp = self.amqp = None
        session = self.session
        if self.holder in (Holder.STOMP, Holder.AMQP):
            self.holder = Holder.NOBODY
        if session is not None and session.client is not None:
            if not crash:
                self._disconnected(session)
            else:
                self._crashed(session)
        if not self.durable:
            self.gone()

    def _crashed(self, session: Session) -> None:
        """Nothing was done for those that were connected: a durable queue is still there."""
        held, session.client = self.holder is Holder.SESSION, None
        if not session.lasting:
            self.session = None
            if held and session.stored and session.qos:
                self.gone()
        if held:
            self.holder = Holder.AWAY if session.lasting and session.qos else Holder.NOBODY

    def step(self) -> None:
        """Do something."""
        actions = (
            (self.publish, 3),
            (self.subscribe, 1),
            (self.attach, 1),
            (self.leave, 2),
            (self.close, 1),
            (self.unsubscribe, 1),
            (self.look_up, 1),
            (self.connect, 2),
            (self.subscribe_session, 2),
            (self.unsubscribe_session, 1),
            (self.disconnect, 2),
            (self.restart, 1),
        )
        [action] = self.random.choices([each for each, _ in actions], [often for _, often in actions])
        action()
        self.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_subscriptions_of_one_name(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
