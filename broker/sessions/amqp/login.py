"""SASL over AMQP (part 5): frames become steps of a mechanism, and its answers frames.

Nothing is read while an answer is due, so it may take time (see `login`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.engine.model.access import Identity
from broker.sessions import sasl
from broker.sessions.login import Gate, Peer
from broker.sessions.reading import LOGIN, Reading
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.performatives import SaslChallenge, SaslCode, SaslInit, SaslOutcome, SaslResponse


class Login:
    """One peer's login.  `over`: answers are ignored."""

    def __init__(self, codec: AmqpConnection, gate: Gate, peer: Peer, reading: Reading) -> None:
        self.over = False
        self._codec = codec
        self._gate = gate
        self._peer = peer
        self._reading = reading
        self._exchange: sasl.Exchange | None = None
        self._identity: Identity | None = None
        self._stepping = False

    def identity(self) -> Identity | None:
        """Return the identity of the peer, which is anonymous without SASL.  None: it may not log in."""
        return self._identity if self._identity is not None else self._gate.anonymous(self._peer)

    def step(self, event: SaslInit | SaslResponse, proceed: Callable[[], None]) -> None:
        """Answer the peer, now or later: then `proceed` is called."""
        message = (event.initial_response or b"") if isinstance(event, SaslInit) else event.response
        if isinstance(event, SaslInit):
            self._exchange = sasl.begin(event.mechanism, self._gate, self._peer)
        assert self._exchange is not None, "a response follows an init"
        self._stepping = True
        self._exchange.step(message, self._reading.until(LOGIN, partial(self._answer, proceed)))
        self._stepping = False

    def _answer(self, proceed: Callable[[], None], answer: sasl.Answer) -> None:
        if self.over:
            return
        if isinstance(answer, sasl.Challenge):
            self._codec.send_sasl(SaslChallenge(answer.data))
        elif isinstance(answer, sasl.Granted):
            self._identity = answer.identity
            self._codec.send_sasl(SaslOutcome(SaslCode.OK, answer.data))
        else:
            self._codec.send_sasl(SaslOutcome(SaslCode.AUTH))
        if not self._stepping:
            proceed()
