"""When a standby takes the lease of a replicated log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from broker.daemon import standby as standing_by
from broker.daemon.standby import UNASKED, Standby
from store.replicated.following import Following
from tests.store.replicated.replicas import Replica
from tests.support.sim_database import SimDatabase

LEASE_MS = 5_000


class Clock:
    """Seconds, as the test says."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def never(*arguments: object) -> NoReturn:
    raise AssertionError("this is not asked for")


def standby(
    shared: SimDatabase,
    clock: Clock,
    *,
    patience_s: float = 0,
    replica: Replica | None = None,
    make_broker: Callable[[], Any] = never,
    unable: Callable[[], str] = lambda: "",
    report: Callable[..., None] = lambda code, /, **fields: None,
) -> Standby:
    replica = replica or Replica(shared, "me")
    return Standby(
        replica.log,
        replica.database,
        shared.connect(),
        replica.files,
        name="me",
        lease_ms=LEASE_MS,
        patience_s=patience_s,
        make_broker=make_broker,
        keep_lease=never,
        check=never,
        unable=unable,
        ended=never,
        report=report,
        monotonic=clock,
    )


def test_it_takes_a_lease_that_is_over_and_no_other() -> None:
    shared, clock = SimDatabase(), Clock()
    me = standby(shared, clock, patience_s=0)
    other = shared.connect()
    assert other.take_lease("other", LEASE_MS)
    assert not me._may_own()
    shared.now += LEASE_MS + 1
    assert me._may_own()
    assert not other.take_lease("other", LEASE_MS)
    assert me._may_own(), "it is its own now"


def test_one_that_could_not_serve_leaves_it_to_others() -> None:
    why = ["users.toml: other users can access the users file"]
    clock = Clock()
    me = standby(SimDatabase(), clock, unable=lambda: why[0])
    me._ask_if_able()
    assert not me._may_own()
    assert me.state.trouble == UNASKED.trouble, "the first query comes first"
    me._trouble = ""
    clock.now += 11
    assert (me.state.trouble, me.state.lag_seconds) == (why[0], 11)
    why[0] = ""
    me._ask_if_able()
    assert me._may_own()
    assert me.state.trouble == ""


def test_who_reads_of_trouble_in_the_log_finds_it_in_the_status() -> None:
    seen: list[tuple[str, str]] = []
    me = standby(
        SimDatabase(),
        Clock(),
        unable=lambda: "a port is taken",
        report=lambda code, /, **fields: seen.append((code, me.state.trouble)),
    )
    me._report_trouble("the database does not answer")
    me._report_trouble("")
    me._ask_if_able()
    assert seen == [
        ("replication.trouble", "the database does not answer"),
        ("replication.disabled", "a port is taken"),
    ]


def test_it_asks_again_at_the_moment_when_it_would_claim() -> None:
    """A port can be taken between two looks."""
    why = ["", "acceptors.stomp: address already in use"]
    me = standby(SimDatabase(), Clock(), unable=lambda: why.pop())
    assert not me._may_own()
    assert me._may_own()


def test_it_claims_once_it_has_read_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is still reading, or cannot read it, leaves it to another one."""
    shared = SimDatabase()
    replica = Replica(shared, "me")
    me = standby(shared, Clock(), replica=replica, make_broker=lambda: None)
    assert (me.state.starting, me._prepared) == ("comparing its copy with the journal in the database", False)
    me._copying.compare()
    me._comparing = False
    assert (me.state.starting, me._prepared) == ("", True), "a new journal has nothing to read"
    replica.compare()
    replica.take_over()
    replica.send()
    replica.step()
    me = standby(shared, Clock(), replica=replica, make_broker=lambda: None)
    me._copying.compare()
    me._comparing = False
    assert (me.state.starting, me._prepared) == ("reading its copy of the journal", False)

    def restore(broker: None, recovery: Following) -> None:
        me._complete = True
        for _ in recovery.records():
            pass

    collected: list[bool] = []
    monkeypatch.setattr(standing_by, "collect_and_exempt", lambda: collected.append(me._prepared))
    monkeypatch.setattr(standing_by, "restore", restore)
    me._read_all(0)
    assert (me.state.starting, me._prepared) == ("", True)
    assert not me._more(0)
    assert collected == [False], "once, and before it may claim: later clients would wait for it"


def test_one_that_has_handed_over_leaves_it_to_others_for_a_while() -> None:
    shared, clock = SimDatabase(), Clock()
    me = standby(shared, clock, patience_s=10)
    assert not me._may_own()
    clock.now += 9.9
    assert not me._may_own()
    clock.now += 0.2
    assert me._may_own(), "nobody has wanted it"


def test_it_is_patient_until_another_has_had_it() -> None:
    """Who hands over back to it at once does not wait until its patience is over."""
    shared, clock = SimDatabase(), Clock()
    me = standby(shared, clock, patience_s=10)
    other = shared.connect()
    assert not me._may_own()
    assert other.take_lease("other", LEASE_MS)
    assert not me._may_own()
    other.give_up_lease("other")
    assert me._may_own()


def test_one_that_is_told_to_stop_reads_no_further_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long journal is read for minutes."""
    shared = SimDatabase()
    replica = Replica(shared, "me")
    replica.compare()
    replica.take_over()
    while len(replica.log.segments()) < 4:
        replica.send()
        replica.step()
    me = standby(shared, Clock(), replica=replica, make_broker=lambda: None)
    me._copying.compare()
    read = set()

    def restore(broker: None, recovery: Following) -> None:
        for segment, *_ in recovery.records():
            read.add(segment)
            me._stopping = True

    monkeypatch.setattr(standing_by, "restore", restore)
    with pytest.raises(standing_by._Stopped):
        me._read_all(0)
    assert read == {1}
