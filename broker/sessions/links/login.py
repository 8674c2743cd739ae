"""The login of a link at the other broker, and that broker's capabilities.

With a user: the strongest mechanism that both brokers know.  PLAIN sends the password itself, so where others could
read it, it is never sent to a broker that has offered SCRAM, not even if it offers only PLAIN the next time: somebody
in between can take SCRAM out of an offer.  Where nobody can (TLS, this machine), PLAIN follows on a refusal of SCRAM:
the user may have no keys for it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.sessions.amqp.terms import ANONYMOUS_RELAY, PRODUCT, AmqpOptions
from broker.sessions.links.model import Link
from broker.sessions.links.scram import LoginFailed, ScramLogin, Stage
from broker.sessions.sasl import ANONYMOUS, EXTERNAL, PLAIN, SCRAMS
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.performatives import (
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)

#: Runs work on a thread, and passes its result or exception on, within a tick.
Aside = Callable[[Callable[[], bytes], Callable[[bytes | BaseException], None]], None]

#: The beginning of the names of all SCRAM mechanisms, also of those that are not known here.
_SCRAM: Final = "SCRAM-"

#: What to do if the other broker offers no mechanism that this link can use.
_MECHANISMS: Final = "the link uses %s"
_NO_USER: Final = "set user and password-file, or certificate and key"


class LinkLogin:
    """The login of one connection.  `relays`: the other broker has an anonymous relay; `bartleby`: it is a Bartleby.

    `readable`: others on the network can read what the connection sends.
    """

    def __init__(
        self, codec: AmqpConnection, link: Link, hostname: str, options: AmqpOptions, *, readable: bool
    ) -> None:
        self.relays = False
        self.bartleby = False
        self._codec = codec
        self._link = link
        self._hostname = hostname
        self._options = options
        self._readable = readable
        self._mechanism = ""
        self._scram: ScramLogin | None = None

    def step(self, event: SaslMechanisms | SaslChallenge | SaslOutcome, aside: Aside) -> None:
        """Answer a SASL frame, now or later; `aside` runs the work of SCRAM.  Raises LoginFailed."""
        if isinstance(event, SaslMechanisms):
            self._begin(event.sasl_server_mechanisms)
        elif isinstance(event, SaslChallenge):
            self._challenged(event.challenge, aside)
        elif event.code != SaslCode.OK:
            self._refused()
        elif self._scram is not None and self._scram.stage is not Stage.VERIFIED:
            self._scram.verify(event.additional_data or b"")

    def _begin(self, offered: Sequence[str]) -> None:
        settings = self._link.settings
        self._mechanism = self._chosen(offered)
        if self._mechanism in SCRAMS:
            self._scram = ScramLogin(self._mechanism, settings.user, settings.password, settings.scram_iterations_max)
            first = self._scram.begin()
        elif self._mechanism == PLAIN:
            first = b"\0" + settings.user.encode() + b"\0" + settings.password
        else:
            first = b"" if self._mechanism == EXTERNAL else b"anonymous"
        self._codec.send_sasl(SaslInit(self._mechanism, first, self._hostname))

    def _chosen(self, offered: Sequence[str]) -> str:
        """The mechanism for this login.  Raises LoginFailed."""
        link, settings = self._link, self._link.settings
        if not settings.user:
            wanted = [EXTERNAL, ANONYMOUS] if link.remote.startswith("amqps") else [ANONYMOUS]
        else:
            wanted = [each for each in (*SCRAMS, PLAIN) if each in settings.sasl_mechanisms]
        found = [each for each in wanted if each in offered]
        if any(each.startswith(_SCRAM) for each in offered):
            link.scram_offered.add(link.remote)
        if not found:
            offers = f"the other broker offers only {', '.join(offered) or 'no login'}"
            raise LoginFailed(f"{offers}: " + (_MECHANISMS % " or ".join(wanted) if settings.user else _NO_USER))
        if PLAIN in found and len(found) > 1 and not self._readable and link.remote in link.scram_refused:
            return PLAIN
        if found[0] == PLAIN and len(wanted) > 1 and self._readable and link.remote in link.scram_offered:
            text = "the other broker has offered SCRAM, and now offers only"
            raise LoginFailed(
                f"{text} {', '.join(offered)}: the password is not sent in the clear; use amqps, or set sasl-mechanisms"
            )
        return found[0]

    def _challenged(self, challenge: bytes, aside: Aside) -> None:
        scram = self._scram
        if scram is None:
            raise LoginFailed("the other broker asks for more than a user and a password")
        if scram.stage is Stage.BEGUN:
            aside(scram.prove(challenge), self._prove)
        else:  # its signature comes before the outcome
            scram.verify(challenge)
            self._codec.send_sasl(SaslResponse(b""))

    def _prove(self, proof: bytes | BaseException) -> None:
        """Send the proof.  Raises LoginFailed."""
        if isinstance(proof, BaseException):
            raise LoginFailed(f"the proof of {self._mechanism} could not be made: {proof}")
        assert self._scram is not None
        self._scram.proof_sent()
        self._codec.send_sasl(SaslResponse(proof))

    def _refused(self) -> None:
        link = self._link
        if self._scram is None:
            link.scram_refused.discard(link.remote)
        elif not self._readable and PLAIN in link.settings.sasl_mechanisms:
            link.scram_refused.add(link.remote)
        who = f"user {link.settings.user}" if link.settings.user else "an anonymous client"
        raise LoginFailed(f"login refused: the other broker rejected {who}")

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
