"""A gate whose threads and clock are moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker.engine.model.access import Identity
from broker.security.login import UserGate
from broker.security.login_policy import Policy
from broker.security.throttle import Throttle
from broker.sessions.login import Peer
from tests.support.sim_gate import cheap_user, outcome

BOB = cheap_user("secret", "clerks")
CLERK = Identity("bob", frozenset({"clerks"}))

Result = TypeVar("Result")


class Bench:
    """A gate whose threads and clock are moved by hand."""

    threads = 2

    def __init__(self, *, delay: int = 0, per_user: int = -1) -> None:
        self.now = 0
        self.work: list[Callable[[], None]] = []
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.reports: list[str] = []
        self.told: list[Identity | None] = []
        self.gate = UserGate(
            Policy({"bob": BOB}, None, (), per_user),
            runner=self,
            throttle=Throttle(lambda: self.now, delay),
            report=self.report,
            secret=b"x" * 32,
        )

    def report(self, code: str, /, **fields: str | int) -> None:
        self.reports.append(code)

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        self.work.append(lambda: then(outcome(work)))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self.waiting.append((ms, call))

    def login(self, name: str = "bob", password: bytes = b"secret", origin: str = "1.1.1.1") -> Peer:
        peer = Peer(f"{origin}:1", origin)
        self.gate.login(peer, name, password, self.told.append)
        return peer

    def enter(self, name: str = "bob", password: bytes = b"secret", origin: str = "1.1.1.1") -> Peer:
        """A login that the threads check at once."""
        peer = self.login(name, password, origin)
        self.hash()
        return peer

    def hash(self) -> None:
        """The threads do what they have, and what waits for them."""
        while self.work:
            self.work.pop(0)()
