"""The broker as a whole, its connections and its users, as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable
from shutil import disk_usage
from typing import Literal

from pydantic import Field

from broker.build import COMPILED
from broker.engine import Connected, Figures, Queue
from broker.management.models.base import Next, Shown, Total, model_of
from broker.management.models.links import StateName
from broker.management.ports import Broker


class AcceptorShown(Shown):
    """An acceptor: where it listens, and its connections since the start."""

    name: str
    protocol: str
    listening: list[str]
    connections: int
    opened: int
    refused: int
    certificate_end: int = Field(description="When the first certificate of its file expires; 0: it has none.")


class JournalShown(Shown):
    """The journal and its disk."""

    accepting: bool
    segments: int
    segment: int
    pending_bytes: int
    written_bytes: int
    syncs: int
    slow_syncs: int
    disk_free_bytes: int
    disk_full: bool
    disk_limit: str = Field(description="The limit of the disk that is not met, for which producers wait; empty: none.")


class ReplicationShown(Shown):
    """The state of a broker of a pair."""

    role: Literal["owner", "standby"]
    epoch: int = Field(description="How often the ownership of the journal has changed.")
    lag_entries: int = Field(description="Entries of the journal that a standby has not copied yet.")
    lag_seconds: float = Field(description="Seconds since it last could take over at once.")
    trouble: str = Field(description="Why it makes no progress; empty: it does.")
    starting: str = Field(description="What a standby has yet to do before it can take over; empty: nothing.")
    confirmed_by: str = Field(description="The database servers that each commit of the owner waits for.")


class Status(Shown):
    """The broker as a whole."""

    name: str
    version: str
    compiled: bool
    started: int
    uptime: int
    ready: bool
    reasons: list[str] = Field(description="Why it is not ready, in sentences.")
    addresses: int
    queues: int
    paused_queues: int
    consumers: int
    messages: int
    paged: int
    memory_bytes: int
    memory_bytes_max: int
    transactions: int = Field(description="Open transactions.")
    transactions_bytes: int = Field(description="Memory of what they send, acknowledge and return.")
    acceptors: list[AcceptorShown]
    without_dead_letter_address: list[str] = Field(
        description="Matches of address settings with an empty one: messages that die there are removed."
    )
    links: dict[str, StateName] = Field(description="The states of the links to other brokers, by name.")
    journal: JournalShown
    replication: ReplicationShown | None = Field(description="Its role in a pair; null: it is not in one.")


class QueueBalance(Shown):
    """How many messages of a queue the journal holds."""

    id: int
    name: str
    address: str
    durable: bool
    journalled: int


class Balance(Shown):
    """How many messages of each queue the journal holds below a position, all of which is on disk."""

    broker_id: str
    position: int
    queues: list[QueueBalance]


class Replayed(Shown):
    """What became of the messages of a replay."""

    replayed: int
    refused: dict[str, int] = Field(description="How many were not brought back, by reason.")
    stopped: str = Field(description="Why the remaining messages were not processed; empty: all were.")


class ConnectionShown(Shown):
    """A client that has logged in."""

    id: str
    protocol: str
    remote: str
    user: str
    client_id: str
    since: int


class ConnectionList(Shown):
    """Some of the connections, in the order in which they were opened."""

    connections: list[ConnectionShown]
    next: Next
    total: Total


class UserShown(Shown):
    """A user of the broker."""

    name: str
    roles: list[str]


class UserList(Shown):
    """Some of the users, by name."""

    users: list[UserShown]
    next: Next
    total: Total


def status(broker: Broker, figures: Figures) -> Status:
    """The broker as a whole; `figures`: those of all queues."""
    engine = broker.engine
    reasons, replicated = broker.unready(), broker.replicated()
    return model_of(
        Status,
        broker,
        compiled=COMPILED,
        uptime=engine.ticks.since(broker.started),
        ready=not reasons,
        reasons=reasons,
        addresses=len(engine.addresses),
        queues=len(engine.queues),
        paused_queues=figures.stopped,
        consumers=figures.attached,
        messages=engine.usage.messages,
        paged=figures.paged,
        memory_bytes=engine.usage.bytes,
        memory_bytes_max=engine.usage.bytes_max,
        transactions=len(engine.transactions),
        transactions_bytes=engine.transactions.bytes,
        acceptors=[model_of(AcceptorShown, each, listening=list(each.listening)) for each in broker.acceptors()],
        without_dead_letter_address=list(engine.configuration.without_dead_letter_address),
        links={name: link.status.value for name, link in sorted(broker.links.by_name.items())},
        journal=_journal(broker),
        replication=None if replicated is None else model_of(ReplicationShown, replicated),
    )


def _journal(broker: Broker) -> JournalShown:
    journal, counters, disk = broker.engine.journal, broker.counters, broker.engine.usage.disk
    return model_of(
        JournalShown,
        journal,
        counters,
        segments=len(journal.space.segments),
        written_bytes=counters.bytes,
        disk_free_bytes=disk_usage(broker.data_directory).free,
        disk_full=disk.full,
        disk_limit=disk.unmet if disk.full else "",
    )


def balance(broker_id: bytes, position: int, counts: Iterable[tuple[Queue, int]]) -> Balance:
    """The balance as a model; safe in any thread, since the fields of queues that it reads never change."""
    queues = [
        QueueBalance(id=queue.id, name=queue.name, address=queue.address.name, durable=queue.durable, journalled=count)
        for queue, count in counts
    ]
    return Balance(broker_id=broker_id.hex(), position=position, queues=queues)


def connection_shown(connected: Connected) -> ConnectionShown:
    """A client that has logged in."""
    access = connected.access
    return model_of(ConnectionShown, connected, user=access.user, client_id=access.client_id)
