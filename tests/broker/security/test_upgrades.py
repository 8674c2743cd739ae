"""SCRAM keys with too few iterations are made anew when their user logs in with the password."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from broker.security import passwords
from broker.security.login import UserGate
from broker.security.login_policy import Policy
from broker.security.throttle import Throttle
from broker.security.upgrades import WAITING_MAX, WRITE_DELAY_MS, KeyUpgrades
from broker.security.users_file import StoredUser, read_users, write_users
from broker.sessions.login import Peer, Then
from broker.sessions.sasl import SCRAMS
from tests.support.sim_gate import cheap_user, outcome

Result = TypeVar("Result")

#: Quick ones; a real user has many times more.
TODAY = {"SCRAM-SHA-512": 4_097, "SCRAM-SHA-256": 4_098}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "SCRAM_ITERATIONS", TODAY)


class World:
    """A users file, a gate with its upgrades, and threads and a clock that are moved by hand."""

    threads = 2

    def __init__(self, directory: Path, **users: StoredUser) -> None:
        self.path = directory / "users.toml"
        self.work: list[Callable[[], None]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.reports: list[tuple[str, str]] = []
        self.told: list[bool] = []
        write_users(self.path, users)
        self.upgrades = KeyUpgrades(lambda: self.path, self, self.report)
        self.gate = UserGate(
            Policy(read_users(self.path), secret=b"s" * 32),
            runner=self,
            throttle=Throttle(lambda: 0, 0),
            report=lambda code, /, **fields: None,
            secret=b"x" * 32,
            upgrades=self.upgrades,
        )

    def report(self, code: str, /, **fields: str | int) -> None:
        self.reports.append((code, str(fields["error"])))

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        self.work.append(lambda: then(outcome(work)))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self.timers.append((ms, call))

    def then(self) -> Then:
        return lambda identity: self.told.append(identity is not None)

    def login(self, name: str = "bob", password: bytes = b"secret") -> None:
        self.gate.login(Peer("1.1.1.1:1", "1.1.1.1"), name, password, self.then())

    def work_off(self) -> None:
        while self.work:
            self.work.pop(0)()

    def pass_time(self) -> None:
        timers, self.timers = self.timers, []
        for ms, call in timers:
            assert ms == WRITE_DELAY_MS
            call()
        self.work_off()

    def stored(self, name: str = "bob") -> StoredUser:
        return read_users(self.path)[name]

    def iterations(self, name: str = "bob") -> dict[str, int]:
        return {mechanism: keys[3] for mechanism, keys in self.stored(name).scram.items()}


BOB = cheap_user("secret", "clerks")
OLD = dict.fromkeys(SCRAMS, 4_096)


def test_a_login_with_the_password_upgrades_the_keys(tmp_path: Path) -> None:
    world = World(tmp_path, bob=BOB, eve=cheap_user("other"))
    world.login()
    world.work_off()
    assert world.told == [True]
    assert world.iterations() == OLD, "written later, with those of other users"
    world.pass_time()
    assert world.iterations() == TODAY
    assert world.iterations("eve") == OLD
    stored = world.stored()
    assert (stored.roles, stored.password) == (BOB.roles, BOB.password)
    for mechanism, keys in stored.scram.items():
        assert passwords.scram_keys(mechanism, "secret", keys[0], keys[3]) == keys


def test_a_wrong_password_upgrades_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, bob=BOB)
    world.login(password=b"wrong")
    world.work_off()
    assert (world.told, world.timers, world.iterations()) == ([False], [], OLD)


def test_only_the_mechanisms_of_the_user_are_upgraded(tmp_path: Path) -> None:
    only = {"SCRAM-SHA-256": BOB.scram["SCRAM-SHA-256"]}
    world = World(tmp_path, bob=StoredUser(BOB.roles, BOB.password, only), eve=StoredUser(BOB.roles, BOB.password))
    world.login()
    world.login("eve")
    world.work_off()
    world.pass_time()
    assert world.iterations() == {"SCRAM-SHA-256": TODAY["SCRAM-SHA-256"]}
    assert world.iterations("eve") == {}


def test_keys_of_today_are_left_alone(tmp_path: Path) -> None:
    keys = {mechanism: passwords.scram_keys(mechanism, "secret", b"salt" * 4) for mechanism in SCRAMS}
    world = World(tmp_path, bob=StoredUser(BOB.roles, BOB.password, keys))
    world.login()
    world.work_off()
    assert (world.told, world.timers) == ([True], [])


def test_a_user_who_is_changed_meanwhile_keeps_the_change(tmp_path: Path) -> None:
    """The command line writes between the login and the upgrade: a password, a role, a removal."""
    world = World(tmp_path, bob=BOB, eve=BOB, ann=BOB)
    for name in ("bob", "eve", "ann"):
        world.login(name)
    world.work_off()
    changed = cheap_user("new", "clerks")
    write_users(world.path, {"bob": changed, "eve": StoredUser(frozenset({"more"}), BOB.password, BOB.scram)})
    world.pass_time()
    assert world.stored() == changed
    assert (world.stored("eve").roles, world.iterations("eve")) == (frozenset({"more"}), TODAY)
    assert "ann" not in read_users(world.path)


def test_passwords_that_wait_are_bounded_and_one_thread_is_busy(tmp_path: Path) -> None:
    names = [f"user{number}" for number in range(WAITING_MAX + 4)]
    world = World(tmp_path, **dict.fromkeys(names, BOB))
    for name in names:
        world.upgrades.ask(name, BOB, b"secret")
    assert len(world.work) == 1
    world.work_off()
    world.pass_time()
    assert [world.iterations(name) == TODAY for name in names].count(True) == WAITING_MAX


def test_a_file_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    world = World(tmp_path, bob=BOB)
    world.path.rename(tmp_path / "away")
    for _ in range(2):
        world.login()
        world.work_off()
        world.pass_time()
    assert world.told == [True, True]
    assert [code for code, _ in world.reports] == ["security.keys_outdated"]
    assert not world.path.exists()


def test_a_scram_login_that_began_before_the_upgrade_succeeds(tmp_path: Path) -> None:
    world = World(tmp_path, bob=BOB)
    world.login()
    world.work_off()
    proven = world.gate.scram_keys("SCRAM-SHA-256", "bob")
    world.pass_time()
    world.gate.change(Policy(read_users(world.path)))
    assert world.gate.scram_keys("SCRAM-SHA-256", "bob") != proven
    peer = Peer("1.1.1.1:1", "1.1.1.1")
    world.gate.scram_done(peer, "SCRAM-SHA-256", "bob", proven, world.then())
    world.gate.change(Policy({"bob": cheap_user("new", "clerks")}))
    world.gate.scram_done(peer, "SCRAM-SHA-256", "bob", proven, world.then())
    assert world.told == [True, True, False], "but not once the password is another one"
