"""The events of the log: the level, the meaning and the remedy of each code, and whom it concerns.

To add one, add its row, and `report` its code where it happens.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Level = Literal["debug", "info", "warning", "error", "critical"]

_BUG: Final = "Report the traceback in the line."
_CLIENT: Final = "Read what the line says was wrong, and correct the client."
_FULL: Final = "Let consumers catch up, or raise `max-size-bytes` of the address or `global-max-size`."
_JOURNAL_ROOM: Final = "Make room on the disk of the journal; the broker notices it automatically."
_MEANT: Final = "Nothing, if it was intended; the line and the audit log name the user."
_RESTART: Final = "Restart it, as a service manager does, and report the traceback in the line."


#: What is counted together in the audit log.
Counted = Literal["logins", "refusals"]


class Event(NamedTuple):
    """An event that is logged.

    `action`: what to do about it, empty: nothing, as an operator or a client intended it.  `limited`: peers can provoke
    it at will, so excess lines are only counted.  `audited`: auditors need it, so it goes to the audit log too;
    `counted`: there as a number for each origin if it repeats, as clients can repeat it at will.
    """

    level: Level
    meaning: str
    action: str = ""
    limited: bool = False
    audited: bool = False
    counted: Counted | None = None


EVENTS: Final[dict[str, Event]] = {
    "access.denied": Event(
        "warning",
        "A client tried to do something for which it lacks the permission.",
        "If the user should have it, add one of its roles to the matching `security-settings`.",
        limited=True,
        audited=True,
        counted="refusals",
    ),
    "address.auto_deleted": Event(
        "info", "An unused address that had been created automatically was deleted.", limited=True
    ),
    "address.changed": Event("info", "An operator added routing types to an address.", audited=True),
    "address.created": Event("info", "An operator created an address.", audited=True),
    "address.deleted": Event("warning", "An operator deleted an address and its queues.", _MEANT, audited=True),
    "address.full.blocking": Event("warning", "An address is full: its producers wait for room.", _FULL, limited=True),
    "address.full.dropping": Event(
        "warning", "An address is full: new messages are dropped and counted.", _FULL, limited=True
    ),
    "address.full.paging": Event(
        "info",
        "An address is full: new messages are kept on disk only until consumers catch up.",
        "Nothing, if consumers catch up; `bartleby queue list` shows the backlog.",
        limited=True,
    ),
    "address.full.unpageable": Event(
        "warning",
        "A full address cannot page because one of its queues keeps its messages in memory: producers wait.",
        _FULL,
        limited=True,
    ),
    "address.paused": Event("info", "An operator paused all queues of an address.", audited=True),
    "address.resumed": Event("info", "An operator resumed the queues of an address.", audited=True),
    "address.sent": Event("info", "An operator sent a message to an address.", limited=True, audited=True),
    "amqp.error": Event(
        "info", "An AMQP connection, session or link was closed because of an error.", _CLIENT, limited=True
    ),
    "amqp.link_stolen": Event(
        "info",
        "A client took over a durable subscription from another connection of its container.",
        "If both connections live, give each client a container id of its own.",
        limited=True,
    ),
    "amqp.transfer_dropped": Event(
        "info",
        "Messages that an AMQP client had sent pre-settled were refused: they are lost, and the client is not told.",
        "Let the client send unsettled to learn of refusals; remove the cause in the line.",
        limited=True,
    ),
    "audit.failed": Event(
        "error",
        "The audit log cannot be written; look for its missing entries in this log.",
        "Make the file of `security.audit-file`, and its disk, writable again.",
        limited=True,
    ),
    "body.unreadable": Event(
        "error",
        "A large body cannot be read from its file: its message is redelivered if that may help, else dead-lettered.",
        "Check the disk, and restore the file in `journal/bodies/` from a copy if it is gone.",
        limited=True,
    ),
    "broker.error": Event(
        "error", "A bug in the broker made an operation of its own fail; the broker carries on.", _BUG, limited=True
    ),
    "broker.failed": Event(
        "critical",
        "A bug in the broker left its state in doubt: the process ends at once and has to be restarted.",
        _RESTART,
    ),
    "broker.task_died": Event(
        "critical", "An essential background task of the broker has failed: the process ends at once.", _RESTART
    ),
    "clock.jumped": Event(
        "warning",
        "The system clock was set; running delays and timeouts keep their length.",
        "Keep the clock with a service that slews it (chrony, systemd-timesyncd).",
    ),
    "config.changed": Event(
        "warning",
        "A queue has another filter or routing type in the configuration: it has them from now on, and its messages.",
        "Nothing, if it was intended; messages that no longer match the filter stay until they are consumed or moved.",
    ),
    "config.deleted": Event(
        "warning",
        "An address, queue or divert that is no longer in the configuration was deleted, with its messages.",
        "Nothing, if it was intended; `bartleby journal replay` can bring the messages back.",
    ),
    "connection.accept_failed": Event(
        "error",
        "The operating system could not accept a connection, often because it has no file descriptors left; the"
        " acceptor tries again.",
        "Raise the limit of open files (`LimitNOFILE` of the unit).",
        limited=True,
    ),
    "connection.closed": Event("debug", "A connection ended."),
    "connection.dismissed": Event("warning", "An operator closed a connection.", _MEANT, audited=True),
    "connection.failed": Event(
        "error",
        "A bug in the broker ended a connection; its client's unacknowledged messages are back on their queues.",
        _BUG,
        limited=True,
    ),
    "connection.foreign": Event(
        "info",
        "A client speaks another protocol than its acceptor.",
        "Connect the client to the acceptor of its protocol, with TLS if the acceptor has it.",
        limited=True,
    ),
    "connection.handshake_timeout": Event(
        "info",
        "A client connected but sent no login in time.",
        "Look for port scanners and slow networks; `handshake-timeout` is the limit.",
        limited=True,
    ),
    "connection.opened": Event("debug", "A client connected."),
    "connection.refused": Event(
        "warning",
        "A connection was refused: a limit on connections is reached.",
        "Close connections that are not used, or raise the limit that the line names.",
        limited=True,
    ),
    "connection.silent": Event(
        "info",
        "A client's heart-beats stopped: it was disconnected, and its deliveries count as failed.",
        "Check the network, and what blocks the client.",
        limited=True,
    ),
    "console.login": Event(
        "info", "An operator logged in to the web console.", limited=True, audited=True, counted="logins"
    ),
    "console.logout": Event(
        "info",
        "A login to the web console ended; `reason` says why.",
        limited=True,
        audited=True,
        counted="logins",
    ),
    "consumer.dismissed": Event("warning", "An operator closed a consumer.", _MEANT, audited=True),
    "consumer.slow": Event(
        "warning",
        "A consumer is slower than slow-consumer-threshold; with the policy KILL it is closed.",
        "Make the consumer faster, or add others.",
        limited=True,
    ),
    "descriptors.few": Event(
        "warning",
        "The limit of open files permits fewer connections than the configuration: `connections` instead of"
        " `configured`.",
        "Raise the limit of open files (`LimitNOFILE` of the unit), or lower `limits.connections-max`.",
    ),
    "descriptors.raised": Event("info", "The broker has raised its soft limit of open files to the hard one."),
    "disk.check_failed": Event(
        "warning",
        "The free disk space cannot be read; the last figure stays in use.",
        "Check that the disk of the data directory is mounted and healthy.",
        limited=True,
    ),
    "disk.full": Event(
        "error",
        "The disk is fuller than max-disk-usage or min-disk-free allows: producers wait.",
        "Make room on the disk, or let consumers drain the queues; producers then continue automatically.",
    ),
    "disk.room": Event("info", "The disk has room again: producers continue."),
    "divert.created": Event("info", "An operator created a divert.", audited=True),
    "divert.deleted": Event("info", "An operator deleted a divert.", audited=True),
    "divert.no_address": Event(
        "warning",
        "A divert's forwarding address cannot be created: it gets no copies.",
        "Create the forwarding address, or allow `auto-create-addresses` for it.",
        limited=True,
    ),
    "journal.cleaned": Event("debug", "Live records of the oldest segment were copied forward, to free it."),
    "journal.failed": Event(
        "critical",
        "The disk failed: the broker stops at once and confirms nothing more.",
        "Repair or replace the disk, then start the broker: recovery finds out what is there.",
    ),
    "journal.full": Event(
        "error",
        "The journal has no room for messages: senders are refused, consumers continue; `cause` says what is missing.",
        "Make room on the disk of the journal, or raise the limit of open files (`LimitNOFILE` of the unit); the broker"
        " notices it automatically.",
    ),
    "journal.index_failed": Event(
        "warning",
        "The indexes by which a message's trail is found cannot be written; trails take longer.",
        "Make room on the disk, or make `index/` in the journal writable for the broker.",
        limited=True,
    ),
    "journal.recovered": Event("info", "The journal was read and its messages were restored."),
    "journal.replayed": Event("info", "An operator brought messages back from the journal.", audited=True),
    "journal.room": Event("info", "The disk has room for messages again."),
    "journal.slow_sync": Event(
        "warning",
        "A write took longer to reach the disk than slow-sync-warning.",
        "Check what else writes to this disk, and the disk's health.",
        limited=True,
    ),
    "journal.torn_tail": Event(
        "warning",
        "A crash left the end of the journal unfinished; it was cut off, and a copy is in torn/.",
        "Nothing: what was cut off had not been confirmed.",
    ),
    "library.message": Event(
        "warning",
        "A library that the broker uses logged something, at this level.",
        "Read its text; report it if it recurs.",
        limited=True,
    ),
    "link.connected": Event("info", "A link has logged in to the other broker.", limited=True),
    "link.lost": Event(
        "warning",
        "A link has lost its connection, or could not be connected; it tries again.",
        "Check the network and the other broker, and `url`, `user` and the password of the link.",
        limited=True,
    ),
    "link.operated": Event("info", "An operator started, stopped, paused or resolved a link.", _MEANT, audited=True),
    "link.password_readable": Event(
        "warning",
        "A link may send its password over the network without TLS, where others can read it: over MQTT always, over "
        "AMQP unless the other broker offers SCRAM.",
        "Let the other broker listen with TLS, and give the link a URL of `amqps` or `mqtts`; or, over AMQP, set "
        "`sasl-mechanisms` without PLAIN.",
    ),
    "link.reserved": Event(
        "info",
        "The link of another broker has lost its connection; messages that it may already have are kept for it.",
        limited=True,
    ),
    "link.route_doubtful": Event(
        "warning",
        "A connection was lost before the other broker answered; the route holds the messages in question.",
        "Find out whether the other broker has the messages, then `bartleby link resolve`.",
        limited=True,
    ),
    "link.route_running": Event("info", "A route of a link is forwarding messages.", limited=True),
    "link.route_waiting": Event(
        "warning",
        "The other broker refuses the messages of a route; the route tries again.",
        "Read the other broker's words in the line: create the address, make room or grant rights.",
        limited=True,
    ),
    "link.unreserved": Event(
        "warning",
        "Messages kept for the link of another broker go to other consumers, and may be processed twice.",
        "Find out why the other broker does not reconnect; its route's `reserve` says how long to wait.",
        limited=True,
    ),
    "listening": Event("info", "An acceptor is open."),
    "log.suppressed": Event(
        "warning",
        "Lines of another code were left out to keep the log readable.",
        "Nothing, or read the lines of the code that it names; the metrics count them all.",
    ),
    "login.accepted": Event("debug", "A client logged in, or needed no login.", audited=True, counted="logins"),
    "login.expired": Event(
        "info",
        "A connection was closed because its token expired.",
        "Let the client fetch a new token before the old one expires.",
        limited=True,
        audited=True,
        counted="logins",
    ),
    "login.failed": Event(
        "error", "A bug in the broker made the check of a login fail: the client was refused.", _BUG, limited=True
    ),
    "login.refused": Event(
        "warning",
        "A client's login was refused; only this log has the reason, which the client is not told.",
        "Read `reason` and `user` in the line; many from one address are attempts to guess a password.",
        limited=True,
        audited=True,
        counted="refusals",
    ),
    "login.revoked": Event(
        "warning",
        "A connection was closed because its user, certificate rule or token key was removed.",
        _MEANT,
        audited=True,
    ),
    "login.too_large": Event(
        "warning",
        "A client's login is larger than connect-bytes-max: raise it if you use long tokens or wills.",
        "Raise `limits.connect-bytes-max` if you use long tokens or wills.",
        limited=True,
    ),
    "login.too_many": Event(
        "warning",
        "A login was refused: the user has reached its limit of connections.",
        "Close connections of this user, or raise `limits.connections-per-user-max`.",
        limited=True,
        audited=True,
        counted="refusals",
    ),
    "management.called": Event(
        "info", "An operator made a management call that changes something.", limited=True, audited=True
    ),
    "management.denied": Event(
        "warning",
        "A management call had neither the token nor a valid login.",
        "Send the token of `management.token`, or log in as a user with the permission `manage`.",
        limited=True,
        audited=True,
        counted="refusals",
    ),
    "message.conversion_failed": Event(
        "error",
        "A bug in the broker made sending a message to a consumer fail: the message is a dead letter.",
        "Report the traceback in the line; retry the message with another client or version.",
        limited=True,
    ),
    "message.dead_lettered": Event(
        "info",
        "A message was moved to its dead-letter address.",
        "`bartleby queue browse DLQ` shows why; then `bartleby queue retry DLQ`.",
        limited=True,
    ),
    "message.duplicate": Event(
        "info",
        "Messages were refused because their duplicate id had been accepted before.",
        "Nothing, if a client sent a message again because it was not sure of it.",
        limited=True,
    ),
    "message.expired_unkept": Event(
        "warning",
        "A message expired and was removed: its address has no expiry address.",
        "Set `expiry-address` to keep expired messages.",
        limited=True,
    ),
    "message.killed": Event(
        "warning",
        "A message died and was removed: its address has no dead-letter address.",
        "Set `dead-letter-address` to keep dead messages; `bartleby journal replay` brings it back.",
        limited=True,
    ),
    "message.no_route": Event(
        "info",
        "A message that no queue took was moved to its dead-letter address.",
        "Create a queue for the address; then `bartleby queue retry DLQ`.",
        limited=True,
    ),
    "move.address_full": Event(
        "error",
        "A dead or expired message stays on its queue: its target is full, and a queue there cannot page.",
        "Let the consumers of the target catch up, or raise `max-size-bytes` of its address or `global-max-size`.",
        limited=True,
    ),
    "move.disk_full": Event(
        "error", "A dead or expired message stays on its queue: the journal has no room.", _JOURNAL_ROOM, limited=True
    ),
    "move.no_queue": Event(
        "error",
        "A dead or expired message stays on its queue: no queue of the target address takes it.",
        "Create a queue for the target address whose filter matches the message.",
        limited=True,
    ),
    "move.queue_created": Event(
        "warning",
        "A queue was created for dead or expired messages that no other queue took.",
        "Nothing; create such a queue yourself if it should have a consumer.",
        limited=True,
    ),
    "move.queue_refused": Event(
        "error",
        "A queue for dead or expired messages could not be created.",
        "Correct the name of the target address, or make room: the line says which.",
        limited=True,
    ),
    "mqtt.error": Event("info", "An MQTT connection was closed because of an error.", _CLIENT, limited=True),
    "mqtt.publish_dropped": Event(
        "info",
        "Messages of an MQTT client were refused: they are lost, and the client is not told.",
        "Let the client use MQTT 5 or QoS 1 to learn of refusals; remove the cause in the line.",
        limited=True,
    ),
    "mqtt.retained_unsent": Event(
        "warning",
        "A new MQTT subscription did not get a retained message.",
        "Read the line; publish the retained message again.",
        limited=True,
    ),
    "mqtt.subscription_idle": Event(
        "warning",
        "An MQTT session's subscription could not be resumed: it gets no messages.",
        "Read the line; let the client subscribe again when the cause is gone.",
        limited=True,
    ),
    "mqtt.will_refused": Event(
        "warning",
        "The will of an MQTT client could not be published.",
        "Read the line; correct the will's topic, or the user's permissions.",
        limited=True,
    ),
    "paging.failed": Event(
        "error",
        "Paged messages cannot be read from the disk; the broker tries again every second.",
        "Check the disk; the broker continues automatically once it can be read.",
        limited=True,
    ),
    "paging.held_up": Event(
        "warning",
        "Consumers of a queue hold so many messages that no more are read from the disk until they acknowledge.",
        "Let them acknowledge sooner, with a smaller credit or prefetch if need be, or raise `max-read-page-bytes`.",
        limited=True,
    ),
    "paging.scratch_failed": Event(
        "error",
        "Paged non-durable messages cannot be written to the disk and stay in memory.",
        "Make room on the disk, and check it.",
        limited=True,
    ),
    "paging.unreadable": Event(
        "error",
        "Paged messages are damaged or missing; they stay on their queue, undelivered.",
        "Stop the broker and run `bartleby journal verify`, then `bartleby journal repair`.",
    ),
    "queue.auto_deleted": Event(
        "info", "An unused queue that had been created automatically was deleted.", limited=True
    ),
    "queue.changed": Event("info", "An operator changed the attributes of a queue.", audited=True),
    "queue.created": Event("info", "An operator created a queue.", audited=True),
    "queue.deleted": Event("warning", "An operator deleted a queue and its messages.", _MEANT, audited=True),
    "queue.full.dropping": Event(
        "warning",
        "A queue has reached its limit of waiting messages: new ones are dropped.",
        "Let the consumer catch up, or raise the limit that the line names.",
        limited=True,
    ),
    "queue.full.evicting": Event(
        "warning",
        "A queue has reached its limit of waiting messages: the oldest are dropped.",
        "Let the consumer catch up, or raise `queued-messages-max`.",
        limited=True,
    ),
    "queue.full.memory": Event(
        "warning",
        "Memory is full: non-durable messages for a client that does not keep up are dropped.",
        "Let the client read faster, or raise `global-max-size`.",
        limited=True,
    ),
    "queue.imported": Event("info", "An operator put messages of an export on a queue.", audited=True),
    "queue.paused": Event("info", "An operator paused a queue.", audited=True),
    "queue.resumed": Event("info", "An operator resumed a queue.", audited=True),
    "ready": Event("info", "The broker has started and accepts clients.", audited=True),
    "reload.declaration_failed": Event(
        "error",
        "A queue or divert of the configuration could not be created as written, at a reload or when a broker of a pair"
        " took over; the others were.",
        "Correct the queue or divert that the line names, and reload again.",
    ),
    "reload.done": Event(
        "info", "A changed configuration is in force, except for the settings in restart_needed_for.", audited=True
    ),
    "reload.failed": Event(
        "error",
        "A bug in the broker interrupted a reload: restart the broker, as only part of it may be in force.",
        "Restart the broker, and report the traceback in the line.",
    ),
    "reload.refused": Event(
        "error",
        "A changed configuration has errors; the old one stays in force.",
        "Correct what the line names; `bartleby config check` shows all problems.",
        audited=True,
    ),
    "replication.claimed": Event("info", "Only this broker can now write the journal; it reads the rest of it."),
    "replication.disabled": Event(
        "error",
        "This standby cannot take over: a file that its configuration names is unusable, or a port is taken.",
        "Correct the file, or free the port, that the line names; the standby looks again every 2 seconds.",
    ),
    "replication.handing_over": Event(
        "warning", "An operator hands the journal over to another broker.", _MEANT, audited=True
    ),
    "replication.owner": Event("info", "This broker of a pair owns the journal now, under this epoch."),
    "replication.privilege_missing": Event(
        "warning",
        "The broker may not see which database server confirms its commits: it would not notice that a backup under the"
        " name of a standby did.",
        "GRANT pg_read_all_stats TO the user of the dsn.",
    ),
    "replication.resumed": Event("info", "The database of the journal answers again: producers continue."),
    "replication.stalled": Event(
        "warning",
        "The database of the journal does not answer: producers wait.",
        "Check the database and its synchronous standby, for which each commit waits.",
    ),
    "replication.standby": Event("info", "This broker is a standby: it copies the journal until it may own it."),
    "replication.stepped_down": Event(
        "error",
        "This broker may no longer write the journal: it has disconnected its clients and is a standby.",
        "Find out why: another broker has taken over, or the database could not be reached.",
    ),
    "replication.trouble": Event(
        "warning",
        "A query to the database of the journal failed; it is repeated.",
        "Read the database's message; check the database, its standby and the network.",
        limited=True,
    ),
    "retained.full": Event(
        "warning",
        "A retained message was refused: the limit on retained messages is reached.",
        "Clear retained messages, or raise `limits.retained-messages-max` or `retained-bytes-max`.",
        limited=True,
    ),
    "retroactive.disk_full": Event(
        "warning",
        "A new queue did not get the messages kept for it: the journal has no room.",
        _JOURNAL_ROOM,
        limited=True,
    ),
    "rule.applied": Event(
        "info", "A rule for dead letters brought messages back, moved or discarded them.", limited=True
    ),
    "rule.failed": Event(
        "error",
        "A bug in the broker stopped the rules for dead letters until they change or the broker restarts.",
        _BUG,
    ),
    "rule.refused": Event(
        "warning",
        "A rule for dead letters could not move messages, which stay; the reason says why.",
        "See what the reason in the line means: the queue is gone, disabled, or refuses such messages.",
        limited=True,
    ),
    "security.changed": Event("info", "Changed users, permissions or certificates are in force.", audited=True),
    "security.first_user": Event(
        "warning",
        "The user admin was created because other machines can connect and there was no user.",
        "Keep the password that standard output shows once, or set one with `bartleby user passwd`.",
        audited=True,
    ),
    "security.keys_failed": Event(
        "error",
        "The keys for tokens cannot be fetched; those fetched before stay in use.",
        "Check `keys-url`, its certificate and the network; the line says what failed.",
        limited=True,
    ),
    "security.keys_outdated": Event(
        "warning",
        "SCRAM keys in the users file have too few iterations by today's advice, and the broker cannot replace them.",
        "Let the broker's user write the file and its directory, or set the passwords again: `bartleby user passwd`.",
    ),
    "security.refused": Event(
        "error",
        "A users file, certificate or key was changed and cannot be used; the previous one stays in use.",
        "Correct the file that the line names; the broker reads it again automatically.",
        audited=True,
    ),
    "session.refused": Event(
        "warning",
        "A client asked for the MQTT session of another user, and its user may not have those.",
        "Give each client an identifier of its own; for a client whose user has changed, see docs/mqtt.md, Sessions.",
        limited=True,
        audited=True,
        counted="refusals",
    ),
    "session.taken_over": Event(
        "warning",
        "A client took, or ended, the MQTT session of another user: its user has `manageSessions`.",
        _MEANT,
        limited=True,
        audited=True,
        counted="logins",
    ),
    "settings.no_dead_letter_address": Event(
        "warning",
        "For addresses of these matches `dead-letter-address` is empty: messages that die there are removed.",
        "Set `dead-letter-address` for them, or remove the empty one; nothing, if it was intended.",
    ),
    "start.corrupt": Event(
        "critical",
        "The journal is damaged and the broker does not start: the error names the commands to inspect and repair it.",
        "Copy the data directory, then `bartleby journal verify` and `bartleby journal repair`.",
    ),
    "start.database": Event(
        "critical",
        "The database is not suitable for the journal, or has lost a part of it; nothing was changed.",
        "Do what the line says; docs/high-availability.md has more.",
    ),
    "start.journal": Event(
        "critical",
        "The journal cannot be opened or read; the broker does not start.",
        "Check the disk and the permissions of the data directory; the line names the file.",
    ),
    "start.listen": Event(
        "critical",
        "An acceptor cannot listen; the broker does not start.",
        "Stop what uses the port, or change `host` or `port` of the acceptor.",
    ),
    "start.locked": Event(
        "critical",
        "Another broker uses the data directory; this one does not start.",
        "Stop the process that the line names, or give this broker a directory of its own.",
    ),
    "start.newer": Event(
        "critical",
        "A newer version wrote the journal; this one does not start.",
        "Start the newer version again; to go back to this one, use `bartleby journal export` and `import`.",
    ),
    "start.refused": Event(
        "critical",
        "The configuration contradicts the journal; the broker does not start.",
        "Correct what the line names: the configuration, or the queue in the journal.",
    ),
    "start.security": Event(
        "critical",
        "A users file, certificate or key cannot be used; the broker does not start.",
        "Correct the file that the line names; `bartleby config check` reads them all.",
    ),
    "stomp.error": Event("info", "A STOMP connection was closed with an ERROR frame.", _CLIENT, limited=True),
    "stopped": Event("info", "The broker has ended.", audited=True),
    "stopping": Event("info", "The broker is stopping."),
    "task.cancelled": Event("info", "An operator cancelled a task; its completed steps are not undone.", audited=True),
    "task.completed": Event(
        "info", "A task has ended: everything is done, except for the messages refused.", audited=True
    ),
    "task.failed": Event(
        "warning",
        "A task could not continue; the error says why, and its completed steps are not undone.",
        "Read `error` in the line; `bartleby task show` has the rest. Start another task for what is left.",
        audited=True,
    ),
    "task.paused": Event("info", "An operator paused a task.", audited=True),
    "task.resumed": Event("info", "An operator resumed a paused task.", audited=True),
    "task.started": Event(
        "info",
        "An operator started a task: messages are moved, removed, exported, imported or replayed step by step.",
        audited=True,
    ),
    "task.stuck": Event(
        "warning",
        "The broker paused a task because the journal has no room; resume it when there is.",
        "Make room on the disk, then `bartleby task resume`.",
    ),
    "telemetry.exporting": Event(
        "info", "Spans reach their receiver again; `lost` counts those that did not.", limited=True
    ),
    "telemetry.losing": Event(
        "warning",
        "Spans are lost because their receiver does not accept them; messages are not affected.",
        "Start the receiver, correct `telemetry.endpoint`, or trace fewer messages; the line says why.",
        limited=True,
    ),
    "tls.failed": Event(
        "info",
        "A TLS handshake failed or took too long.",
        "Read the reason: the wrong port, an expired certificate, or an unknown authority.",
        limited=True,
    ),
    "transaction.timed_out": Event(
        "warning",
        "A transaction stayed open too long and was rolled back.",
        "Commit sooner, or raise `transaction-timeout`.",
        limited=True,
    ),
    "websocket.foreign": Event(
        "info",
        "A client asked for WebSocket subprotocols that the acceptor does not have, or for none.",
        "Connect the client to the acceptor of its protocol, or set its subprotocol to one that the line names.",
        limited=True,
    ),
    "websocket.refused": Event(
        "warning",
        "A web page tried to connect from a site that websocket-origins does not list.",
        "Add the page's origin to `websocket-origins` of the acceptor, if its site may connect.",
        limited=True,
    ),
}
