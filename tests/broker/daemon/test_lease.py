"""The lease of a replicated log is renewed, and let go of in time."""

from __future__ import annotations

from threading import Condition

import pytest

from broker.daemon.lease import LeaseKeeper
from store.log import Place
from store.replicated.database import Unavailable
from tests.support.process import PATIENCE_S
from tests.support.sim_database import SimConnection, SimDatabase


class Told(SimConnection):
    """A connection that says when it was asked, of which the database may be out of reach."""

    def __init__(self, shared: SimDatabase) -> None:
        super().__init__(shared)
        self.asked = 0
        self._changed = Condition()
        self.interrupted = False

    def renew_lease(self, owner: str, epoch: int, ms: int, replicated: Place) -> bool:
        try:
            return super().renew_lease(owner, epoch, ms, replicated)
        finally:
            with self._changed:
                self.asked += 1
                self._changed.notify_all()

    def interrupt(self) -> None:
        self.interrupted = True

    def await_renewals(self, n: int) -> None:
        """Return when it was asked so many more times."""
        self.await_asked(self.asked + n)

    def await_asked(self, n: int) -> None:
        """Return when it was asked so many times."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.asked >= n, PATIENCE_S)


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shared() -> SimDatabase:
    return SimDatabase()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def is_over(lease: LeaseKeeper) -> bool:
    """What it says at this moment."""
    return lease.over


def keeper(database: Told, clock: Clock) -> LeaseKeeper:
    return LeaseKeeper(
        database,
        name="me",
        epoch=7,
        since=clock.now,
        lease=5_000,
        renewal=1,
        replicated=lambda: Place(3, 400),
        monotonic=clock,
    )


def taken(shared: SimDatabase, clock: Clock) -> tuple[Told, LeaseKeeper]:
    """A lease that was free."""
    database = Told(shared)
    assert database.take_lease("me", 5_000)
    return database, keeper(database, clock)


def test_it_is_renewed_and_says_how_far_the_log_is_replicated(shared: SimDatabase, clock: Clock) -> None:
    database, lease = taken(shared, clock)
    database.await_renewals(2)
    clock.now += 4.9
    database.await_renewals(2)  # the second began after the clock had been set
    clock.now += 4.9
    assert not lease.over
    found = database.lease()
    assert (found.owner, found.epoch, found.replicated) == ("me", 7, Place(3, 400))
    lease.end(give_up=True)
    assert database.lease().owner == ""
    assert database.take_lease("another", 5_000)


def test_it_is_over_when_another_has_it(shared: SimDatabase, clock: Clock) -> None:
    database = Told(shared)
    shared.owner, shared.until = "another", 10_000
    lease = keeper(database, clock)
    database.await_asked(1)
    lease.end(give_up=True)
    assert lease.over
    assert shared.owner == "another", "what is another's is not given up"


def test_it_is_over_when_it_could_not_be_renewed_in_time(shared: SimDatabase, clock: Clock) -> None:
    database, lease = taken(shared, clock)
    database.await_renewals(2)
    shared.reachable = False
    database.await_renewals(2)
    assert is_over(lease) is False
    clock.now += 5.1
    assert is_over(lease) is True
    lease.end(give_up=False)
    assert database.interrupted
    with pytest.raises(Unavailable):
        database.lease()


def test_a_lease_that_is_over_may_be_ours_again(shared: SimDatabase, clock: Clock) -> None:
    """Nobody has taken it meanwhile; whether the log is still ours, the database says when it is written."""
    database, lease = taken(shared, clock)
    shared.reachable = False
    database.await_renewals(1)
    clock.now += 6
    assert is_over(lease) is True
    shared.reachable = True
    database.await_renewals(2)
    assert is_over(lease) is False
    lease.end(give_up=True)
