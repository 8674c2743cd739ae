"""How a link logs in at the other broker, and what that says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from broker.sessions.amqp.terms import ANONYMOUS_RELAY, PRODUCT, AmqpOptions
from broker.sessions.links.model import Link
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.performatives import Open, SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome


class LinkLogin:
    """That of one connection.  `relays`: the other end takes messages for any address; `bartleby`: so is it."""

    def __init__(self, codec: AmqpConnection, link: Link, hostname: str, options: AmqpOptions) -> None:
        self.relays = False
        self.bartleby = False
        self._codec = codec
        self._link = link
        self._hostname = hostname
        self._options = options

    def step(self, event: SaslMechanisms | SaslChallenge | SaslOutcome) -> str:
        """Answer the other broker; why the login has failed, empty if it has not."""
        if isinstance(event, SaslMechanisms):
            return self._begin(event.sasl_server_mechanisms)
        if isinstance(event, SaslChallenge):
            return "the other broker asks for more than a user and a password"
        if event.code == SaslCode.OK:
            return ""
        who = f"user {self._link.settings.user}" if self._link.settings.user else "an anonymous client"
        return f"login refused: the other broker does not let in {who}"

    def _begin(self, offered: Sequence[str]) -> str:
        settings = self._link.settings
        if settings.user and "PLAIN" in offered:
            init = SaslInit("PLAIN", b"\0" + settings.user.encode() + b"\0" + settings.password, self._hostname)
        elif not settings.user and "EXTERNAL" in offered and self._link.remote.startswith("amqps"):
            init = SaslInit("EXTERNAL", b"", self._hostname)
        elif not settings.user and "ANONYMOUS" in offered:
            init = SaslInit("ANONYMOUS", b"anonymous", self._hostname)
        else:
            wanted = "PLAIN" if settings.user else "ANONYMOUS or EXTERNAL"
            return f"the other broker lets in by {', '.join(offered) or 'nothing'}, and not by {wanted}"
        self._codec.send_sasl(init)
        return ""

    def send_open(self) -> None:
        """OPEN, which introduces this broker."""
        self._codec.send_open(
            hostname=self._hostname,
            idle_time_out=self._options.idle_timeout // 2 or None,
            desired_capabilities=(ANONYMOUS_RELAY,),
            properties={"product": PRODUCT, "version": self._options.version},
        )

    def opened(self, event: Open) -> str:
        """What the other end is: its product and container."""
        product = (event.properties or {}).get("product", "")
        self.relays = ANONYMOUS_RELAY in event.offered_capabilities
        self.bartleby = product == PRODUCT
        return f"{product} {event.container_id}".strip()
