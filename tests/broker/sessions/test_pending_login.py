"""While a login is not answered an AMQP connection is not read, whatever the mechanism; other reasons stay in force."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.engine.model.access import Identity
from broker.security.passwords import scram_keys
from broker.sessions.amqp.login import Login
from broker.sessions.login import LoginRestriction, Peer, ScramKeys, Then
from broker.sessions.reading import LOGIN, Reading
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import FrameTooLarge
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import SaslChallenge, SaslInit, SaslOutcome, SaslResponse

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "XOAUTH2", "EXTERNAL", "ANONYMOUS")
BOB = Identity("bob", frozenset())


class SlowGate:
    """Answers whenever it is told to, where the real one may take a while."""

    takes_tokens = False

    def __init__(self) -> None:
        self.asked: list[Then] = []

    @property
    def version(self) -> int:
        return 0

    @property
    def peers(self) -> SlowGate:
        return self

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        return MECHANISMS

    def anonymous(self, peer: Peer) -> Identity | None:
        return BOB

    def external(self, peer: Peer, name: str) -> Identity | None:
        return BOB

    def login(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        self.asked.append(then)

    named = login
    bearer = login

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        return scram_keys(mechanism, "secret", b"salt" * 4)

    def scram_done(self, peer: Peer, mechanism: str, name: str, proven: ScramKeys | None, then: Then) -> None:
        self.asked.append(then)

    def expired(self, peer: Peer, now: int) -> bool:
        return False

    def gone(self, peer: Peer) -> bool:
        return False

    def refuse(self, peer: Peer, name: str, reason: str, then: Then) -> None: ...

    def left(self, peer: Peer) -> None: ...

    def users(self) -> None: ...

    def restrict(self, peer: Peer, door: LoginRestriction) -> None: ...


class Wire:
    """A server's codec with its login, and whether it is read."""

    def __init__(self, mechanism: str) -> None:
        self._reads = True
        self.gate = SlowGate()
        self.reading = Reading(self, self)
        self.codec = AmqpConnection(Limits(), container_id="broker", mechanisms=MECHANISMS)
        self.login = Login(self.codec, self.gate, Peer("p"), self.reading)
        self.client = AmqpConnection(Limits(), container_id="client", server=False, mechanisms=(mechanism,))
        self.exchange()

    def guarded(self, transport: object, call: Callable[..., None]) -> Callable[..., None]:
        return call

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def reads(self) -> bool:
        return self._reads

    def exchange(self, more: bytes = b"") -> list[object]:
        """Both sides talk; what the client heard."""
        heard: list[object] = []
        self.codec.receive_data(self.client.data_to_send() + more)
        for event in self.codec.events():
            assert isinstance(event, SaslInit | SaslResponse)
            self.login.step(event, lambda: None)
        self.client.receive_data(self.codec.data_to_send())
        while events := self.client.events():
            heard += events
        return heard


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0bob\0secret"),
        ("PLAIN", b"malformed"),
        ("OAUTHBEARER", b"n,,\1auth=Bearer abc\1\1"),
        ("XOAUTH2", b"user=bob\1auth=Bearer abc\1\1"),
        ("SCRAM-SHA-256", b"malformed"),
        ("SCRAM-SHA-512", b"malformed"),
    ],
)
def test_nothing_is_read_before_the_answer(mechanism: str, response: bytes) -> None:
    wire = Wire(mechanism)
    wire.client.send_sasl(SaslInit(mechanism, response))
    assert wire.exchange() == []
    assert not wire.reads()
    wire.gate.asked.pop()(None)
    assert wire.reads()
    [outcome] = wire.exchange()
    assert isinstance(outcome, SaslOutcome)


def test_nothing_is_read_before_the_answer_to_the_proof_of_scram() -> None:
    wire = Wire("SCRAM-SHA-256")
    wire.client.send_sasl(SaslInit("SCRAM-SHA-256", b"n,,n=bob,r=nonce"))
    [challenge] = wire.exchange()
    assert isinstance(challenge, SaslChallenge)
    assert wire.reads(), "it is the client's turn"
    wire.client.send_sasl(SaslResponse(b"c=biws,r=nonce,p=AAAA"))
    assert wire.exchange() == []
    assert not wire.reads()
    wire.gate.asked.pop()(None)
    assert wire.reads()


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS"])
def test_bytes_behind_a_login_answered_at_once_are_read(mechanism: str) -> None:
    wire = Wire(mechanism)
    wire.client.send_sasl(SaslInit(mechanism, b""))
    assert wire.exchange()
    assert wire.reads()


def test_an_answer_does_not_undo_another_reason() -> None:
    wire = Wire("PLAIN")
    wire.reading.stop("something else")
    wire.client.send_sasl(SaslInit("PLAIN", b"\0bob\0secret"))
    wire.exchange()
    wire.gate.asked.pop()(BOB)
    assert not wire.reads()
    wire.reading.go("something else")
    assert wire.reads()
    wire.reading.go(LOGIN)
    assert wire.reads()


@pytest.mark.parametrize("pieces", [1, 7, 4096])
def test_bytes_behind_an_unanswered_login_count(pieces: int) -> None:
    most = Limits().handshake_bytes_max
    wire = Wire("PLAIN")
    wire.client.send_sasl(SaslInit("PLAIN", b"\0bob\0secret"))
    wire.exchange()
    ahead = b"AMQP\0\1\0\0".ljust(most, b"\0")
    for at in range(0, most, pieces):
        wire.exchange(ahead[at : at + pieces])
    assert wire.codec.error is None
    wire.exchange(b"\0")
    assert isinstance(wire.codec.error, FrameTooLarge)


def test_bytes_in_one_read_with_a_login_count() -> None:
    most = Limits().handshake_bytes_max
    for extra in (0, 1):
        wire = Wire("PLAIN")
        wire.client.send_sasl(SaslInit("PLAIN", b"\0bob\0secret"))
        wire.exchange(bytes(most + extra))
        assert (wire.codec.error is not None) == bool(extra)
