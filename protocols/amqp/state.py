"""The state machines of AMQP, as tables.  Anything not in a table is not allowed.

A trigger is `S:` or `R:` (we send, we receive) and a frame.  The connection's table is the specification's (part 2,
2.4.7): either side may send its OPEN, other frames and its CLOSE before it has received anything:

    START --R:HDR--> HDR_RCVD --S:HDR--> HDR_EXCH --R:OPEN--> OPEN_RCVD --S:OPEN--> OPENED
    OPENED --R:CLOSE--> CLOSE_RCVD --S:CLOSE--> END        or       OPENED --S:CLOSE--> CLOSE_SENT --R:CLOSE--> END

Sessions (2.5.5) and links (2.6.1) have the same shape: each side begins and ends independently of the other.  The
specification's figure for sessions omits the case that one side ends before the other has begun; LEFT (the peer did)
and WITHDRAWN (we did) are these cases.

    UNMAPPED --R:BEGIN--> BEGIN_RCVD --S:BEGIN--> MAPPED --R:END--> END_RCVD --S:END--> UNMAPPED
                          BEGIN_RCVD --R:END--> LEFT --S:BEGIN--> END_RCVD

An endpoint that we ended because of an error of the peer discards everything until the peer's answer.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ConnectionState(Enum):
    """The state of a connection (part 2, 2.4.6)."""

    START = "start"
    HDR_RCVD = "header received"
    HDR_SENT = "header sent"
    HDR_EXCH = "headers exchanged"
    OPEN_PIPE = "open sent before the peer's header"
    OC_PIPE = "open and close sent before the peer's header"
    OPEN_RCVD = "open received"
    OPEN_SENT = "open sent"
    CLOSE_PIPE = "close sent before the peer's open"
    OPENED = "opened"
    CLOSE_RCVD = "close received"
    CLOSE_SENT = "close sent"
    DISCARDING = "close sent with an error"
    END = "closed"


_C: Final = ConnectionState

CONNECTION: Final[dict[ConnectionState, dict[str, ConnectionState]]] = {
    _C.START: {"R:HDR": _C.HDR_RCVD, "S:HDR": _C.HDR_SENT},
    _C.HDR_RCVD: {"S:HDR": _C.HDR_EXCH},
    _C.HDR_SENT: {"R:HDR": _C.HDR_EXCH, "S:OPEN": _C.OPEN_PIPE},
    _C.HDR_EXCH: {"R:OPEN": _C.OPEN_RCVD, "S:OPEN": _C.OPEN_SENT},
    _C.OPEN_PIPE: {"R:HDR": _C.OPEN_SENT, "S:CLOSE": _C.OC_PIPE, "S:CLOSE(error)": _C.OC_PIPE},
    _C.OC_PIPE: {"R:HDR": _C.CLOSE_PIPE},
    _C.OPEN_RCVD: {"S:OPEN": _C.OPENED},
    _C.OPEN_SENT: {"R:OPEN": _C.OPENED, "S:CLOSE": _C.CLOSE_PIPE, "S:CLOSE(error)": _C.CLOSE_PIPE},
    _C.CLOSE_PIPE: {"R:OPEN": _C.CLOSE_SENT},
    _C.OPENED: {"R:CLOSE": _C.CLOSE_RCVD, "S:CLOSE": _C.CLOSE_SENT, "S:CLOSE(error)": _C.DISCARDING},
    _C.CLOSE_RCVD: {"S:CLOSE": _C.END, "S:CLOSE(error)": _C.END},
    _C.CLOSE_SENT: {"R:CLOSE": _C.END},
    _C.DISCARDING: {"R:CLOSE": _C.END},
    _C.END: {},
}

#: States in which received frames are discarded, except the peer's CLOSE.  In OPEN_RCVD, which is in neither set, they
#: wait until we have answered: the peer has not been accepted yet.
DISCARDS: Final = frozenset({_C.CLOSE_SENT, _C.DISCARDING})

#: States in which frames other than OPEN and CLOSE may be sent.
SENDS: Final = frozenset({_C.OPEN_PIPE, _C.OPEN_SENT, _C.OPENED, _C.CLOSE_RCVD})

#: States after our CLOSE: nothing more is sent.
CLOSED: Final = frozenset({_C.OC_PIPE, _C.CLOSE_PIPE, _C.CLOSE_SENT, _C.DISCARDING, _C.END})


class SessionState(Enum):
    """The state of a session (part 2, 2.5.5)."""

    UNMAPPED = "unmapped"
    BEGIN_SENT = "begin sent"
    BEGIN_RCVD = "begin received"
    MAPPED = "mapped"
    END_SENT = "end sent"
    END_RCVD = "end received"
    DISCARDING = "end sent with an error"
    LEFT = "end received before we began"
    WITHDRAWN = "end sent before the peer began"


_S: Final = SessionState

SESSION: Final[dict[SessionState, dict[str, SessionState]]] = {
    _S.UNMAPPED: {"S:BEGIN": _S.BEGIN_SENT, "R:BEGIN": _S.BEGIN_RCVD},
    _S.BEGIN_SENT: {"R:BEGIN": _S.MAPPED, "S:END": _S.WITHDRAWN, "S:END(error)": _S.WITHDRAWN},
    _S.BEGIN_RCVD: {"S:BEGIN": _S.MAPPED, "R:END": _S.LEFT},
    _S.MAPPED: {"S:END": _S.END_SENT, "S:END(error)": _S.DISCARDING, "R:END": _S.END_RCVD},
    _S.END_SENT: {"R:END": _S.UNMAPPED},
    _S.END_RCVD: {"S:END": _S.UNMAPPED, "S:END(error)": _S.UNMAPPED},
    _S.DISCARDING: {"R:END": _S.UNMAPPED},
    _S.LEFT: {"S:BEGIN": _S.END_RCVD},
    _S.WITHDRAWN: {"R:BEGIN": _S.END_SENT},
}

#: States in which a session may send frames: it has an outgoing channel.
SESSION_SENDS: Final = frozenset({_S.BEGIN_SENT, _S.MAPPED, _S.END_RCVD})

#: States in which received frames for a session are handled.
SESSION_READS: Final = frozenset({_S.BEGIN_RCVD, _S.MAPPED})


class LinkState(Enum):
    """The state of a link: which of the two handles are assigned (part 2, 2.6.2)."""

    DETACHED = "detached"
    ATTACH_SENT = "attach sent"
    ATTACH_RCVD = "attach received"
    ATTACHED = "attached"
    DETACH_SENT = "detach sent"
    DETACH_RCVD = "detach received"
    LEFT = "detach received before we attached"
    WITHDRAWN = "detach sent before the peer attached"


_L: Final = LinkState

LINK: Final[dict[LinkState, dict[str, LinkState]]] = {
    _L.DETACHED: {"S:ATTACH": _L.ATTACH_SENT, "R:ATTACH": _L.ATTACH_RCVD},
    _L.ATTACH_SENT: {"R:ATTACH": _L.ATTACHED, "S:DETACH": _L.WITHDRAWN},
    _L.ATTACH_RCVD: {"S:ATTACH": _L.ATTACHED, "R:DETACH": _L.LEFT},
    _L.ATTACHED: {"S:DETACH": _L.DETACH_SENT, "R:DETACH": _L.DETACH_RCVD},
    _L.DETACH_SENT: {"R:DETACH": _L.DETACHED},
    _L.DETACH_RCVD: {"S:DETACH": _L.DETACHED},
    _L.LEFT: {"S:ATTACH": _L.DETACH_RCVD},
    _L.WITHDRAWN: {"R:ATTACH": _L.DETACH_SENT},
}


class DeliveryState(Enum):
    """The state of an incoming delivery (part 2, 2.6.14)."""

    NOT_RCVD = "not received"
    RECEIVING = "receiving"
    RECEIVED = "received"
    ABORTED = "aborted"


_D: Final = DeliveryState

#: The effect of a TRANSFER on a delivery, by its `more` and `aborted`; aborted takes precedence.  The specification's
#: figure has no delivery aborted by its first frame, but peers may send one.
DELIVERY: Final[dict[DeliveryState, dict[tuple[bool, bool], DeliveryState]]] = {
    state: {
        (False, False): _D.RECEIVED,
        (True, False): _D.RECEIVING,
        (False, True): _D.ABORTED,
        (True, True): _D.ABORTED,
    }
    for state in (_D.NOT_RCVD, _D.RECEIVING)
} | {_D.RECEIVED: {}, _D.ABORTED: {}}


class SaslState(Enum):
    """The state of a SASL exchange (part 5, 5.3.2)."""

    BEGUN = "begun"
    OFFERED = "mechanisms offered"
    ANSWERING = "the server's turn"
    CHALLENGED = "the client's turn"
    DONE = "authenticated"
    FAILED = "failed"


_X: Final = SaslState

#: The server sends mechanisms, challenge and outcome; the client sends init and response.
SASL: Final[dict[SaslState, dict[str, SaslState]]] = {
    _X.BEGUN: {"sasl-mechanisms": _X.OFFERED},
    _X.OFFERED: {"sasl-init": _X.ANSWERING},
    _X.ANSWERING: {
        "sasl-challenge": _X.CHALLENGED,
        "sasl-outcome(ok)": _X.DONE,
        "sasl-outcome(failed)": _X.FAILED,
    },
    _X.CHALLENGED: {"sasl-response": _X.ANSWERING},
    _X.DONE: {},
    _X.FAILED: {},
}
