"""The login of a link at the other broker, and that broker's capabilities."""

from __future__ import annotations

from collections.abc import Sequence

from broker.sessions.amqp.terms import ANONYMOUS_RELAY, PRODUCT, AmqpOptions
from broker.sessions.links.model import Link
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.performatives import Open, SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome


class LinkLogin:
    """The login of one connection.  `relays`: the other broker has an anonymous relay; `bartleby`: it is a Bartleby."""

    def __init__(self, codec: AmqpConnection, link: Link, hostname: str, options: AmqpOptions) -> None:
        self.relays = False
        self.bartleby = False
        self._codec = codec
        self._link = link
        self._hostname = hostname
        self._options = options

    def step(self, event: SaslMechanisms | SaslChallenge | SaslOutcome) -> str:
        """Answer a SASL frame; why the login failed, empty if it did not."""
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
        """Send OPEN."""
        self._codec.send_open(
            hostname=self._hostname,
            idle_time_out=self._options.idle_timeout // 2 or None,
            desired_capabilities=(ANONYMOUS_RELAY,),
            properties={"product": PRODUCT, "version": self._options.version},
        )

    def opened(self, event: Open) -> str:
        """Note the capabilities of the other broker; its product and container."""
        product = (event.properties or {}).get("product", "")
        self.relays = ANONYMOUS_RELAY in event.offered_capabilities
        self.bartleby = product == PRODUCT
        return f"{product} {event.container_id}".strip()
