"""How much may wait for the operating system."""

from __future__ import annotations

from broker.sessions.output_window import UNFLUSHED_BYTES_MAX, OutputWindow


class Source:
    """What delivers."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def pause(self, paused: bool) -> None:
        self.told.append(paused)


def made() -> tuple[OutputWindow, list[bool]]:
    source = Source()
    return OutputWindow(source), source.told


def test_deliveries_pause_at_the_limit_and_go_on_when_all_is_flushed() -> None:
    window, told = made()
    window.sent(UNFLUSHED_BYTES_MAX - 1)
    assert (told, window.paused, window.room) == ([], False, 1)
    window.sent(1)
    assert (told, window.paused, window.room) == ([True], True, 0)
    window.flushed()
    assert (told, window.paused, window.room) == ([True, False], False, UNFLUSHED_BYTES_MAX)


def test_a_socket_that_is_full_pauses_them_too() -> None:
    window, told = made()
    window.block()
    assert (told, window.paused, window.socket_full) == ([True], True, True)
    window.flushed()
    assert (told, window.paused, window.socket_full) == ([True, False], False, False)


def test_nobody_is_told_to_go_on_who_was_not_stopped() -> None:
    window, told = made()
    window.sent(10)
    window.flushed()
    assert told == []
