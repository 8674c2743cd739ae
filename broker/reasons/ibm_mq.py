"""IBM MQ's reason and feedback codes beside ours: what they mean there, and what reports the same here.

`bartleby explain`, docs/reasons.md and the import of runmqdlq's rules read this table.  `see` has our counterparts as
`KIND WORD`; those of the kind `dead-letter` are what a rule with REASON(code) asks for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.reasons.reason import Kind, Text

_REASON: Final = f"{Kind.DEAD_LETTER.value} "


class MqCode(NamedTuple):
    """A code of IBM MQ: its number, its name, what it means and what is done here, and our words for the same."""

    number: int
    word: str
    text: Text
    see: tuple[str, ...] = ()

    @property
    def dead_letter(self) -> str:
        """The reason for which messages die here in the same case; empty: they do not."""
        return next((each.removeprefix(_REASON) for each in self.see if each.startswith(_REASON)), "")


_FULL: Final = Text(
    "MQ: the queue is full (MAXDEPTH). Here a sender waits or is refused (`address-full-policy`); a message dies of it "
    "only on a link, when the queue at the other broker is full.",
    "Let consumers catch up, or raise `max-size-bytes` or `max-size-messages`.",
)
_TOO_BIG: Final = "Raise `limits.body-bytes-max` or `limits.large-body-bytes-max` where it was refused."
_NAME: Final = "Correct the name, or create it: `bartleby queue create`, `bartleby address create`."
_LINK: Final = "`bartleby link list` shows the state of each link and its last error."
_CONVERT: Final = "Messages are not converted between character sets: text is UTF-8. Correct the sender."
_TLS: Final = "The log has `tls.failed` with the reason; see docs/security.md."
_LATER: Final = "Connect again; clients that know several brokers take the next one."

CODES: Final = (
    MqCode(
        258,
        "MQFB_EXPIRATION",
        Text("MQ: a message expired before it was consumed.", "Expired messages are on the `expiry-address`."),
        ("dead-letter expired", "removal expired"),
    ),
    MqCode(
        268,
        "MQFB_STOPPED_BY_MSG_EXIT",
        Text("MQ: a message exit of a channel stopped the message. There are no exits here."),
    ),
    MqCode(
        271,
        "MQFB_XMIT_Q_MSG_ERROR",
        Text(
            "MQ: a message on a transmission queue lacks the transmission header. Here a remote queue needs none; a "
            "client that sends to `link.NAME` itself sends a message that no route takes.",
            "Send to the remote queue's address.",
        ),
    ),
    MqCode(
        2001,
        "MQRC_ALIAS_BASE_Q_TYPE_ERROR",
        Text("MQ: an alias queue points to a queue of the wrong type. Diverts take the place of aliases here."),
    ),
    MqCode(
        2003,
        "MQRC_BACKED_OUT",
        Text("MQ: the unit of work was backed out.", "Repeat the transaction; the broker's answer says why."),
        ("error transaction-closed", "amqp amqp:transaction:rollback"),
    ),
    MqCode(
        2009,
        "MQRC_CONNECTION_BROKEN",
        Text("MQ: the connection to the queue manager was lost. Here the client's library reports it.", _LATER),
    ),
    MqCode(
        2016,
        "MQRC_GET_INHIBITED",
        Text(
            "MQ: the queue is GET(DISABLED). Here a paused queue (`bartleby queue pause`) gives nothing; its consumers "
            "wait.",
            "`bartleby queue resume NAME`.",
        ),
    ),
    MqCode(
        2024,
        "MQRC_SYNCPOINT_LIMIT_REACHED",
        Text(
            "MQ: the unit of work has more uncommitted messages than MAXUMSGS.",
            "Commit more often, or raise `limits.transaction-bytes-max` or `limits.open-transactions-bytes-max`.",
        ),
        ("error too-large", "error transactions-full", "stomp too many transactions"),
    ),
    MqCode(
        2025,
        "MQRC_MAX_CONNS_LIMIT_REACHED",
        Text("MQ: too many connections.", "Close some, or raise `limits.connections-max`."),
        ("log connection.refused",),
    ),
    MqCode(
        2030,
        "MQRC_MSG_TOO_BIG_FOR_Q",
        Text("MQ: the message is longer than the queue's MAXMSGL.", _TOO_BIG),
        ("dead-letter too-large", "amqp amqp:link:message-size-exceeded", "stomp body too large"),
    ),
    MqCode(
        2031,
        "MQRC_MSG_TOO_BIG_FOR_Q_MGR",
        Text("MQ: the message is longer than the queue manager's MAXMSGL.", _TOO_BIG),
        ("dead-letter too-large", "amqp amqp:link:message-size-exceeded", "stomp body too large"),
    ),
    MqCode(
        2033,
        "MQRC_NO_MSG_AVAILABLE",
        Text("MQ: MQGET found no message. Here consumers wait until one arrives."),
    ),
    MqCode(
        2035,
        "MQRC_NOT_AUTHORIZED",
        Text(
            "MQ: the user lacks the authority. Here a sender is refused at once; a message dies of it only on a link, "
            "whose user may not send at the other broker.",
            "Add one of the user's roles to the matching `security-settings`; the log has `access.denied`.",
        ),
        ("dead-letter not-authorised", "error denied", "amqp amqp:unauthorized-access", "mqtt Not authorized"),
    ),
    MqCode(
        2042,
        "MQRC_OBJECT_IN_USE",
        Text("MQ: another application has the queue open exclusively.", "Close the other consumer."),
        ("error in-use", "error max-consumers", "amqp amqp:resource-locked"),
    ),
    MqCode(
        2048,
        "MQRC_PERSISTENT_NOT_ALLOWED",
        Text(
            "MQ: the queue takes no persistent messages. Here a queue that is not durable takes them, and loses them "
            "when the broker stops.",
            "Create the queue durable.",
        ),
    ),
    MqCode(
        2051,
        "MQRC_PUT_INHIBITED",
        Text("MQ: the queue is PUT(DISABLED).", "`bartleby queue set NAME enabled=true`; then retry the dead letters."),
        ("dead-letter put-disabled", "error queue-disabled", "amqp amqp:precondition-failed"),
    ),
    MqCode(
        2052,
        "MQRC_Q_DELETED",
        Text("MQ: the queue was deleted.", _NAME),
        ("dead-letter no-route", "removal deleted", "amqp amqp:resource-deleted"),
    ),
    MqCode(
        2053,
        "MQRC_Q_FULL",
        _FULL,
        ("dead-letter queue-full", "error address-full", "amqp amqp:resource-limit-exceeded", "mqtt Quota exceeded"),
    ),
    MqCode(
        2055,
        "MQRC_Q_NOT_EMPTY",
        Text(
            "MQ: the queue cannot be deleted while it has messages.",
            "Empty it, or delete it with `bartleby queue delete --force`.",
        ),
        ("error in-use",),
    ),
    MqCode(
        2056,
        "MQRC_Q_SPACE_NOT_AVAILABLE",
        Text("MQ: the disk has no room for the queue.", "Make room on the disk of the journal."),
        ("error disk-full", "stays disk-full"),
    ),
    MqCode(
        2057,
        "MQRC_Q_TYPE_ERROR",
        Text("MQ: the queue has the wrong type for the call.", "Use the prefix of the address's routing type."),
        ("error routing-type",),
    ),
    MqCode(
        2058,
        "MQRC_Q_MGR_NAME_ERROR",
        Text("MQ: there is no queue manager of this name. Clients here name a host and a port.", "Correct the URL."),
    ),
    MqCode(
        2059,
        "MQRC_Q_MGR_NOT_AVAILABLE",
        Text("MQ: the queue manager is not running, or not reachable.", "`bartleby status`; see the broker's log."),
        ("exit unreachable",),
    ),
    MqCode(
        2071,
        "MQRC_STORAGE_NOT_AVAILABLE",
        Text("MQ: not enough memory. Here addresses page to disk before it comes to that.", "See docs/paging.md."),
    ),
    MqCode(
        2080,
        "MQRC_TRUNCATED_MSG_FAILED",
        Text("MQ: the message is longer than the buffer of MQGET.", "Raise the consumer's maximum message size."),
        ("dead-letter too-large", "mqtt Packet too large"),
    ),
    MqCode(
        2082, "MQRC_UNKNOWN_ALIAS_BASE_Q", Text("MQ: an alias points to nothing.", _NAME), ("dead-letter no-route",)
    ),
    MqCode(
        2085,
        "MQRC_UNKNOWN_OBJECT_NAME",
        Text("MQ: there is no queue of this name.", _NAME),
        ("dead-letter no-route", "error not-found", "error no-queue", "amqp amqp:not-found"),
    ),
    MqCode(
        2086,
        "MQRC_UNKNOWN_OBJECT_Q_MGR",
        Text(
            "MQ: no transmission queue leads to the queue manager that the message names. Here a message names none: "
            "a remote queue names its link.",
            "Add the remote queue to the link: `[links.NAME.remote-queues.ADDRESS]`.",
        ),
    ),
    MqCode(
        2087,
        "MQRC_UNKNOWN_REMOTE_Q_MGR",
        Text("MQ: no route leads to the remote queue manager.", _LINK),
        ("log link.lost",),
    ),
    MqCode(
        2101,
        "MQRC_OBJECT_DAMAGED",
        Text(
            "MQ: the object's file is damaged.", "`bartleby journal verify`; the start names the damage and its repair."
        ),
        ("exit damaged",),
    ),
    MqCode(
        2110,
        "MQRC_FORMAT_ERROR",
        Text("MQ: the format of the message is wrong or unknown.", _CONVERT),
        ("dead-letter decode-error", "amqp amqp:decode-error"),
    ),
    MqCode(
        2119,
        "MQRC_NOT_CONVERTED",
        Text("MQ: the message data could not be converted.", _CONVERT),
        ("dead-letter decode-error",),
    ),
    MqCode(
        2161,
        "MQRC_Q_MGR_QUIESCING",
        Text("MQ: the queue manager is ending.", _LATER),
        ("amqp amqp:connection:forced", "mqtt Server shutting down", "stomp broker shutting down"),
    ),
    MqCode(
        2162,
        "MQRC_Q_MGR_STOPPING",
        Text("MQ: the queue manager is stopping.", _LATER),
        ("amqp amqp:connection:forced", "mqtt Server shutting down", "stomp broker shutting down"),
    ),
    MqCode(
        2192,
        "MQRC_STORAGE_MEDIUM_FULL",
        Text("MQ: the storage is full.", "Make room on the disk of the journal."),
        ("error disk-full", "stays disk-full"),
    ),
    MqCode(2196, "MQRC_UNKNOWN_XMIT_Q", Text("MQ: there is no such transmission queue.", _LINK), ("error not-found",)),
    MqCode(
        2202,
        "MQRC_CONNECTION_QUIESCING",
        Text("MQ: the connection is ending.", _LATER),
        ("amqp amqp:connection:forced", "mqtt Server shutting down"),
    ),
    MqCode(
        2218,
        "MQRC_MSG_TOO_BIG_FOR_CHANNEL",
        Text("MQ: the message is longer than the channel's MAXMSGL.", _TOO_BIG),
        ("dead-letter too-large", "amqp amqp:link:message-size-exceeded"),
    ),
    MqCode(
        2270,
        "MQRC_NO_DESTINATIONS_AVAILABLE",
        Text("MQ: no instance of a cluster queue is available.", "Create the queue: `bartleby queue create`."),
        ("dead-letter no-route", "error no-queue"),
    ),
    MqCode(
        2362,
        "MQRC_BACKOUT_THRESHOLD_REACHED",
        Text(
            "MQ: the message was backed out BOTHRESH times. Here the broker itself counts, for every client: "
            "`max-delivery-attempts`.",
            "Fix the consumer, then `bartleby queue retry DLQ`.",
        ),
        ("dead-letter max-deliveries",),
    ),
    MqCode(2393, "MQRC_SSL_INITIALIZATION_ERROR", Text("MQ: the TLS handshake failed.", _TLS), ("log tls.failed",)),
    MqCode(
        2397,
        "MQRC_JSSE_ERROR",
        Text("MQ: Java's TLS reported an error.", _TLS),
        ("log tls.failed",),
    ),
    MqCode(2537, "MQRC_CHANNEL_NOT_AVAILABLE", Text("MQ: the channel is not available.", _LINK), ("log link.lost",)),
    MqCode(2538, "MQRC_HOST_NOT_AVAILABLE", Text("MQ: the host cannot be reached.", _LINK), ("log link.lost",)),
    MqCode(2540, "MQRC_UNKNOWN_CHANNEL_NAME", Text("MQ: there is no channel of this name.", _LINK)),
)

#: By number, and by name.
BY_NUMBER: Final = {code.number: code for code in CODES}
BY_NAME: Final = {code.word: code for code in CODES}
