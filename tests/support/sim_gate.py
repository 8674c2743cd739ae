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

#: Quick, and no secret of anybody's.
_CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


Result = TypeVar("Result")


def outcome(work: Callable[[], Result]) -> Result | BaseException:
    """What a runner hands over: what comes of some work, or what it raises."""
    try:
        return work()
    except BaseException as fault:
        return fault


class InlineRunner:
    """Does at once what it is asked to do."""

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        """See Runner."""
        then(outcome(work))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """See Runner."""
        call()


@cache
def cheap_user(password: str, *roles: str) -> StoredUser:
    """A user whose password takes no time to check."""
    scram = {mechanism: passwords.scram_keys(mechanism, password, b"salt" * 4) for mechanism in SCRAMS}
    return StoredUser(frozenset(roles), _CHEAP.hash(password), scram)


def sim_gate(config: Config, users: Mapping[str, str] | None, report: Report, now: Callable[[], int]) -> UserGate:
    """A gate for these users, each in the role `amq`; None: without a users file."""
    stored = None if users is None else {name: cheap_user(password, "amq") for name, password in users.items()}
    return UserGate(
        policy(config, stored),
        runner=InlineRunner(),
        throttle=Throttle(now, 0),
        report=report,
        secret=b"x" * 32,
    )
