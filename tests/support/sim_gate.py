"""The gate of a simulated broker: the real one, without threads or waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, TypeVar

from argon2 import PasswordHasher

from broker.config import Config
from broker.engine.model.report import Report
from broker.security import passwords
from broker.security.login import UserGate
from broker.security.policy import policy
from broker.security.throttle import Throttle
from broker.security.users_file import StoredUser
from broker.sessions.sasl import SCRAMS

#: A quick hasher: the tests' passwords are no secrets.
_CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


Result = TypeVar("Result")


def outcome(work: Callable[[], Result]) -> Result | BaseException:
    """Return the result of some work, or the exception that it raised."""
    try:
        return work()
    except BaseException as fault:
        return fault


class InlineRunner:
    """A runner that runs its work at once."""

    threads = 1

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        """See Runner."""
        then(outcome(work))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """See Runner."""
        call()


@cache
def cheap_user(password: str, *roles: str) -> StoredUser:
    """Make a user whose password is quick to check."""
    scram = {mechanism: passwords.scram_keys(mechanism, password, b"salt" * 4, 4096) for mechanism in SCRAMS}
    return StoredUser(frozenset(roles), _CHEAP.hash(password), scram)


def sim_gate(config: Config, users: Mapping[str, str] | None, report: Report, now: Callable[[], int]) -> UserGate:
    """Make a gate for these users, each in the role `amq`; None: without a users file."""
    stored = None if users is None else {name: cheap_user(password, "amq") for name, password in users.items()}
    return UserGate(
        policy(config, stored),
        runner=InlineRunner(),
        throttle=Throttle(now, 0),
        report=report,
        secret=b"x" * 32,
    )
