"""The events that a connection reports to its session layer, in order of arrival.

Performatives of the connection itself are events as they are: Open, Close, and those of SASL.  Other events have the
endpoint that they concern, and are defined beside it.  Errors of a session or a link are events, too: the endpoint
reads nothing more, and the session layer answers with `send_end(error)` or `send_detach(error)` once it has handled the
events before.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.amqp.link import Attached, Detached, Dispositions, Event, LinkFailed, Refused, Skipped, Withdrawn
from protocols.amqp.receiver import Aborted, Available, Portion, Posting, Transfers
from protocols.amqp.sender import Credit
from protocols.amqp.session import Began, Ended, SessionFailed, WindowOpened

__all__ = [
    "Aborted",
    "Attached",
    "Available",
    "Began",
    "Connected",
    "Credit",
    "Detached",
    "Dispositions",
    "Ended",
    "Event",
    "LinkFailed",
    "Portion",
    "Posting",
    "Refused",
    "SessionFailed",
    "Skipped",
    "Transfers",
    "WindowOpened",
    "Withdrawn",
]


@dataclass(slots=True)
class Connected:
    """The protocol headers are exchanged, after SASL if there was any: OPEN may be sent (for the client's role)."""
