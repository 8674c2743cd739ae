"""The sections [broker], [log], [journal] and [limits]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from broker.config.section import Section
from broker.config.units import Bytes, BytesOrUnlimited, Milliseconds, MillisecondsOrOff

Count = Annotated[int, Field(ge=1)]


class BrokerSection(Section):
    """The broker as a whole."""

    name: Annotated[str, Field(min_length=1, max_length=255)] = "bartleby"
    """How this broker calls itself in logs, metrics and the CONNECTED frame."""
    data_directory: Annotated[Path, Field(strict=False)] = Path("./var")
    """Where journal, lock and tokens are; a relative path starts at the working directory."""
    shutdown_timeout: Milliseconds = 30_000
    """How long a stop may take: clients need seconds to say goodbye, service managers kill after 90 s."""
    message_expiry_scan_period: MillisecondsOrOff = 30_000
    """How late an expired message may be noticed on a queue without consumers; 0 or -1: only at delivery."""
    address_queue_scan_period: MillisecondsOrOff = 30_000
    """How often unused auto-created queues and addresses are looked for; 0 or -1: never."""
    transaction_timeout: Annotated[Milliseconds, Field(ge=1_000)] = 300_000
    """A transaction open for longer is rolled back, so that a forgotten one does not hold its messages for ever."""
    connection_ttl: MillisecondsOrOff = 60_000
    """A client without heart-beats that is silent for so long is taken for dead; -1: never."""
    global_max_size: BytesOrUnlimited = -1
    """Memory for all queued messages, above which every address counts as full; -1: global-max-size-percent."""
    global_max_size_percent: Annotated[int, Field(ge=1, le=100)] = 50
    """The part of the machine's memory for queued messages: the other half is for buffers and everybody else."""
    max_disk_usage: Annotated[int, Field(ge=-1, le=100)] = 90
    """Percent of the journal's disk, as df counts, from which every address counts as full; -1: no limit."""
    min_disk_free: BytesOrUnlimited = -1
    """Free bytes of the journal's disk below which every address counts as full; -1: max-disk-usage says it."""
    disk_scan_period: MillisecondsOrOff = 5_000
    """How often the disk's room is looked at: seconds, in which no disk fills its last tenth; 0 or -1: at the start."""

    def global_size_max(self, memory_bytes: int) -> int:
        """Bytes that all queued messages may take on a machine (or in a container) with so much memory."""
        if self.global_max_size >= 0:
            return self.global_max_size
        return memory_bytes * self.global_max_size_percent // 100


class LogSection(Section):
    """What the broker says, on standard error, one line an event."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe events that are logged; info is what happens to the broker, never a line a message."""
    format: Literal["console", "json"] = "console"
    """console for people, json for collectors."""


class RetentionSection(Section):
    """Whether segments in which nothing lives any more are kept for audits."""

    enabled: bool = False
    """true moves dead segments to retention/date=YYYY-MM-DD/ instead of deleting them: it costs disk."""
    max_age: MillisecondsOrOff = 7 * 86_400_000
    """Retained segments older than this are deleted, the oldest first: a week covers most questions; -1: no limit."""
    max_bytes: BytesOrUnlimited = 10 << 30
    """Retained segments beyond this are deleted, the oldest first, before they fill the disk; -1: no limit."""


class JournalSection(Section):
    """The journal, in which every message and every change is durable before it is confirmed."""

    segment_size: Annotated[Bytes, Field(ge=4 << 20, le=4 << 30)] = 64 << 20
    """Bytes of one preallocated file: a large one rolls seldom, a small one comes free early."""
    reserve: Bytes = 8 << 20
    """Disk kept for removals when the disk is full, so that consumers can go on and make room."""
    slow_sync_warning: Milliseconds = 1_000
    """A sync that takes longer is logged: healthy disks need some milliseconds."""
    pending_max_bytes: Annotated[Bytes, Field(ge=1 << 20)] = 16 << 20
    """Records waiting for the disk above which producers are not read: what a disk takes in a fraction of a second."""
    full_retry_interval: Annotated[Milliseconds, Field(ge=100)] = 5_000
    """How often a full disk is tried again; deleted segments are noticed at once."""
    compact_min_files: Annotated[int, Field(ge=2)] = 10
    """Files below which nothing is copied forward: a journal that small costs little disk and a fast recovery."""
    compact_percentage: Annotated[int, Field(ge=1, le=50)] = 40
    """What lives in the oldest file is copied forward while at most this part of the journal is alive (in percent)."""
    retention: RetentionSection = RetentionSection()


class LimitsSection(Section):
    """What one client can cost, so that bad input costs its sender and nobody else."""

    connect_bytes_max: Annotated[Bytes, Field(ge=1024)] = 8 << 10
    """Bytes of the first frame: with what a connection itself takes, a stranger costs 16 KiB; long tokens need more."""
    header_count_max: Count = 256
    """Headers of one frame: applications use some tens."""
    header_line_bytes_max: Annotated[Bytes, Field(ge=256)] = 16 << 10
    """Bytes of one header line, name and value: a selector or a trace context fits many times."""
    header_bytes_max: Annotated[Bytes, Field(ge=256)] = 64 << 10
    """Bytes of all headers of one frame together."""
    body_bytes_max: Bytes = 10 << 20
    """Bytes of one body in memory, which one entry of the journal has to hold; bodies in files may be larger."""
    large_body_bytes_max: Annotated[Bytes, Field(ge=1024)] = 8 << 30
    """Bytes of one body in a file of its own: an image of a machine fits, and one client cannot fill a whole disk."""
    connections_max: Count = 10_000
    """Connections of all acceptors together: below the 65,536 open files that the systemd unit allows."""
    connections_per_user_max: Annotated[int, Field(ge=-1)] = -1
    """Connections of one user at once, over all acceptors; -1: only the other limits."""
    queues_per_user_max: Annotated[int, Field(ge=-1)] = -1
    """Queues and subscriptions that a user may have made, unless resource-limit-settings says otherwise; -1: any."""
    connections_per_origin_max: Annotated[int, Field(ge=-1)] = -1
    """Connections from one address (of IPv6, its first 64 bits) at once; -1: only the other limits."""
    subscriptions_per_connection_max: Count = 1_000
    """Subscriptions of one connection: each costs memory, and a multicast one a queue."""
    transactions_per_connection_max: Count = 100
    """Open transactions of one connection: clients use one, pools some."""
    transaction_bytes_max: Annotated[Bytes, Field(ge=1024)] = 8 << 20
    """Bytes of one transaction's messages: it becomes one entry of the journal and is in memory until its commit."""
    addresses_max: Annotated[int, Field(ge=-1)] = 250_000
    """Addresses of the whole broker, from which on no new one is made for a client: 1.5 KB each; -1: no limit."""
    sessions_max: Count = 100_000
    """Sessions (MQTT) of the whole broker, connected or not: ten for each connection that there may be."""
    retained_messages_max: Annotated[int, Field(ge=-1)] = 100_000
    """Retained messages (MQTT) of the whole broker: one a topic for ever, which nobody consumes; -1: no limit."""
    retained_bytes_max: BytesOrUnlimited = 256 << 20
    """Memory for retained messages: what 100,000 of a usual size take, many times; -1: no limit."""
