"""Links and their routes: settings, states, and counts for operators.

    link      stopped -> starting -> running, or retrying until the other broker is reached; paused passes nothing on
    route     follows its link; waits (retrying) while the other end takes nothing; in doubt until an operator resolves

Both tables are whole: what is not in them is refused (operators) or cannot happen (the network).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from broker.engine.model.message import RoutingType
from broker.sessions.sasl import PLAIN, SCRAMS


class State(StrEnum):
    """Of a link, and of a route."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    PAUSED = "paused"
    IN_DOUBT = "in-doubt"


_S: Final = State

#: A link's next state, by its state and what happens.
LINK: Final[Mapping[State, Mapping[str, State]]] = {
    _S.STOPPED: {"start": _S.STARTING},
    _S.STARTING: {"opened": _S.RUNNING, "lost": _S.RETRYING, "stop": _S.STOPPED},
    _S.RUNNING: {"lost": _S.RETRYING, "stop": _S.STOPPED, "pause": _S.PAUSED},
    _S.RETRYING: {"due": _S.STARTING, "start": _S.STARTING, "stop": _S.STOPPED},
    _S.PAUSED: {"lost": _S.RETRYING, "stop": _S.STOPPED, "start": _S.RUNNING},
}

#: A route's.
ROUTE: Final[Mapping[State, Mapping[str, State]]] = {
    _S.STOPPED: {"attach": _S.STARTING, "doubt": _S.IN_DOUBT},
    _S.STARTING: {
        "attached": _S.RUNNING,
        "refused": _S.RETRYING,
        "lost": _S.STOPPED,
        "pause": _S.PAUSED,
        "doubt": _S.IN_DOUBT,
    },
    _S.RUNNING: {"refused": _S.RETRYING, "lost": _S.STOPPED, "doubt": _S.IN_DOUBT, "pause": _S.PAUSED},
    _S.RETRYING: {"attach": _S.STARTING, "lost": _S.STOPPED, "doubt": _S.IN_DOUBT, "pause": _S.PAUSED},
    _S.PAUSED: {"attach": _S.STARTING, "lost": _S.STOPPED, "doubt": _S.IN_DOUBT},
    _S.IN_DOUBT: {"resolve": _S.STOPPED, "lost": _S.IN_DOUBT},
}


_FIGURES: Final = re.compile(r"\d+")


def is_due(at: int, now: int, longest: int) -> bool:
    """Whether a time is due that was set to be at most `longest` ms away.

    So is one that is further away: the clock was set back since.
    """
    return not now < at <= now + longest


def is_same_reason(text: str, other: str) -> bool:
    """Whether two errors are the same, whatever figures they contain."""
    return _FIGURES.sub("", text) == _FIGURES.sub("", other)


class Kind(StrEnum):
    """The kind of a route."""

    SEND = "send"
    RECEIVE = "receive"
    REMOTE_QUEUE = "remote-queue"
    TOPICS = "topics"
    MQTT = "mqtt"


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """A route as configured.

    `local`: the local queue that is read, or the local address that is filled; `remote`: the other broker's address or
    queue, empty for topics, whose messages keep their address.  `origin`: the remote queue that messages were sent to,
    if several share a transmission queue.
    """

    name: str
    kind: Kind
    local: str
    remote: str = ""
    routing_type: RoutingType = RoutingType.ANYCAST
    origin: str = ""
    selector: str = ""
    priority: int = 0
    only_with_consumers: bool = False
    reserve: int = 0
    use_dead_letter: bool = True
    fast: bool = False
    holds: bool = False
    topic: str = ""
    inward: bool = False
    outward: bool = False
    qos: int = 1
    local_prefix: str = ""
    remote_prefix: str = ""

    @property
    def reads(self) -> bool:
        """Whether it reads a local queue; else it only fills a local address."""
        return self.outward or self.kind in (Kind.SEND, Kind.REMOTE_QUEUE, Kind.TOPICS)


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """A link as configured; times in ms, `window` in messages."""

    name: str
    urls: tuple[str, ...]
    routes: tuple[RouteSettings, ...]
    enabled: bool = True
    user: str = ""
    password: bytes = field(default=b"", repr=False)
    sasl_mechanisms: tuple[str, ...] = (*SCRAMS, PLAIN)
    scram_iterations_max: int = 2_000_000
    retry_interval: int = 1_000
    retry_interval_max: int = 30_000
    idle_timeout: int = 60_000
    window: int = 1_000
    max_hops: int = 4


#: Called at each change of a state with the link, and the route or None.
Changed = Callable[["Link", "Route | None"], None]


class Route:
    """A route as it is now; times in ms since the epoch."""

    def __init__(self, link: Link, settings: RouteSettings) -> None:
        self.link = link
        self.settings = settings
        self.state = State.STOPPED
        self.since = 0
        self.error = ""
        self.error_at = 0
        self.passed = 0  # messages that the other broker accepted, or that came from it
        self.refused = 0
        self.unsettled = 0
        self.doubtful: set[int] = set()  # messages whose outcome is unknown
        self.suspects = 0  # messages of which one may have ended the AMQP session: they are sent one by one
        self.retry_at = 0
        self.bartleby = False  # the other broker is a Bartleby: exactly once
        self.looked_back = False  # for messages that an earlier run of this broker left in doubt

    @property
    def name(self) -> str:
        """Its name, unique in its link."""
        return self.settings.name

    @property
    def in_doubt(self) -> int:
        """Messages whose outcome is unknown, and that are held."""
        return len(self.doubtful) if self.state is State.IN_DOUBT else 0

    def note(self, error: str) -> None:
        """Note the last error."""
        self.error, self.error_at = error, self.link.now()

    def move(self, trigger: str, error: str = "") -> None:
        """Change the state, if the trigger does."""
        after = ROUTE[self.state].get(trigger)
        if error:
            self.note(error)
        if after is not None and after is not self.state:
            self.state, self.since = after, self.link.now()
            self.link.changed(self.link, self)


class Link:
    """A link as it is now; times in ms since the epoch."""

    def __init__(self, settings: LinkSettings, now: Callable[[], int], changed: Changed) -> None:
        self.settings = settings
        self.now = now
        self.changed = changed
        self.state = State.STOPPED
        self.since = now()
        self.error = ""
        self.error_at = 0
        self.client_id = ""  # of this broker at the other one, over MQTT
        self.peer = ""  # the other broker's product and container id
        self.remote = ""  # its URL
        self.scram_offered: set[str] = set()  # URLs whose broker has offered SCRAM
        self.scram_refused: set[str] = set()  # and those whose broker has refused the user by SCRAM
        self.attempts = 0  # that have failed since the last success
        self.attempts_before = 0  # that had failed before it
        self.opened_at = 0
        self.retry_at = 0
        self.pausing = False  # an operator has paused it: it stays so when it is connected again
        self.routes: dict[str, Route] = {each.name: Route(self, each) for each in settings.routes}

    @property
    def name(self) -> str:
        """Its name."""
        return self.settings.name

    @property
    def status(self) -> State:
        """Its state for operators: in doubt as long as one of its routes is."""
        if self.state is State.RUNNING and any(each.state is State.IN_DOUBT for each in self.routes.values()):
            return State.IN_DOUBT
        return self.state

    @property
    def connected(self) -> bool:
        """Whether it has logged in to the other broker."""
        return self.state in (State.RUNNING, State.PAUSED)

    def can(self, trigger: str) -> bool:
        """Whether a trigger is possible now."""
        return trigger in LINK[self.state]

    def move(self, trigger: str, error: str = "") -> None:
        """Change the state.  The trigger must be possible."""
        if error:
            self.error, self.error_at = error, self.now()
        self.state, self.since = LINK[self.state][trigger], self.now()
        self.changed(self, None)
