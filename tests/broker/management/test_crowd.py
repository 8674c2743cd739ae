"""Who has to go where there is little room."""

from __future__ import annotations

from broker.management.crowd import Crowd


class Visitor:
    """A guest who remembers that he was sent away."""

    def __init__(self, origin: str, *, known: bool = False) -> None:
        self.origin = origin
        self.known = known
        self.left = False

    def leave(self) -> None:
        """See Guest."""
        self.left = True


def test_the_stranger_who_came_first_from_where_most_come_makes_room() -> None:
    crowd = Crowd(5)
    origins = ["10.0.0.1", "2001:db8::1", "10.0.0.2", "2001:db8::2", "10.0.0.3"]
    guests = [Visitor(origin) for origin in origins]
    assert all(crowd.come(guest) for guest in guests)
    assert crowd.come(Visitor("10.0.0.4"))
    assert [guest.left for guest in guests] == [False, True, False, False, False]  # two from one network
    assert crowd.come(Visitor("10.0.0.5"))
    assert [guest.left for guest in guests] == [True, True, False, False, False]


def test_a_flood_from_one_place_displaces_itself() -> None:
    crowd = Crowd(8)
    operator = Visitor("10.0.0.1")
    flood = [Visitor("10.0.0.66") for _ in range(50)]
    assert all(crowd.come(guest) for guest in [*flood[:20], operator, *flood[20:]])
    assert not operator.left
    assert sum(not guest.left for guest in flood) == 7


def test_who_is_known_stays_and_a_full_house_of_them_takes_nobody() -> None:
    crowd = Crowd(2)
    first, second = Visitor("a", known=True), Visitor("a")
    assert crowd.come(first)
    assert crowd.come(second)
    assert crowd.come(Visitor("b"))
    assert (first.left, second.left) == (False, True)
    third = Visitor("c", known=True)
    assert crowd.come(third)
    assert not crowd.come(Visitor("d"))
    crowd.went(third)
    crowd.went(third)
    assert crowd.come(Visitor("d"))
