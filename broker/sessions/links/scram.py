"""A link's side of SCRAM (RFC 5802, 7677), computed by `scramp`: each broker proves that it knows the password.

begun      the other broker names salt and iterations   `prove`: PBKDF2, which takes a thread some 0.2 s
proving    the thread is done                           the proof is sent
proved     the other broker's signature                 `verify`: in a last challenge, or with the outcome
verified   the outcome
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from scramp import ScramClient, ScramException


class LoginFailed(Exception):
    """Why a link does not log in, for operators."""


class Stage(StrEnum):
    """How far a login has come."""

    BEGUN = "begun"
    PROVING = "proving"
    PROVED = "proved"
    VERIFIED = "verified"


class ScramLogin:
    """One login.  `stage` never goes back.  Raises LoginFailed."""

    def __init__(self, mechanism: str, user: str, password: bytes, iterations_max: int) -> None:
        self.stage = Stage.BEGUN
        self._mechanism = mechanism
        self._user = user
        self._iterations_max = iterations_max
        try:
            self._client = ScramClient([mechanism], user, password.decode())
        except (ScramException, UnicodeDecodeError):  # which may quote the password
            text = f"{mechanism} does not allow a character of the user or of the password: change it, or set"
            raise LoginFailed(f'{text} sasl-mechanisms = ["PLAIN"]') from None

    def begin(self) -> bytes:
        """Return the first message."""
        first: str = self._client.get_client_first()
        return first.encode()

    def prove(self, server_first: bytes) -> Callable[[], bytes]:
        """Return the work that makes the proof; too slow for the event loop."""
        assert self.stage is Stage.BEGUN
        try:
            self._client.set_server_first(server_first.decode())
        except (ScramException, UnicodeDecodeError) as error:
            raise self._failed(error) from None
        iterations = int(self._client.iterations)
        if iterations > self._iterations_max:
            text = f"the other broker asks for {iterations} iterations of {self._mechanism}, and"
            raise LoginFailed(f"{text} scram-iterations-max is {self._iterations_max}")
        self.stage = Stage.PROVING
        return lambda: self._client.get_client_final().encode()

    def proof_sent(self) -> None:
        """Note that the proof is on its way."""
        assert self.stage is Stage.PROVING
        self.stage = Stage.PROVED

    def verify(self, server_final: bytes) -> None:
        """Check the other broker's signature."""
        if self.stage is not Stage.PROVED:
            raise LoginFailed(f"the other broker ended {self._mechanism} before its turn")
        try:
            self._client.set_server_final(server_final.decode())
        except (ScramException, UnicodeDecodeError) as error:
            if server_final.startswith(b"v="):
                text = f"the other broker did not prove that it knows the password of user {self._user}"
                raise LoginFailed(f"{text}: check that `url` leads to the right broker") from None
            raise self._failed(error) from None
        self.stage = Stage.VERIFIED

    def _failed(self, error: ScramException | UnicodeDecodeError) -> LoginFailed:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        return LoginFailed(f"the other broker's message of {self._mechanism} cannot be used: {why}")
