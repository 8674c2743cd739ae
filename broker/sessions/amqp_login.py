"""SASL over AMQP (part 5): frames to steps of a mechanism, and back."""

from __future__ import annotations

from broker.sessions import sasl
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.performatives import SaslChallenge, SaslCode, SaslInit, SaslOutcome, SaslResponse


class Login:
    """One peer's login."""

    def __init__(self, codec: AmqpConnection, users: sasl.Users | None) -> None:
        self._codec = codec
        self._users = users
        self._exchange: sasl.Exchange | None = None

    def step(self, event: SaslInit | SaslResponse) -> str:
        """Answer the peer; its user, once it is known.  Raises LoginRefused, after it has been told."""
        try:
            if isinstance(event, SaslInit):
                self._exchange = sasl.begin(event.mechanism, self._users)
                message = event.initial_response or b""
            else:
                message = event.response
            assert self._exchange is not None, "a response follows an init"
            answer = self._exchange.step(message)
        except sasl.LoginRefused:
            self._codec.send_sasl(SaslOutcome(SaslCode.AUTH))
            raise
        if self._exchange.done:
            self._codec.send_sasl(SaslOutcome(SaslCode.OK, answer))
        else:
            self._codec.send_sasl(SaslChallenge(answer or b""))
        return self._exchange.user
