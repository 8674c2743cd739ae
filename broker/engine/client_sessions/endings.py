"""What becomes of the messages of a client's subscription when something ends: the one table for it.

A message that has been delivered to a session and not acknowledged is in one of three states:

    at least once    sent with QoS 1, and the client has not said that it has it
    exactly once     the same with QoS 2: no other client may get it while this one may have it
    parked           it waits until the client may be sent more, and was never sent

The table says what becomes of each of them, by the kind of the subscription and by what has ended.  All code asks it;
`InFlight` and `Deliveries` of the protocol carry it out.  What was never sent is returned wherever the message would be
returned or consumed: nothing has happened to it.
"""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import Final, NamedTuple


class SubscriptionKind(Enum):
    """Whose the queue of a subscription is."""

    OWN = "own"  # this subscription's alone
    BORROWED = "borrowed"  # any consumer's: that of an anycast address, or one that the client has named
    SHARED = "shared"  # that of all clients that share the subscription


class Ending(Enum):
    """What has ended."""

    UNSUBSCRIBED = "unsubscribed"
    REVOKED = "revoked"  # the right to consume; or an operator has closed the consumer
    QUEUE_DELETED = "queue deleted"
    DISCONNECTED = "disconnected"  # the connection, as the client or the broker wished
    CONNECTION_LOST = "connection lost"  # without a word, or because of an error of the client
    TAKEN_OVER = "taken over"  # the connection, as the client has another one
    RESTARTED = "restarted"  # the broker
    SESSION_ENDED = "session ended"


class Outcome(Enum):
    """What becomes of messages."""

    STAYS = "stays"  # with this client, which is sent it, or sent it again, when it can be
    RETURNED = "returned"  # to the queue, for the next consumer
    CONSUMED = "consumed"  # the client may have it, so nobody else may
    DELETED = "deleted"  # with its queue


class Outcomes(NamedTuple):
    """The outcomes for the messages of one subscription."""

    at_least_once: Outcome
    exactly_once: Outcome
    parked: Outcome


_S, _R, _C, _D = Outcome.STAYS, Outcome.RETURNED, Outcome.CONSUMED, Outcome.DELETED
_ALL_RETURNED: Final = Outcomes(_R, _R, _R)

#: What becomes of the messages of a client that goes away and may come back.
_AWAY: Final = (Outcomes(_S, _S, _S), _ALL_RETURNED, Outcomes(_R, _S, _R))

#: For each ending: a subscription of its own, a borrowed one, a shared one.
_ROWS: Final = {
    # What was sent is completed [MQTT-3.10.4-3], even if the client has to come back for it; but others wait for what
    # is on a queue of theirs.
    Ending.UNSUBSCRIBED: (Outcomes(_S, _S, _R), _ALL_RETURNED, Outcomes(_S, _S, _R)),
    Ending.REVOKED: (_ALL_RETURNED,) * 3,
    Ending.QUEUE_DELETED: (Outcomes(_D, _D, _D),) * 3,
    Ending.DISCONNECTED: _AWAY,
    Ending.CONNECTION_LOST: _AWAY,
    Ending.TAKEN_OVER: _AWAY,
    # Parked messages were never more than ready on their queue.
    Ending.RESTARTED: (Outcomes(_S, _S, _R), _ALL_RETURNED, Outcomes(_R, _S, _R)),
    # No other client of a shared subscription gets what this one may have with QoS 2 [MQTT-4.8.2-5].
    Ending.SESSION_ENDED: (Outcomes(_D, _D, _D), _ALL_RETURNED, Outcomes(_R, _C, _R)),
}

#: The table.
IN_FLIGHT_OUTCOMES: Final = {
    (kind, ending): _ROWS[ending][at] for (at, kind), ending in product(enumerate(SubscriptionKind), Ending)
}
