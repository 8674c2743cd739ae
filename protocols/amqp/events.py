"""What a connection tells its session layer, in the order in which it came.

Performatives of the connection itself are their own events: Open, Close, and those of SASL.  The others come with the
endpoint that they concern, and stand beside it.  Errors of a session or a link are events, too: the endpoint reads
nothing any more, and the session layer answers with `send_end(error)` or `send_detach(error)` once it has dealt with
what came before.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.amqp.link import Attached, Detached, Dispositions, Event, LinkFailed, Refused
from protocols.amqp.receiver import Aborted, Available, Portion, Transfers
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
    "Refused",
    "SessionFailed",
    "Transfers",
    "WindowOpened",
]


@dataclass(slots=True)
class Connected:
    """Protocol headers are exchanged, after SASL if there was any: OPEN may be sent (for the client's role)."""
