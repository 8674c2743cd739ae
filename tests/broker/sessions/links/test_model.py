"""The states of links and routes: the tables are whole, and nothing happens that is not in them."""

from __future__ import annotations

from itertools import product

import pytest

from broker.sessions.links.model import LINK, ROUTE, Kind, Link, LinkSettings, Route, RouteSettings, State

#: Who moves links, and routes.
LINK_TRIGGERS = {"start", "stop", "pause", "opened", "lost", "due"}
ROUTE_TRIGGERS = {"attach", "attached", "refused", "lost", "doubt", "pause", "resolve"}


def link() -> tuple[Link, list[tuple[State, State | None]]]:
    """A stopped link with a route, and what it tells."""
    told: list[tuple[State, State | None]] = []
    settings = LinkSettings("b", ("amqp://b:5672",), (RouteSettings("r", Kind.SEND, "q", "a"),))
    made = Link(settings, lambda: 7, lambda link, route: told.append((link.state, route.state if route else None)))
    return made, told


def test_the_tables_name_every_state_and_trigger() -> None:
    assert set(LINK) == set(State) - {State.IN_DOUBT}, "in doubt is what a link shows of its routes"
    assert {trigger for row in LINK.values() for trigger in row} == LINK_TRIGGERS
    assert set(ROUTE) == set(State)
    assert {trigger for row in ROUTE.values() for trigger in row} == ROUTE_TRIGGERS


@pytest.mark.parametrize(("state", "trigger"), list(product(LINK, sorted(LINK_TRIGGERS))))
def test_every_pair_of_a_link(state: State, trigger: str) -> None:
    made, told = link()
    made.state = state
    if made.can(trigger):
        made.move(trigger, "why")
        assert (made.state, made.error, made.error_at, made.since) == (LINK[state][trigger], "why", 7, 7)
        assert told == [(made.state, None)]
    else:
        assert trigger not in LINK[state]


@pytest.mark.parametrize(("state", "trigger"), list(product(ROUTE, sorted(ROUTE_TRIGGERS))))
def test_every_pair_of_a_route(state: State, trigger: str) -> None:
    made, told = link()
    route = made.routes["r"]
    route.state = state
    route.move(trigger)
    assert route.state is ROUTE[state].get(trigger, state)
    assert bool(told) is (route.state is not state), "what changes nothing is not told"


def seen(made: Link, route: Route) -> tuple[State, int]:
    return made.status, route.in_doubt


def test_a_link_in_doubt() -> None:
    made, _ = link()
    made.move("start")
    made.move("opened")
    route = made.routes["r"]
    route.doubtful = {1, 2}
    assert seen(made, route) == (State.RUNNING, 0)
    route.move("doubt")
    assert seen(made, route) == (State.IN_DOUBT, 2)
