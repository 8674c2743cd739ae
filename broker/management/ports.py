"""The interface of the daemon that management uses.  The daemon implements `Broker`, and so do tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from broker.engine import Engine
from broker.sessions.links.links import Links
from broker.sessions.login import Gate
from broker.sessions.tick import Tick
from store.log import Counters


@dataclass(frozen=True, slots=True)
class AcceptorState:
    """One acceptor: where it listens (as `HOST:PORT`) and its connections since the start.

    `certificate_end`: when the first certificate of its file expires, in ms since the epoch; 0: it has none.
    """

    name: str
    protocol: str
    listening: tuple[str, ...]
    connections: int
    opened: int
    refused: int
    certificate_end: int = 0


@dataclass(frozen=True, slots=True)
class Replicated:
    """The state of a broker of a pair: its role, `owner` or `standby`, and the epoch.

    For a standby: the entries of the journal that it has not copied, the seconds since it last had all of them, and,
    until it can take over, what it is doing first (`starting`).  For an owner: the database servers that its commits
    wait for (`confirmed_by`).  For both: why it makes no progress.
    """

    role: str
    epoch: int
    lag_entries: int = 0
    lag_seconds: float = 0.0
    trouble: str = ""
    starting: str = ""
    confirmed_by: str = ""


class Broker(Protocol):
    """The running broker.  Everything is read on the event loop's thread."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    @property
    def version(self) -> str:
        """The version of the software."""

    @property
    def started(self) -> int:
        """When it started, in ms since the epoch."""

    @property
    def engine(self) -> Engine:
        """The engine, whose verbs are called within a tick."""

    @property
    def tick(self) -> Tick:
        """The tick: `enter` it before calling a verb."""

    @property
    def gate(self) -> Gate:
        """Authenticates clients."""

    @property
    def links(self) -> Links:
        """The connections to other brokers, whose verbs are called within a tick."""

    def unready(self) -> list[str]:
        """Why clients should not be sent to this broker, in sentences; empty when it is ready."""

    def acceptors(self) -> Sequence[AcceptorState]:
        """All open acceptors."""

    @property
    def events(self) -> Mapping[str, int]:
        """How often each code of the log was reported since the start."""

    @property
    def counters(self) -> Counters:
        """Counters of the journal's log since the start."""

    def replicated(self) -> Replicated | None:
        """Its state in a pair; None: its journal is in files, not replicated."""

    def hand_over(self) -> None:
        """Hand the journal over to the other broker of the pair, soon."""

    @property
    def data_directory(self) -> Path:
        """The directory that holds the journal."""
