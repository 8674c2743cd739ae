"""The sections [broker], [log], [telemetry], [journal] and [limits]."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from broker.config.section import Section
from broker.config.units import Bytes, BytesOrUnlimited, Milliseconds, MillisecondsOrOff

Count = Annotated[int, Field(ge=1)]

#: A name, an IPv4 address or an IPv6 address in brackets; then optionally a port.
_FAILOVER_HOST: Final = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?", re.ASCII)


def host_and_port(text: str) -> tuple[str, int]:
    """The host without brackets, and the port, 0 if there is none.  Raises ValueError with the fix."""
    found = _FAILOVER_HOST.fullmatch(text)
    port = int(found[2] or 0) if found else 0
    if found is None or port > 65_535 or (found[2] and not port):
        raise ValueError(
            'give a host name or address as clients know it, "one.example" or "[2001:db8::1]", with a'
            ' port only if it is not that of the acceptor: "one.example:61613"'
        )
    return found[1].strip("[]"), port


#: The most brokers that clients are told of: a pair and its standbys have fewer, and 32 of the longest names still fit
#: into one Server Reference (64 KiB) and a STOMP header line.
FAILOVER_HOSTS_MAX: Final = 32

#: The most bytes of a host's name (RFC 1035 has 253 characters, and a dot).
HOST_BYTES_MAX: Final = 255


def failover_host(text: str) -> str:
    """Check where clients find a broker.  Raises ValueError with the fix."""
    host, _ = host_and_port(text)
    if len(host.encode()) > HOST_BYTES_MAX:
        raise ValueError(f"a host name has at most {HOST_BYTES_MAX} bytes")
    return text


class BrokerSection(Section):
    """The broker as a whole."""

    name: Annotated[str, Field(min_length=1, max_length=255)] = "bartleby"
    """The broker's name in logs, metrics, the CONNECTED frame and at other brokers."""
    data_directory: Annotated[Path, Field(strict=False)] = Path("./var")
    """The directory of journal, users and token; a relative path starts at the working directory."""
    audit_reports: Annotated[Path, Field(strict=False)] = Path("/var/lib/bartleby-audit/reports")
    """The directory of nightly audit reports, which the console shows; the broker's user must be able to read it."""
    shutdown_timeout: Milliseconds = 30_000
    """How long a stop may take: clients need seconds to disconnect, and service managers kill after 90 s."""
    message_expiry_scan_period: MillisecondsOrOff = 30_000
    """How late an expired message may be noticed on a queue without consumers; 0 or -1: only at delivery."""
    address_queue_scan_period: MillisecondsOrOff = 30_000
    """How often to look for unused auto-created queues and addresses; 0 or -1: never."""
    transaction_timeout: Annotated[Milliseconds, Field(ge=1_000)] = 300_000
    """A transaction open for longer is rolled back, so that a forgotten one does not hold messages for ever."""
    connection_ttl: MillisecondsOrOff = 60_000
    """A client without heart-beats that is silent for this long counts as dead; -1: never."""
    global_max_size: BytesOrUnlimited = -1
    """Memory for all queued messages, above which every address is full; -1: global-max-size-percent."""
    global_max_size_percent: Annotated[int, Field(ge=1, le=100)] = 50
    """Percent of the machine's memory for queued messages: the rest is for buffers and other processes."""
    max_disk_usage: Annotated[int, Field(ge=-1, le=100)] = 90
    """Percent of the journal's disk in use, as df counts, from which every address is full; -1: no limit."""
    min_disk_free: BytesOrUnlimited = -1
    """Free bytes of the journal's disk below which every address is full; -1: max-disk-usage decides."""
    disk_scan_period: MillisecondsOrOff = 5_000
    """How often to check free disk space: in 5 s no disk fills its last tenth; 0 or -1: only at the start."""
    failover_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(failover_host)], ...], Field(strict=False, max_length=FAILOVER_HOSTS_MAX)
    ] = ()
    """Where clients find a pair, as sent to them: "one.example", "two.example"; the same on both; 32 at most."""

    def global_size_max(self, memory_bytes: int) -> int:
        """Bytes that all queued messages may take on a machine (or in a container) with this much memory."""
        if self.global_max_size >= 0:
            return self.global_max_size
        return memory_bytes * self.global_max_size_percent // 100


class LogSection(Section):
    """The broker's log, on standard error, one line per event."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level to log; info is about the broker, never a line for each message."""
    format: Literal["console", "json"] = "console"
    """console for people, json for log collectors."""


class TelemetrySection(Section):
    """Traces of messages for OpenTelemetry, with the extra [otel]."""

    endpoint: str = ""
    """Where to send spans by OTLP over HTTP, such as "http://localhost:4318/v1/traces"; empty: no traces."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of messages to trace although their sender does not: each span costs time; 1: all."""
    export_interval: Annotated[Milliseconds, Field(ge=100)] = 1_000
    """How long to collect spans before sending them: each request has its cost, and traces are not urgent."""
    export_timeout: Annotated[Milliseconds, Field(ge=100)] = 10_000
    """How long a request may take, with all its retries, before its spans are lost."""
    spans_per_second_max: Count = 1_000
    """Spans sent per second, above which they wait: a thousand cost one or two tenths of a core."""
    queue_max: Count = 8_192
    """Spans waiting to be sent, above which new ones are lost and counted: at most 4 KiB each."""


class RetentionSection(Section):
    """Whether segments without live messages are kept for audits."""

    enabled: bool = False
    """true: move dead segments to retention/date=YYYY-MM-DD/ instead of deleting them; this costs disk space."""
    max_age: MillisecondsOrOff = 7 * 86_400_000
    """Retained segments older than this are deleted: a week covers most questions; -1: no limit."""
    max_bytes: BytesOrUnlimited = 10 << 30
    """Retained segments beyond this are deleted, the oldest first, before they fill the disk; -1: no limit."""


class PostgresqlSection(Section):
    """The database that holds the journal with log = "postgresql"; every broker of a pair also has a copy."""

    dsn: str = ""
    """The connection string of libpq, with primary and standby: host=one,two dbname=bartleby."""
    dsn_file: Annotated[Path | None, Field(strict=False)] = None
    """A file that holds the dsn, so that its password is nowhere else; unset: dsn."""
    schema_name: Annotated[str, Field(min_length=1, max_length=63)] = "bartleby"
    """The schema of the tables: pairs of brokers that share a database need one each."""
    lease: Annotated[Milliseconds, Field(ge=1_000)] = 5_000
    """How long an owner stays owner without renewing: a standby takes over this much later."""
    renewal: Annotated[Milliseconds, Field(ge=100)] = 1_000
    """How often the owner renews its lease: several times per lease, so that a lost renewal does no harm."""
    connect_timeout: Annotated[Milliseconds, Field(ge=1_000)] = 2_000
    """How long connecting to each host may take before the next one is tried."""
    stall_timeout: Annotated[Milliseconds, Field(ge=100)] = 2_000
    """A commit that takes longer stops producers, whose messages could not be confirmed."""
    synchronous_commit: Literal["remote_write", "on", "remote_apply"] = "on"
    """What a commit waits for on the standby: written, synced or visible; the server's setting must be as strict."""
    single_copy: bool = False
    """true: the database needs no synchronous standby; confirmed messages are lost with its disk."""
    redirect: bool = False
    """true: a standby listens too, but only redirects clients to broker.failover-hosts."""


class JournalSection(Section):
    """The journal, in which every message and every change is durable before it is confirmed."""

    log: Literal["files", "postgresql"] = "files"
    """files: this machine's disk; postgresql: a database with a standby, for brokers that take over from each other."""
    segment_size: Annotated[Bytes, Field(ge=4 << 20, le=4 << 30)] = 64 << 20
    """Bytes of one preallocated file: large files are changed seldom, small ones are freed early."""
    reserve: Bytes = 8 << 20
    """Disk space reserved for removals, so that consumers can make room when the disk is full."""
    slow_sync_warning: Milliseconds = 1_000
    """A sync that takes longer is logged: healthy disks take a few milliseconds."""
    pending_max_bytes: Annotated[Bytes, Field(ge=1 << 20)] = 16 << 20
    """Bytes waiting for the disk above which producers wait: what a disk writes in a fraction of a second."""
    full_retry_interval: Annotated[Milliseconds, Field(ge=100)] = 5_000
    """How often to try a full disk again; deleted segments are noticed at once."""
    compact_min_files: Annotated[int, Field(ge=2)] = 10
    """With fewer files nothing is copied forward: a small journal costs little disk space and recovers fast."""
    compact_percentage: Annotated[int, Field(ge=1, le=50)] = 40
    """Live records of the oldest file are copied forward while at most this percentage of the journal is live."""
    retention: RetentionSection = RetentionSection()
    postgresql: PostgresqlSection = PostgresqlSection()


class LimitsSection(Section):
    """What one client may cost, so that bad input costs only its sender."""

    connect_bytes_max: Annotated[Bytes, Field(ge=1024)] = 8 << 10
    """Bytes of the first frame: a client costs at most 16 KiB before it logs in; long tokens need more."""
    header_count_max: Count = 256
    """Headers of one frame: applications use dozens at most."""
    header_line_bytes_max: Annotated[Bytes, Field(ge=256)] = 16 << 10
    """Bytes of one header line, name and value: many times the size of a selector or a trace context."""
    header_bytes_max: Annotated[Bytes, Field(ge=256)] = 64 << 10
    """Bytes of all headers of one frame together."""
    body_bytes_max: Bytes = 10 << 20
    """Bytes of one body in memory, which must fit into one journal entry; bodies in files may be larger."""
    large_body_bytes_max: Annotated[Bytes, Field(ge=1024)] = 8 << 30
    """Bytes of one body in its own file: fits a machine image, but keeps one client from filling a disk."""
    connections_max: Count = 10_000
    """Connections of all acceptors together: below the 65,536 open files that the systemd unit allows."""
    connections_per_user_max: Annotated[int, Field(ge=-1)] = -1
    """Connections of one user at once, over all acceptors; -1: only the other limits."""
    queues_per_user_max: Annotated[int, Field(ge=-1)] = -1
    """Queues and subscriptions created for one user, unless resource-limit-settings differs; -1: no limit."""
    connections_per_origin_max: Annotated[int, Field(ge=-1)] = -1
    """Connections at once from one address (IPv6: its first 64 bits); -1: only the other limits."""
    subscriptions_per_connection_max: Count = 1_000
    """Subscriptions of one connection: each costs memory, and on multicast addresses a queue."""
    selector_terms_per_connection_max: Count = 16_384
    """Operators, names and constants of one connection's different selectors: 16 for each of a thousand, 5 MiB."""
    transactions_per_connection_max: Count = 100
    """Open transactions of one connection: clients use one, connection pools several."""
    transaction_bytes_max: Annotated[Bytes, Field(ge=1024)] = 8 << 20
    """Bytes of one transaction's messages: they stay in memory until the commit, then form one journal entry."""
    open_transactions_bytes_max: Annotated[Bytes, Field(ge=1024)] = 32 << 20
    """Memory of what all open transactions of one connection send, acknowledge and return: four of the largest."""
    addresses_max: Annotated[int, Field(ge=-1)] = 250_000
    """Addresses of the whole broker, above which clients cannot create more: 1.5 KB each; -1: no limit."""
    queues_max: Annotated[int, Field(ge=-1)] = 1_000_000
    """Queues and subscriptions of all, above which clients cannot create more: some 4 KB each; -1: no limit."""
    sessions_max: Count = 100_000
    """MQTT sessions of the whole broker, connected or not: ten for each possible connection."""
    retained_messages_max: Annotated[int, Field(ge=-1)] = 100_000
    """MQTT retained messages of the whole broker: one for each topic, kept until replaced; -1: no limit."""
    retained_bytes_max: BytesOrUnlimited = 256 << 20
    """Memory for retained messages: many times what 100,000 of usual size take; -1: no limit."""
