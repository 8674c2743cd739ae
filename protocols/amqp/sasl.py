"""What SASL mechanisms say, the server's side: PLAIN (RFC 4616), ANONYMOUS (RFC 4505), EXTERNAL (RFC 4422, appendix A)
and SCRAM (RFC 5802, RFC 7677), whose computation is a library's.

A mechanism is stepped with each response of the client's and says what to answer.  `Exchange` turns the frames of a
connection into steps:

    SaslInit, SaslResponse -> Exchange.receive -> Challenge | Success | Failure -> frame_of -> connection.send_sasl

Who may log in is decided by the callbacks that a mechanism is made with, and by nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from protocols.amqp.errors import shown
from protocols.amqp.performatives import SaslChallenge, SaslCode, SaslInit, SaslOutcome, SaslResponse

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Challenge:
    """Ask the client."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Success:
    """Let the client in; `data` goes with the outcome."""

    user: str
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Do not.  `reason` is for the log: the client is told the code alone."""

    reason: str
    code: SaslCode = SaslCode.AUTH


Step = Challenge | Success | Failure


class Mechanism(Protocol):
    """The server's side of one exchange."""

    def step(self, response: bytes | None) -> Step:
        """What the client's response leads to; None: it sent no initial response."""


class ScramServer(Protocol):
    """What computes one SCRAM exchange; a ScramServer of the library scramp is one.

    Messages are RFC 5802's.
    """

    def set_client_first(self, message: str) -> None:
        """The client's first message."""

    def get_server_first(self) -> str:
        """The server's first message."""

    def set_client_final(self, message: str) -> None:
        """The client's final message."""

    def get_server_final(self) -> str:
        """The server's final message."""


#: What a server needs to know of a user: salt, stored key, server key, iterations, in the form of the library.
Credentials = object
Lookup = Callable[[str], Credentials]


class Anonymous:
    """Anybody, as the user that it is made with."""

    def __init__(self, user: str) -> None:
        self._user = user

    def step(self, response: bytes | None) -> Step:
        """The response is a trace for people, and means nothing."""
        return Success(self._user)


class Plain:
    """A user's name and password, which `verify` judges."""

    def __init__(self, verify: Callable[[str, bytes], bool]) -> None:
        self._verify = verify

    def step(self, response: bytes | None) -> Step:
        """[authorisation identity] NUL user NUL password.  Neither may be empty; who acts for others is refused."""
        if response is None:
            return Challenge(b"")
        parts = response.split(b"\0")
        if len(parts) != 3:
            return Failure("PLAIN: a response is an identity, a user and a password, with NULs between")
        identity, name, password = parts
        try:
            user = name.decode()
        except UnicodeDecodeError:
            return Failure("PLAIN: the user's name is not UTF-8")
        if not user or not password:
            return Failure("PLAIN: a user and a password are needed")
        if identity not in (b"", name):
            return Failure(f"PLAIN: {shown(user)} asks to act for {shown(identity)}")
        if not self._verify(user, password):
            return Failure(f"PLAIN: wrong password, or no user {shown(user)}")
        return Success(user)


class External:
    """Who the connection already says that it is, by its certificate; None: it says nothing."""

    def __init__(self, user: str | None) -> None:
        self._user = user

    def step(self, response: bytes | None) -> Step:
        """The response is the identity to act as: nobody else's."""
        if response is None:
            return Challenge(b"")
        if not self._user:
            return Failure("EXTERNAL: there is no certificate")
        if response not in (b"", self._user.encode()):
            return Failure(f"EXTERNAL: {shown(self._user)} asks to act for {shown(response)}")
        return Success(self._user)


class Scram:
    """Salted challenge and response.

    `make_server` makes what computes it, of what looks up a user's credentials: scramp's
    `ScramMechanism("SCRAM-SHA-256").make_server`.  `refused` is what it raises for a wrong message or proof, and what
    `lookup` raises for an unknown user.
    """

    def __init__(
        self,
        make_server: Callable[[Lookup], ScramServer],
        lookup: Lookup,
        refused: type[Exception] | tuple[type[Exception], ...],
    ) -> None:
        self._lookup = lookup
        self._server = make_server(self._find)
        self._refused = refused
        self._asked = False
        self._user = ""

    def _find(self, user: str) -> Credentials:
        self._user = user
        return self._lookup(user)

    def step(self, response: bytes | None) -> Step:
        """Client-first, then client-final; the server's final message goes with the outcome."""
        if response is None:
            return Failure("SCRAM: the client begins") if self._asked else Challenge(b"")
        server = self._server
        try:
            message = response.decode()
            if not self._asked:
                self._asked = True
                server.set_client_first(message)
                return Challenge(server.get_server_first().encode())
            server.set_client_final(message)
            final = server.get_server_final().encode()
        except UnicodeDecodeError:
            return Failure("SCRAM: a message that is not UTF-8")
        except self._refused as error:
            return Failure(f"SCRAM: {error}")
        return Success(self._user, final)


class Exchange:
    """One connection's exchange: `mechanisms` makes each that is offered, by its name."""

    def __init__(self, mechanisms: Mapping[str, Callable[[], Mechanism]]) -> None:
        self._mechanisms = mechanisms
        self._chosen: Mechanism | None = None

    def receive(self, frame: SaslInit | SaslResponse) -> Step:
        """What a frame of the client's leads to."""
        if isinstance(frame, SaslResponse):
            assert self._chosen is not None  # the connection lets no response pass before init
            return self._chosen.step(frame.response)
        make = self._mechanisms.get(frame.mechanism)
        if make is None:
            return Failure(f"the mechanism {shown(frame.mechanism)} is not offered")
        self._chosen = make()
        return self._chosen.step(frame.initial_response)


def frame_of(step: Step) -> SaslChallenge | SaslOutcome:
    """What to send."""
    if isinstance(step, Challenge):
        return SaslChallenge(step.data)
    if isinstance(step, Success):
        return SaslOutcome(SaslCode.OK, step.data)
    return SaslOutcome(step.code)


def plain_response(user: str, password: str) -> bytes:
    """A client's response for PLAIN."""
    return b"\0%b\0%b" % (user.encode(), password.encode())
