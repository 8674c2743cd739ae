"""How much may wait for the operating system."""

from __future__ import annotations

from typing import cast

from broker.sessions.base import BaseSession
from broker.sessions.login import Peer
from broker.sessions.output_window import UNFLUSHED_BYTES_MAX
from broker.sessions.tick import Transport
from tests.support.sim_broker import SimBroker


class Source(BaseSession):
    """What delivers."""

    def __init__(self) -> None:
        super().__init__(SimBroker().tick, cast(Transport, object()), "c", Peer("p"))
        self.told: list[bool] = []

    def pause(self, paused: bool) -> None:
        self.told.append(paused)

    def touch(self) -> None:
        """Write nothing: there is no socket."""

    def dismiss(self, reason: str) -> None:
        """Go on."""


def test_deliveries_pause_at_the_limit_and_go_on_when_all_is_flushed() -> None:
    source = Source()
    window, told = source.window, source.told
    source.sent(UNFLUSHED_BYTES_MAX - 1)
    assert (told, window.paused, window.room) == ([], False, 1)
    source.sent(1)
    assert (told, window.paused, window.room) == ([True], True, 0)
    source.open_window()
    assert (told, window.paused, window.room) == ([True, False], False, UNFLUSHED_BYTES_MAX)


def test_a_socket_that_is_full_pauses_them_too() -> None:
    source = Source()
    window, told = source.window, source.told
    source.write_blocked()
    assert (told, window.paused, window.socket_full) == ([True], True, True)
    source.open_window()
    assert (told, window.paused, window.socket_full) == ([True, False], False, False)


def test_nobody_is_told_to_go_on_who_was_not_stopped() -> None:
    source = Source()
    source.sent(10)
    source.open_window()
    assert source.told == []
