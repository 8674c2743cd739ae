"""Files of users and keys that change while the broker runs: read beside the event loop, applied within a tick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.config import Config
from broker.security import reload
from broker.security.reload import LOOK_PERIOD_MS, BrokerSecurity, Prepared
from broker.security.users_file import write_users
from tests.support.sim_broker import SimBroker
from tests.support.sim_gate import cheap_user


class LateRunner:
    """Remembers the work for threads until the test does it."""

    threads = 2

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def run(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """See Runner."""
        self.work.append((work, then))

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """See Runner."""

    def do(self) -> None:
        """Do the oldest work, and call back."""
        work, then = self.work.pop(0)
        try:
            result = work()
        except Exception as error:
            result = error
        then(result)


class World:
    """A broker's security over a users file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "users.toml"
        self.users("alice")
        self.config = Config.model_validate({"broker": {"data-directory": str(directory)}})
        self.broker = SimBroker()
        self.runner = LateRunner()
        self.now = 0
        self.reports: list[tuple[str, object]] = []
        self.changes = 0
        runner: Any = self.runner
        self.security = BrokerSecurity(
            self.config, self.broker.engine, runner, report=self._report, now=lambda: self.now
        )

    def _report(self, code: str, /, **fields: object) -> None:
        self.reports.append((code, fields.get("error", "")))

    def users(self, *names: str) -> None:
        """Write the users file."""
        write_users(self.path, {name: cheap_user("secret", "amq") for name in names})

    def look(self) -> None:
        """Look again, after the period."""
        self.now += LOOK_PERIOD_MS
        self.security.look(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    @property
    def known(self) -> set[str]:
        return set(self.security._prepared.policy.users or ())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_changed_file_is_read_on_a_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 users take 2.8 s of CPU, during which every client would wait."""
    world.look()
    assert not world.runner.work, "nothing has changed"
    world.users("alice", "bob")
    with monkeypatch.context() as reading:
        reading.setattr(reload, "prepare", None)
        world.look()
        world.look()
    assert len(world.runner.work) == 1, "it is being read"
    assert (world.known, world.changes) == ({"alice"}, 0)
    world.runner.do()
    assert (world.known, world.changes) == ({"alice", "bob"}, 1)
    assert world.reports == [("security.changed", "")]
    world.look()
    assert not world.runner.work


def test_files_are_looked_at_once_in_a_period(world: World) -> None:
    world.users("alice", "bob")
    for ms in (1, LOOK_PERIOD_MS - 2):
        world.now += ms
        world.security.look(world._changed)
        assert not world.runner.work
    world.now += 1
    world.security.look(world._changed)
    assert world.runner.work


def test_a_reload_changes_how_long_a_failed_login_waits(world: World) -> None:
    section = world.config.security.model_copy(update={"login_failure_delay": 1_234})
    world.security.apply(world.security.prepare(world.config.model_copy(update={"security": section})))
    assert world.security._throttle.failed("1.1.1.1", "bob") == 1_234


def test_an_unusable_file_is_reported_once_and_tried_again(world: World) -> None:
    world.path.write_text("[alice")
    for _ in range(2):
        world.look()
        world.runner.do()
    [(code, error)] = world.reports
    assert code == "security.refused"
    assert "users.toml" in str(error)
    assert (world.known, world.changes) == ({"alice"}, 0)
    world.users("bob")
    world.look()
    world.runner.do()
    assert (world.known, world.changes) == ({"bob"}, 1)


def test_files_read_before_a_reload_do_not_undo_it(world: World) -> None:
    world.users("alice", "old")
    world.look()
    work, then = world.runner.work.pop()
    read: Prepared = work()
    world.users("alice", "new")
    world.security.apply(world.security.prepare(world.config))
    then(read)
    assert (world.known, world.changes) == ({"alice", "new"}, 0)


def test_a_bug_in_reading_is_one_of_the_broker(world: World) -> None:
    world.users("bob")
    world.look()
    _, then = world.runner.work.pop()
    with pytest.raises(RuntimeError, match="planted"):
        then(RuntimeError("planted"))
    world.look()
    world.runner.do()
    assert world.known == {"bob"}, "and it tries again"
