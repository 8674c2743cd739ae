"""What becomes of messages: why they die, why they leave a queue, and why a retry or a move leaves them on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.reasons.reason import NOTHING, Text
from store.counted import counted
from store.record_types import DeadLetterReason, RemovalReason

_RESERVED = Text("Reserved: the broker does not give this reason.", "Nothing: no message has it.")

DEAD_LETTERS = {
    DeadLetterReason.MAX_DELIVERIES: Text(
        "Its deliveries failed `max-delivery-attempts` times.",
        "`_AMQ_DL_TEXT` has the consumer's words. Fix the consumer, then `bartleby queue retry DLQ`.",
    ),
    DeadLetterReason.REJECTED: Text(
        "A consumer refused it for good: STOMP NACK with `requeue:false`, an MQTT 5 reason code of 0x80 or above, AMQP "
        "`rejected`.",
        "`_AMQ_DL_TEXT` has the consumer's words. Correct the message or the consumer, then retry it.",
    ),
    DeadLetterReason.EXPIRED: Text(
        "Its time to live ended before a consumer acknowledged it.",
        "Look for slow or missing consumers; raise the sender's time to live or the `expiry-delay` of its address.",
    ),
    DeadLetterReason.QUEUE_FULL: Text(
        "A link could not pass it on: the address or queue at the other broker is full, or a limit there is reached.",
        "`_AMQ_DL_REMOTE_ADDRESS` and `_AMQ_DL_REMOTE_BROKER` name it. Make room there, then retry it.",
    ),
    DeadLetterReason.TOO_LARGE: Text(
        "It is larger than its consumer or the other broker of a link accepts, or too large to convert to the "
        "consumer's protocol.",
        "Raise the consumer's maximum, or consume it with a client of the sender's protocol.",
    ),
    DeadLetterReason.NO_ROUTE: Text(
        "No queue took it, and its address has `send-to-dla-on-no-route`; or a link found no queue for it at the other "
        "broker.",
        "Create a queue for the address (`_AMQ_DL_REMOTE_ADDRESS` if it is set), or a filter that matches; then retry "
        "it.",
    ),
    DeadLetterReason.NOT_AUTHORISED: Text(
        "A link could not pass it on: its user may not send to that address at the other broker.",
        "Give the link's user `send` on `_AMQ_DL_REMOTE_ADDRESS` there; then retry it.",
    ),
    DeadLetterReason.PUT_DISABLED: Text(
        "The queues that it might have entered are disabled, and its address has `send-to-dla-on-no-route`; or a link "
        "found them disabled at the other broker.",
        "`bartleby queue set NAME enabled=true`; then retry it.",
    ),
    DeadLetterReason.ADMIN: _RESERVED,
    DeadLetterReason.LINK_HOPS: Text(
        "It went in a circle: over `max-hops` brokers by links, or 100 times from one expiry address to the next.",
        "Change a route or an `expiry-address` of the circle; `x-opt-bartleby-hops` names the brokers that it passed.",
    ),
    DeadLetterReason.DECODE_ERROR: Text(
        "Its consumer's protocol cannot express it, or its body cannot be read.",
        "`_AMQ_DL_TEXT` says which. Consume it with a client of the sender's protocol, or correct the sender.",
    ),
}


class Removal(NamedTuple):
    """A removal reason: its meaning for a message, what its metric counts, and what to do; all are sentences."""

    meaning: str
    counts: str
    action: str = NOTHING


REMOVALS = {
    RemovalReason.CONSUMED: Removal("A consumer acknowledged it.", "Messages that consumers have acknowledged."),
    RemovalReason.EXPIRED: Removal(
        "Its time to live ended; it was moved to the expiry address, if there is one.",
        "Messages that expired.",
        "If it should not have expired, look for slow or missing consumers.",
    ),
    RemovalReason.DEAD_LETTERED: Removal(
        "It was moved to its dead-letter address.",
        "Messages that were moved to a dead-letter address.",
        "Browse that queue: `_AMQ_DL_REASON` and `_AMQ_DL_TEXT` say why.",
    ),
    RemovalReason.REPLACED: Removal(
        "A newer message with the same key replaced it, on a last-value queue.",
        "Messages replaced by a newer value of their key (last-value queues).",
    ),
    RemovalReason.EVICTED: Removal(
        "A full ring queue dropped it for a newer one.",
        "Messages that a full ring queue dropped for newer ones.",
        "Raise `ring-size` if too much is lost.",
    ),
    RemovalReason.PURGED: Removal(
        "An operator removed it, or its queue has `purge-on-no-consumers` and lost its last consumer.",
        "Messages that an operator removed.",
        "The audit log names the operator; `bartleby journal replay` can bring it back.",
    ),
    RemovalReason.DROPPED: Removal(
        "Its address or queue was full, with the policy DROP.",
        "Messages dropped because their address or queue was full.",
        "Raise `max-size-bytes`, add consumers, or choose the policy PAGE or BLOCK.",
    ),
    RemovalReason.MOVED: Removal(
        "An operator or a rule moved it to another queue, or back to where it came from.",
        "Messages that an operator or a rule moved or replayed.",
    ),
    RemovalReason.DELETED: Removal(
        "Its queue was deleted, or an operator had begun to delete it.",
        "",
        "The log has `queue.deleted`, `queue.auto_deleted` or `config.deleted`; `bartleby journal replay` can bring it "
        "back.",
    ),
    RemovalReason.UNROUTABLE: Removal(
        "No queue took it, and its address has no `send-to-dla-on-no-route`.",
        "Messages that no queue took.",
        "Create a queue for the address, or set `send-to-dla-on-no-route` to keep such messages.",
    ),
    RemovalReason.KILLED: Removal(
        "It died, and its address has no dead-letter address.",
        "Messages that died without a dead-letter address.",
        "Set `dead-letter-address` for its address; `bartleby journal replay` can bring it back.",
    ),
    RemovalReason.DISPLACED: Removal(
        'A full MQTT subscription dropped it for a newer one (`queued-messages-drop = "oldest"`).',
        "Oldest messages that a full MQTT subscription dropped for newer ones.",
        "Raise `queued-messages-max`, or make the client read faster.",
    ),
    RemovalReason.DISCARDED: Removal(
        "It was a dead letter, and one of the `dead-letter-rules` discarded it.",
        "Dead letters that a rule removed.",
        "The log names the rule (`rule.applied`); `bartleby journal replay` can bring it back.",
    ),
    RemovalReason.FORWARDED: Removal(
        "A link forwarded it, and another Bartleby has stored it.",
        "Messages that links have forwarded to other brokers.",
    ),
}

#: The words of broker/engine/moves/transfer.py, and those of an import.
STAYS = {
    "no-origin": Text(
        "Their origin is unknown: they were sent to this queue.",
        "Move them to a target: `bartleby queue move NAME TARGET`.",
    ),
    "no-queue": Text(
        "No queue takes them: theirs is gone and may not be created again, or not durable, or a filter refuses them.",
        "Create the queue, or move them to another: `bartleby queue move NAME TARGET`.",
    ),
    "onto-itself": Text(
        "They came from this very queue.",
        "Consume them here, or move them to a target: `bartleby queue move NAME TARGET`.",
    ),
    "address-full": Text(
        "Their destination is full, and one of its queues cannot page (last-value, non-destructive).",
        "Let its consumers catch up, or raise the limit of its address, and repeat the command.",
    ),
    "disk-full": Text("The journal has no room for them.", "Make room on the disk and repeat the command."),
    "denied": Text(
        "A rule would send them to the address that they name for answers, and their sender may not send there.",
        "Give the sender a role with `send` there, or move them: `bartleby queue move NAME TARGET`.",
    ),
    "gone": Text("They were named by id, but are not on the queue.", "Nothing: they have left it meanwhile."),
    "known": Text(
        "An import of this name has already brought them.", "Nothing; give another --name to import them once more."
    ),
    "delivering": Text(
        "They were named by id, but consumers hold them.",
        "Wait until they return, or close the consumer that holds them.",
    ),
}


#: The phrases for messages that consumers hold, for `counted`.
HELD: Final = ("message stays: a consumer holds it", "messages stay: consumers hold them")


def why_they_stay(counts: Mapping[str, int], stays: str, stay: str) -> list[str]:
    """A line for each reason, such as `3 messages STAY (no-queue): no queue takes them ...`.

    `stays` and `stay` are the verb for one message and for several.
    """
    lines = []
    for word, count in counts.items():
        why = STAYS[word].meaning.rstrip(".") if word in STAYS else ""
        what = counted(count, f"message {stays}", f"messages {stay}")
        lines.append(f"{what} ({word})" + (f": {why[0].lower()}{why[1:]}" if why else ""))
    return lines
