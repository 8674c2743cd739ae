"""Who has to go where there is little room."""

from __future__ import annotations

from broker.net.admission import ConnectionSlots


class Visitor:
    """A slot that remembers that it was closed."""

    def __init__(self, origin: str, *, known: bool = False) -> None:
        self.origin = self.remote = origin
        self.known = known
        self.left = False

    def leave(self) -> None:
        """See Slot."""
        self.left = True


def test_the_stranger_who_came_first_from_where_most_come_makes_room() -> None:
    slots = ConnectionSlots(5)
    origins = ["10.0.0.1", "2001:db8::1", "10.0.0.2", "2001:db8::2", "10.0.0.3"]
    visitors = [Visitor(origin) for origin in origins]
    assert all(slots.acquire(slot) for slot in visitors)
    assert slots.acquire(Visitor("10.0.0.4"))
    assert [slot.left for slot in visitors] == [False, True, False, False, False]  # two from one network
    assert slots.acquire(Visitor("10.0.0.5"))
    assert [slot.left for slot in visitors] == [True, True, False, False, False]


def test_a_flood_from_one_place_displaces_itself() -> None:
    slots = ConnectionSlots(8)
    operator = Visitor("10.0.0.1")
    flood = [Visitor("10.0.0.66") for _ in range(50)]
    assert all(slots.acquire(slot) for slot in [*flood[:20], operator, *flood[20:]])
    assert not operator.left
    assert sum(not slot.left for slot in flood) == 7


def test_logged_in_connections_stay_and_a_full_acceptor_takes_nobody() -> None:
    slots = ConnectionSlots(2)
    first, second = Visitor("a", known=True), Visitor("a")
    assert slots.acquire(first)
    assert slots.acquire(second)
    assert slots.acquire(Visitor("b"))
    assert (first.left, second.left) == (False, True)
    third = Visitor("c", known=True)
    assert slots.acquire(third)
    assert not slots.acquire(Visitor("d"))
    slots.release(third)
    slots.release(third)
    assert slots.acquire(Visitor("d"))
