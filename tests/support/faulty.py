"""Faults for a broker process, planted before it runs: `DaemonProcess(..., preparation=planted(FAULT))`.

deliver     a STOMP session fails when it gets a message with the body `poison`
move        the engine fails when a dead letter's copy is written and the original is to be removed
sync        the disk fails at the first sync after the file `sync-fails` has appeared beside the configuration, and
            nothing can be removed from the disk once the file `read-only` has appeared
task        the task that supervises connections dies when the file `task-dies` has appeared there
users       the directory of the users file cannot be listed while the file `users-hidden` is there
stuck       no tick ends once the file `ticks-stuck` has appeared
reload      a reload fails with an exception that no part of it expects
recovery    the journal is being read (the broker reports `reading`) while the file `recovery-waits` is there
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn


def planted(fault: str) -> str:
    """Return the code that plants a fault."""
    return f"from tests.support import faulty; faulty.FAULTS[{fault!r}]()"


def _deliver() -> None:
    from broker.sessions.stomp.delivery import Subscription

    original = Subscription.deliver

    def deliver(self: Subscription, consumer: Any, messages: Any) -> None:
        if any(message.body == b"poison" for message in messages):
            raise RuntimeError("planted")
        original(self, consumer, messages)

    Subscription.deliver = deliver  # type: ignore[method-assign]


def _move() -> None:
    from broker.engine.moves import move

    def remove(*args: object) -> None:
        raise RuntimeError("planted")

    setattr(move, "remove", remove)  # noqa: B010


def _sync() -> None:
    for name in ("fdatasync", "pwritev"):  # which writes and syncs
        setattr(os, name, _failing(getattr(os, name), "sync-fails", errno.EIO))
    os.unlink = _failing(os.unlink, "read-only", errno.EROFS)  # type: ignore[assignment]


def _failing(original: Callable[..., object], since: str, number: int) -> Callable[..., object]:
    def failing(*arguments: object, **options: object) -> object:
        if _beside(since):
            raise OSError(number, os.strerror(number))
        return original(*arguments, **options)

    return failing


def _task() -> None:
    from broker.net.listener import Listener

    original = Listener.check

    class Unwatched(BaseException):
        """An exception that no part of the broker expects."""

    def check(self: Listener) -> Iterator[None]:
        if _beside("task-dies"):
            raise Unwatched("planted")
        return original(self)

    Listener.check = check  # type: ignore[method-assign]


def _users() -> None:
    from broker.security import reload

    reload.LOOK_PERIOD_MS = 500  # type: ignore[misc]  # some looks while it lasts
    exists, stat = Path.exists, Path.stat

    def hide(path: Path) -> None:
        if path.name == "users.toml" and os.path.exists(Path(_configuration()).parent / "users-hidden"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def hidden_exists(self: Path, **options: Any) -> bool:
        hide(self)
        return exists(self, **options)

    def hidden_stat(self: Path, **options: Any) -> os.stat_result:
        hide(self)
        return stat(self, **options)

    Path.exists = hidden_exists  # type: ignore[method-assign]
    Path.stat = hidden_stat  # type: ignore[method-assign]


def _reload() -> None:
    from broker.security.reload import BrokerSecurity

    def prepare(self: BrokerSecurity, config: Any) -> NoReturn:
        raise RuntimeError("planted")

    BrokerSecurity.prepare = prepare  # type: ignore[method-assign]


def _stuck() -> None:
    from broker.sessions.tick import Tick

    original = Tick.end

    def end(self: Tick) -> None:
        if not _beside("ticks-stuck"):
            original(self)

    Tick.end = end  # type: ignore[method-assign]


def _recovery() -> None:
    from broker.clock import rest
    from broker.daemon import wiring

    original = wiring.restore

    def restore(*arguments: Any) -> Any:
        sys.stderr.write("reading\n")
        while _beside("recovery-waits"):
            rest(0.01)
        return original(*arguments)

    setattr(wiring, "restore", restore)  # noqa: B010


def _configuration() -> str:
    return sys.argv[sys.argv.index("--config") + 1]


def _beside(name: str) -> bool:
    return (Path(_configuration()).parent / name).exists()


FAULTS: Final[dict[str, Callable[[], None]]] = {
    "deliver": _deliver,
    "move": _move,
    "sync": _sync,
    "task": _task,
    "users": _users,
    "reload": _reload,
    "stuck": _stuck,
    "recovery": _recovery,
}
