"""Appends to real PostgreSQL servers that go wrong, short (`make failover-storm` is for long), and wrong copies."""

from __future__ import annotations

from itertools import count
from secrets import randbits

import pytest

from store.errors import CopyAhead, Corrupt
from tests.support.append_storm import RealDatabase, breaks, stops, zombies
from tests.support.postgresql import Pair

_numbers = count(1)


@pytest.fixture
def schema() -> str:
    """A name that no other test has."""
    return f"storm_{next(_numbers)}"


@pytest.fixture
def seed() -> int:
    """Printed when a test fails."""
    seed = randbits(32)
    print(f"seed {seed}")
    return seed


def test_a_thousand_appends_of_a_zombie(shared_pair: Pair, schema: str) -> None:
    zombies(shared_pair.dsn, schema, 1_000)


def test_an_owner_that_is_stopped_within_an_append(shared_pair: Pair, schema: str) -> None:
    """`python -m tests.append_storm` stops it more often."""
    assert stops(shared_pair.dsn, schema, 10).keys() == {"it was there", "it was refused"}


def test_connections_that_break_at_random_moments(pair: Pair, schema: str, seed: int) -> None:
    """`python -m tests.append_storm` breaks more of them."""
    confirmed, doubtful = breaks(pair, schema, 300, seed, failovers=1)
    assert confirmed == 300
    assert doubtful > 30


def test_a_copy_of_another_broker(shared_pair: Pair, schema: str) -> None:
    with RealDatabase(shared_pair.dsn, schema) as shared:
        files = shared.owner("one").end()
        shared_pair.primary.sql(f"UPDATE {schema}.head SET broker_id = %s", b"another broker!!")
        with pytest.raises(Corrupt, match="belongs to another broker"):
            shared.replica("one", files)


def test_a_copy_that_has_more_than_the_database(shared_pair: Pair, schema: str) -> None:
    """As after the promotion of a standby that was not synchronous."""
    with RealDatabase(shared_pair.dsn, schema) as shared:
        owner = shared.owner("one")
        before = owner.log.replicated
        owner.send()
        owner.step()
        files = owner.end()
        log = f"{schema}.log_{before.segment:010d}"
        shared_pair.primary.sql(f"DELETE FROM {log} WHERE at >= %s", before.offset)
        shared_pair.primary.sql(f"UPDATE {schema}.head SET at = %s", before.offset)
        with pytest.raises(CopyAhead, match="but the log in the database ends at byte"):
            shared.replica("one", files)
