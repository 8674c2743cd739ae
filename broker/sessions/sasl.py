"""The server's side of SASL: turns a mechanism's messages into a user or a refusal.

    ANONYMOUS (RFC 4505)      one message, whose content is ignored; only where anonymous logins are permitted
    PLAIN (RFC 4616)          one message: NUL user NUL password; an authorization identity before them must be the user
    EXTERNAL (RFC 4422, A)    one message: the user's name or nothing; the TLS certificate says which user it is
    OAUTHBEARER (RFC 7628)    one message: a token, as `auth=Bearer TOKEN`; XOAUTH2 is its older, non-standard form
    SCRAM-SHA-256, -512       two messages each way (RFC 5802, 7677), computed by `scramp`

A refusal gives no reason: neither whether the user exists nor whether the message was well-formed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scramp import ScramException, ScramMechanism

from broker.engine.model.access import Identity
from broker.sessions.login import Gate, Peer, ScramKeys

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
OAUTHBEARER: Final = "OAUTHBEARER"
XOAUTH2: Final = "XOAUTH2"
SCRAMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")

#: Mechanisms that a refusal names: those above, and others that clients ask for.  Any other text may be a password.
_REGISTERED: Final = frozenset(
    {ANONYMOUS, PLAIN, EXTERNAL, OAUTHBEARER, XOAUTH2, *SCRAMS, "SCRAM-SHA-1", "SCRAM-SHA-1-PLUS", "SCRAM-SHA-256-PLUS"}
    | {"CRAM-MD5", "DIGEST-MD5", "GSSAPI", "GSS-SPNEGO", "LOGIN", "NTLM", "AMQPLAIN", "MSSBCBS"}
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange continues with this message to the peer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Granted:
    """The login succeeded; `data`, unless None, is sent with the outcome."""

    identity: Identity
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The login was refused; the peer gets no reason."""


REFUSED: Final = Refused()

Answer = Challenge | Granted | Refused
Then = Callable[[Answer], None]


class Exchange(ABC):
    """One login."""

    def __init__(self, gate: Gate, peer: Peer) -> None:
        self._gate = gate
        self._peer = peer

    @abstractmethod
    def step(self, message: bytes, then: Then) -> None:
        """Process the peer's next message.  Calls `then` with the answer, now or in a later tick."""


def begin(mechanism: str, gate: Gate, peer: Peer) -> Exchange:
    """Start the server's side of a login, which is refused if the gate does not offer its mechanism."""
    if mechanism not in gate.mechanisms(peer):
        return _NotOffered(mechanism, gate, peer)
    if mechanism in SCRAMS:
        return _Scram(mechanism, gate, peer)
    return _ONE_MESSAGE[mechanism](gate, peer)


class _NotOffered(Exchange):
    def __init__(self, mechanism: str, gate: Gate, peer: Peer) -> None:
        super().__init__(gate, peer)
        named = mechanism if mechanism in _REGISTERED else f"of {len(mechanism)} characters"
        self._reason = f"the mechanism {named} is not offered"

    def step(self, message: bytes, then: Then) -> None:
        self._gate.refuse(self._peer, "", self._reason, lambda _: then(REFUSED))


class _Anonymous(Exchange):
    def step(self, message: bytes, then: Then) -> None:
        then(_answer(self._gate.anonymous(self._peer)))


class _External(Exchange):
    def step(self, message: bytes, then: Then) -> None:
        try:
            name = message.decode()
        except UnicodeDecodeError:
            then(REFUSED)
            return
        then(_answer(self._gate.external(self._peer, name)))


class _Plain(Exchange):
    def step(self, message: bytes, then: Then) -> None:
        parts = message.split(b"\0")
        if len(parts) != 3 or parts[0] not in (b"", parts[1]):
            self._malformed(then)
            return
        try:
            name = parts[1].decode()
        except UnicodeDecodeError:
            self._malformed(then)
            return
        if name or parts[2]:
            self._gate.login(self._peer, name, parts[2], lambda identity: then(_answer(identity)))
        else:
            self._malformed(then)

    def _malformed(self, then: Then) -> None:
        """Count it as a wrong password: a login without a name always fails."""
        self._gate.login(self._peer, "", b"\0", lambda _: then(REFUSED))


class _Bearer(Exchange):
    def step(self, message: bytes, then: Then) -> None:
        name, token = _bearer(message)
        self._gate.bearer(self._peer, name, token, lambda identity: then(_answer(identity)))


def _bearer(message: bytes) -> tuple[str, bytes]:
    """Return the user, empty if none is named, and the token; an empty token, which is never valid, if malformed."""
    head, *pairs = message.split(b"\1")
    fields = dict(pair.partition(b"=")[::2] for pair in pairs)
    if head.startswith(b"user="):  # XOAUTH2
        name = head.removeprefix(b"user=")
    else:  # a GS2 header: no channel binding, optionally a name
        name = next((part.removeprefix(b"a=") for part in head.split(b",")[1:] if part.startswith(b"a=")), b"")
        name = name.replace(b"=2C", b",").replace(b"=3D", b"=")
    scheme, _, token = fields.get(b"auth", b"").partition(b" ")
    try:
        return name.decode(), token if scheme.lower() == b"bearer" else b""
    except UnicodeDecodeError:
        return "", b""


_ONE_MESSAGE: Final[dict[str, type[Exchange]]] = {
    PLAIN: _Plain,
    ANONYMOUS: _Anonymous,
    EXTERNAL: _External,
    OAUTHBEARER: _Bearer,
    XOAUTH2: _Bearer,
}


class _Scram(Exchange):
    def __init__(self, mechanism: str, gate: Gate, peer: Peer) -> None:
        super().__init__(gate, peer)
        self._mechanism = mechanism
        self._first = True
        found: dict[str, ScramKeys] = {}  # not in this object, which refers to the function

        def keys(name: str) -> ScramKeys:
            found[name] = gate.scram_keys(mechanism, name)
            return found[name]

        self._found = found
        self._server = ScramMechanism(mechanism).make_server(keys)

    def step(self, message: bytes, then: Then) -> None:
        final = b""
        try:
            text = message.decode()
            if self._first:
                self._first = False
                self._server.set_client_first(text)
                then(Challenge(str(self._server.get_server_first()).encode()))
                return
            self._server.set_client_final(text)
            final = str(self._server.get_server_final()).encode()
        except (ScramException, UnicodeDecodeError):
            self._done(lambda _: then(REFUSED), proven=False)
            return
        self._done(lambda identity: then(_answer(identity, final)), proven=True)

    def _done(self, then: Callable[[Identity | None], None], *, proven: bool) -> None:
        name, keys = next(iter(self._found.items()), ("", None))
        self._gate.scram_done(self._peer, self._mechanism, name, keys if proven else None, then)


def _answer(identity: Identity | None, data: bytes | None = None) -> Answer:
    return REFUSED if identity is None else Granted(identity, data)
