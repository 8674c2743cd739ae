"""The broker's log: one line per event, with a stable code and UTC time, without payloads.

Much of what is logged was chosen by a peer: client ids, queue names, error texts.  None of it may forge a line or a
field: unprintable characters are escaped, values other than a plain word are quoted, and long ones are cut.  Nor may a
peer fill the disk: codes that peers can provoke at will are limited to some lines a second; the rest are counted and
reported in one line (`log.suppressed`).

The engine calls `report`; operators look up `CODES` with `bartleby explain` or in docs/reasons.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import RLock
from typing import Final, Literal, NamedTuple, TextIO

from broker.clock import monotonic_ms, wall_ms
from broker.security.audit_log import AUDITED, AuditLog

Level = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["console", "json"]

#: Characters logged of one value: enough for the longest names, not for a body.
VALUE_CHARS_MAX: Final = 512

#: Characters logged of a traceback: some thirty frames.
TRACEBACK_CHARS_MAX: Final = 4096

#: Lines of one limited code per period: enough to see what happens, 20 KB/s at most.
LINES_PER_PERIOD_MAX: Final = 20
PERIOD_MS: Final = 1_000


class Code(NamedTuple):
    """The meaning of an event code.  `limited`: peers can provoke it at will, so excess lines are only counted."""

    level: Level
    meaning: str
    limited: bool = False


CODES: Final[dict[str, Code]] = {
    "access.denied": Code("warning", "A client lacks the permission for what it tried to do.", True),
    "address.auto_deleted": Code("info", "An unused address that had been created automatically was deleted."),
    "address.changed": Code("info", "An operator added routing types to an address."),
    "address.deleted": Code("warning", "An operator deleted an address and its queues."),
    "address.full.blocking": Code("warning", "An address is full: its producers wait for room.", True),
    "address.full.dropping": Code("warning", "An address is full: new messages are dropped and counted.", True),
    "address.full.paging": Code(
        "info", "An address is full: new messages are kept on disk only until consumers catch up.", True
    ),
    "address.full.unpageable": Code(
        "warning",
        "A full address cannot page because one of its queues keeps its messages in memory: producers wait.",
        True,
    ),
    "address.made": Code("info", "An operator created an address."),
    "address.paused": Code("info", "An operator paused all queues of an address."),
    "address.resumed": Code("info", "An operator resumed the queues of an address."),
    "address.sent": Code("info", "An operator sent a message to an address.", True),
    "amqp.error": Code("info", "An AMQP connection, session or link was closed because of an error.", True),
    "amqp.transfer_dropped": Code(
        "info",
        "Messages that an AMQP client had sent pre-settled were refused: they are lost, and the client is not told.",
        True,
    ),
    "audit.failed": Code("error", "The audit log cannot be written; look for its missing entries in this log.", True),
    "body.unreadable": Code(
        "error",
        "A large body cannot be read from its file: its message is redelivered if that may help, else dead-lettered.",
        True,
    ),
    "broker.error": Code(
        "error", "A bug in the broker made an operation of its own fail; the broker carries on.", True
    ),
    "broker.failed": Code(
        "critical", "A bug in the broker left its state in doubt: the process ends at once and has to be restarted."
    ),
    "broker.task_died": Code(
        "critical", "An essential background task of the broker has failed: the process ends at once."
    ),
    "clock.jumped": Code("warning", "The system clock was set; running delays and timeouts keep their length."),
    "config.deleted": Code(
        "warning", "An address, queue or divert that is no longer in the configuration was deleted, with its messages."
    ),
    "connection.closed": Code("debug", "A connection ended."),
    "connection.dismissed": Code("warning", "An operator closed a connection."),
    "connection.failed": Code(
        "error",
        "A bug in the broker ended a connection; its client's unacknowledged messages are back on their queues.",
        True,
    ),
    "connection.foreign": Code("info", "A client speaks another protocol than its acceptor.", True),
    "connection.handshake_timeout": Code("info", "A client connected but sent no login in time.", True),
    "connection.opened": Code("debug", "A client connected."),
    "connection.refused": Code("warning", "A connection was refused: a limit on connections is reached.", True),
    "connection.silent": Code(
        "info", "A client's heart-beats stopped: it was disconnected, and its deliveries count as failed.", True
    ),
    "connection.unaccepted": Code(
        "error", "The operating system could not accept a connection, often for want of file descriptors.", True
    ),
    "console.login": Code("info", "An operator logged in to the web console.", True),
    "console.logout": Code("info", "A login to the web console ended; `reason` says why.", True),
    "consumer.dismissed": Code("warning", "An operator closed a consumer."),
    "consumer.slow": Code(
        "warning", "A consumer is slower than slow-consumer-threshold; with the policy KILL it is closed.", True
    ),
    "disk.full": Code("error", "The disk is fuller than max-disk-usage or min-disk-free allows: producers wait."),
    "disk.room": Code("info", "The disk has room again: producers continue."),
    "disk.unseen": Code("warning", "The free disk space cannot be read; the last figure stays in use.", True),
    "divert.deleted": Code("info", "An operator deleted a divert."),
    "divert.made": Code("info", "An operator created a divert."),
    "divert.no_address": Code("warning", "A divert's forwarding address cannot be created: it gets no copies.", True),
    "journal.cleaned": Code("debug", "Live records of the oldest segment were copied forward, to free it."),
    "journal.failed": Code("critical", "The disk failed: the broker stops at once and confirms nothing more."),
    "journal.full": Code("error", "The disk has no room for messages: senders are refused, consumers continue."),
    "journal.index_failed": Code(
        "warning", "The indexes by which a message's trail is found cannot be written; trails take longer.", True
    ),
    "journal.recovered": Code("info", "The journal was read and its messages were restored."),
    "journal.replayed": Code("info", "An operator brought messages back from the journal."),
    "journal.room": Code("info", "The disk has room for messages again."),
    "journal.slow_sync": Code("warning", "A write took longer to reach the disk than slow-sync-warning.", True),
    "journal.torn_tail": Code(
        "warning", "A crash left the end of the journal unfinished; it was cut off, and a copy is in torn/."
    ),
    "library.message": Code("warning", "A library that the broker uses logged something, at this level.", True),
    "link.connected": Code("info", "A link has logged in to the other broker."),
    "link.lost": Code("warning", "A link has lost its connection, or could not be connected; it tries again.", True),
    "link.operated": Code("info", "An operator started, stopped, paused or resolved a link."),
    "link.reserved": Code(
        "info", "The link of another broker has lost its connection; messages that it may already have are kept for it."
    ),
    "link.route_doubtful": Code(
        "warning", "A connection was lost before the other broker answered; the route holds the messages in question."
    ),
    "link.route_running": Code("info", "A route of a link is forwarding messages."),
    "link.route_waiting": Code(
        "warning", "The other broker refuses the messages of a route; the route tries again.", True
    ),
    "link.unreserved": Code(
        "warning", "Messages kept for the link of another broker go to other consumers, and may be processed twice."
    ),
    "listening": Code("info", "An acceptor is open."),
    "log.suppressed": Code("warning", "Lines of another code were left out to keep the log readable."),
    "login.accepted": Code("debug", "A client logged in, or needed no login."),
    "login.expired": Code("info", "A connection was closed because its token expired.", True),
    "login.failed": Code("error", "A bug in the broker made the check of a login fail: the client was refused.", True),
    "login.refused": Code(
        "warning", "A client's login was refused; only this log has the reason, which the client is not told.", True
    ),
    "login.revoked": Code(
        "warning", "A connection was closed because its user, certificate rule or token key was removed."
    ),
    "login.too_large": Code(
        "warning", "A client's login is larger than connect-bytes-max: raise it if you use long tokens or wills.", True
    ),
    "login.too_many": Code("warning", "A login was refused: the user has reached its limit of connections.", True),
    "management.called": Code("info", "An operator made a management call that changes something.", True),
    "management.denied": Code("warning", "A management call had neither the token nor a valid login.", True),
    "message.dead_lettered": Code("info", "A message was moved to its dead-letter address.", True),
    "message.duplicate": Code(
        "info", "Messages were refused because their duplicate id had been accepted before.", True
    ),
    "message.expired_unkept": Code("warning", "A message expired and was removed: its address has no expiry address."),
    "message.killed": Code("warning", "A message died and was removed: its address has no dead-letter address.", True),
    "message.no_route": Code("info", "A message that no queue took was moved to its dead-letter address.", True),
    "message.unrendered": Code(
        "error", "A bug in the broker made sending a message to a consumer fail: the message is a dead letter.", True
    ),
    "move.disk_full": Code("error", "A dead or expired message stays on its queue: the journal has no room.", True),
    "move.no_queue": Code(
        "error", "A dead or expired message stays on its queue: no queue of the target address takes it.", True
    ),
    "move.queue_created": Code("warning", "A queue was created for dead or expired messages that no other queue took."),
    "move.queue_refused": Code("error", "A queue for dead or expired messages could not be created.", True),
    "mqtt.error": Code("info", "An MQTT connection was closed because of an error.", True),
    "mqtt.publish_dropped": Code(
        "info", "Messages of an MQTT client were refused: they are lost, and the client is not told.", True
    ),
    "mqtt.retained_unsent": Code("warning", "A new MQTT subscription did not get a retained message.", True),
    "mqtt.subscription_idle": Code(
        "warning", "An MQTT session's subscription could not be resumed: it gets no messages.", True
    ),
    "mqtt.will_refused": Code("warning", "The will of an MQTT client could not be published.", True),
    "paging.failed": Code(
        "error", "Paged messages cannot be read from the disk; the broker tries again every second.", True
    ),
    "paging.scratch_failed": Code(
        "error", "Paged non-durable messages cannot be written to the disk and stay in memory.", True
    ),
    "paging.unreadable": Code("error", "Paged messages are damaged or missing; they stay on their queue, undelivered."),
    "queue.auto_deleted": Code("info", "An unused queue that had been created automatically was deleted."),
    "queue.changed": Code("info", "An operator changed the attributes of a queue."),
    "queue.deleted": Code("warning", "An operator deleted a queue and its messages."),
    "queue.full.dropping": Code(
        "warning", "A queue has reached its limit of waiting messages: new ones are dropped.", True
    ),
    "queue.full.evicting": Code(
        "warning", "A queue has reached its limit of waiting messages: the oldest are dropped.", True
    ),
    "queue.full.memory": Code(
        "warning", "Memory is full: non-durable messages for a client that does not keep up are dropped.", True
    ),
    "queue.imported": Code("info", "An operator put messages of an export on a queue."),
    "queue.made": Code("info", "An operator created a queue."),
    "queue.paused": Code("info", "An operator paused a queue."),
    "queue.resumed": Code("info", "An operator resumed a queue."),
    "ready": Code("info", "The broker has started and accepts clients."),
    "reload.done": Code("info", "A changed configuration is in force, except for the settings in restart_needed_for."),
    "reload.failed": Code(
        "error", "A bug in the broker interrupted a reload: restart the broker, as only part of it may be in force."
    ),
    "reload.refused": Code("error", "A changed configuration has errors; the old one stays in force."),
    "reload.undeclared": Code(
        "error",
        "A queue or divert of a changed configuration could not be created as written; those after it were skipped.",
    ),
    "replication.claimed": Code("info", "Only this broker can now write the journal; it reads the rest of it."),
    "replication.goes_on": Code("info", "The database of the journal answers again: producers continue."),
    "replication.handing_over": Code("warning", "An operator hands the journal over to another broker."),
    "replication.owner": Code("info", "This broker of a pair owns the journal now, under this epoch."),
    "replication.stalled": Code("warning", "The database of the journal does not answer: producers wait."),
    "replication.standby": Code("info", "This broker is a standby: it copies the journal until it may own it."),
    "replication.stepped_down": Code(
        "error", "This broker may no longer write the journal: it has disconnected its clients and is a standby."
    ),
    "replication.trouble": Code("warning", "A query to the database of the journal failed; it is repeated.", True),
    "retained.full": Code(
        "warning", "A retained message was refused: the limit on retained messages is reached.", True
    ),
    "retroactive.disk_full": Code(
        "warning", "A new queue did not get the messages kept for it: the journal has no room.", True
    ),
    "rule.applied": Code("info", "A rule for dead letters brought messages back, moved or discarded them.", True),
    "rule.failed": Code(
        "error", "A bug in the broker stopped the rules for dead letters until they change or the broker restarts."
    ),
    "rule.refused": Code(
        "warning", "A rule for dead letters could not move messages, which stay; the reason says why.", True
    ),
    "security.changed": Code("info", "Changed users, permissions or certificates are in force."),
    "security.first_user": Code(
        "warning", "The user admin was created because other machines can connect and there was no user."
    ),
    "security.keys_failed": Code(
        "error", "The keys for tokens cannot be fetched; those fetched before stay in use.", True
    ),
    "security.refused": Code(
        "error", "A users file, certificate or key was changed and cannot be used; the previous one stays in use."
    ),
    "start.corrupt": Code(
        "critical",
        "The journal is damaged and the broker does not start: the error names the commands to inspect and repair it.",
    ),
    "start.database": Code(
        "critical",
        "The database is not suitable for the journal, or has lost a part of it; nothing was changed.",
    ),
    "start.journal": Code("critical", "The journal cannot be opened or read; the broker does not start."),
    "start.listen": Code("critical", "An acceptor cannot listen; the broker does not start."),
    "start.locked": Code("critical", "Another broker uses the data directory; this one does not start."),
    "start.newer": Code("critical", "A newer version wrote the journal; this one does not start."),
    "start.refused": Code("critical", "The configuration contradicts the journal; the broker does not start."),
    "start.security": Code("critical", "A users file, certificate or key cannot be used; the broker does not start."),
    "stomp.error": Code("info", "A STOMP connection was closed with an ERROR frame.", True),
    "stopped": Code("info", "The broker has ended."),
    "stopping": Code("info", "The broker is stopping."),
    "task.cancelled": Code("info", "An operator cancelled a task; what it has already done is not undone."),
    "task.completed": Code("info", "A task has ended: everything is done, except for the messages refused."),
    "task.failed": Code(
        "warning", "A task could not continue; the error says why, and what it has already done is not undone."
    ),
    "task.paused": Code("info", "An operator paused a task."),
    "task.resumed": Code("info", "An operator resumed a paused task."),
    "task.started": Code(
        "info", "An operator started a task: messages are moved, removed, exported, imported or replayed step by step."
    ),
    "task.stuck": Code("warning", "The broker paused a task because the journal has no room; resume it when there is."),
    "telemetry.exporting": Code("info", "Spans reach their receiver again; `lost` counts those that did not.", True),
    "telemetry.losing": Code(
        "warning", "Spans are lost because their receiver does not accept them; messages are not affected.", True
    ),
    "tls.failed": Code("info", "A TLS handshake failed or took too long.", True),
    "transaction.timed_out": Code("warning", "A transaction stayed open too long and was rolled back.", True),
    "websocket.refused": Code(
        "warning", "A web page tried to connect from a site that websocket-origins does not list.", True
    ),
}

#: For a code outside the table, so that it is logged anyway; a test makes sure that there is none.
_UNLISTED: Final = Code("warning", "")

_LEVELS: Final[dict[str, int]] = logging.getLevelNamesMapping()


def printable(text: str) -> str:
    """The text with everything unprintable (controls, escapes, line and direction marks) escaped."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text])


def cut(text: str, chars_max: int = VALUE_CHARS_MAX) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= chars_max else text[:chars_max] + "…"


def _cut_field(name: str, value: str | int, chars_max: int) -> str | int:
    if not isinstance(value, str):
        return value
    return cut(value, TRACEBACK_CHARS_MAX if name == "traceback" else chars_max)


def _console_value(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    if value and value.isprintable() and not any(c in ' "=\\' for c in value):
        return value
    return '"' + printable(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _console(time: str, level: Level, code: str, fields: Mapping[str, str | int]) -> str:
    head = f"{time} {level.upper():8} {code}"
    return " ".join([head, *(f"{name}={_console_value(value)}" for name, value in fields.items())])


def _json(time: str, level: Level, code: str, fields: Mapping[str, str | int]) -> str:
    # `dumps` escapes everything outside ASCII and all control characters except DEL.
    return json.dumps({"time": time, "level": level, "code": code, **fields}).replace("\x7f", "\\u007f")


class _Output:
    """A stream that may fail: a log that cannot be written must not stop the broker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        """Write one line as a whole and flush it."""
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except UnicodeEncodeError:  # a terminal without Unicode
            self.write(line.encode("ascii", "backslashreplace").decode())
        except (OSError, ValueError):  # a full disk, a closed pipe, a closed stream
            return


def _utc(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


@dataclass(slots=True, eq=False)
class _Window:
    """The lines of a limited code in the current period."""

    since: int
    lines: int = field(init=False, default=0)
    suppressed: int = field(init=False, default=0)


class Log:
    """One log: a level, a format and a stream.  Implements the engine's `Report`."""

    def __init__(
        self,
        level: Level,
        format: LogFormat,
        stream: TextIO,
        *,
        wall: Callable[[], int] = wall_ms,
        monotonic: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}
        #: How often each code was reported, whether or not its line was written.
        self.counts = dict.fromkeys(CODES, 0)
        self.audit: AuditLog | None = None
        self._lock = RLock()  # the journal's writer thread reports too
        self._output = _Output(stream)
        self._render = _json if format == "json" else _console
        self.set_level(level)

    def set_level(self, level: Level) -> None:
        """Write events of this level and above from now on."""
        self._least = _LEVELS[level.upper()]

    def __call__(self, code: str, /, **fields: str | int) -> None:
        """Log an event with its level in the table."""
        self.emit(CODES.get(code, _UNLISTED).level, code, fields)

    def emit(
        self, level: Level, code: str, fields: Mapping[str, str | int], *, chars_max: int = VALUE_CHARS_MAX
    ) -> None:
        """Log an event with a level of its own; text values are cut after `chars_max` characters."""
        with self._lock:
            self.tell_suppressed()
            self.counts[code] = self.counts.get(code, 0) + 1
            audit = self.audit if code in AUDITED else None
            if audit is None and _LEVELS[level.upper()] < self._least and not CODES.get(code, _UNLISTED).limited:
                return  # the common case for events of connections and logins
            values = {name: _cut_field(name, value, chars_max) for name, value in fields.items()}
            if audit is not None:
                self._audit(audit, code, values)
            if CODES.get(code, _UNLISTED).limited and not self._admit(code):
                return
            self._write(level, code, values)

    def _write(self, level: Level, code: str, fields: Mapping[str, str | int]) -> None:
        if _LEVELS[level.upper()] >= self._least:
            self._output.write(self._render(_utc(self._wall()), level, code, fields))

    def _audit(self, audit: AuditLog, code: str, values: Mapping[str, str | int]) -> None:
        before = audit.failed
        audit.write(_utc(self._wall()), code, values)
        if audit.failed is not before:
            self("audit.failed", error=str(audit.failed))

    def _admit(self, code: str) -> bool:
        window = self._windows.get(code)
        if window is None:
            window = self._windows[code] = _Window(self._monotonic())
        if window.lines == LINES_PER_PERIOD_MAX:
            window.suppressed += 1
            return False
        window.lines += 1
        return True

    def tell_suppressed(self, *, now: bool = False) -> None:
        """Report the lines suppressed in past periods; `now`: also in the current ones, before the log ends."""
        if not self._windows:
            return
        over = self._monotonic() - PERIOD_MS
        with self._lock:
            for code, window in list(self._windows.items()):
                if now or window.since <= over:
                    del self._windows[code]
                    if window.suppressed:
                        self._write("warning", "log.suppressed", {"of": code, "lines": window.suppressed})


class _Bridge(logging.Handler):
    """Turns messages that libraries log (uvicorn, asyncio) into events of the broker's log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._tracebacks = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "critical" if record.levelno >= 50 else "error" if record.levelno >= 40 else "warning"
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # the library's arguments do not fit its format
            text = str(record.msg)
        fields: dict[str, str | int] = {"logger": record.name, "text": text}
        if record.exc_info:
            fields["traceback"] = self._tracebacks.formatException(record.exc_info)
        self._log.emit(level, "library.message", fields, chars_max=TRACEBACK_CHARS_MAX)


_current: Log | None = None


def configure(level: Level, format: LogFormat, stream: TextIO) -> Log:
    """Set up the process's log, or change its level and format.  Messages of `logging` are included."""
    global _current
    if _current is not None:
        _current.tell_suppressed(now=True)
    _current = Log(level, format, stream)
    logging.root.handlers = [_Bridge(_current)]
    return _current


def report(code: str, /, **fields: str | int) -> None:
    """Log an event (see `CODES`); ignored before `configure`."""
    if _current is not None:
        _current(code, **fields)
