"""The composite types, written down a second time, so that a slip of the first one is seen.

Name, number, what it provides, then the fields: `!` is mandatory, `*` several values, `=` a default, `/` the choices.
Letters stand for types: see LETTERS.
"""

from __future__ import annotations

from typing import Final

LETTERS: Final = {
    "?": "boolean", "B": "ubyte", "H": "ushort", "I": "uint", "L": "ulong", "x": "binary", "s": "string", "y": "symbol",
    "t": "timestamp", "m": "fields", "u": "map", "S": "source", "T": "target", "E": "error", "D": "delivery-state",
    "O": "outcome", "i": "message-id", "a": "any",
}  # fmt: skip

_DURABLE: Final = "durable:I=0/0,1,2"
_EXPIRY: Final = "expiry-policy:y=session-end/connection-close,link-detach,never,session-end"
_NODE: Final = f"address:s {_DURABLE} {_EXPIRY} timeout:I=0 dynamic:?=false dynamic-node-properties:m"
_CAPABLE: Final = "offered-capabilities:y* desired-capabilities:y* properties:m"
_WINDOWS: Final = "incoming-window:I! next-outgoing-id:I! outgoing-window:I!"

TYPES: Final[list[tuple[str, int, str, str]]] = [
    ("open", 0x10, "frame", "container-id:s! hostname:s max-frame-size:I=4294967295 channel-max:H=65535 "
     f"idle-time-out:I outgoing-locales:y* incoming-locales:y* {_CAPABLE}"),
    ("begin", 0x11, "frame", "remote-channel:H next-outgoing-id:I! incoming-window:I! outgoing-window:I! "
     f"handle-max:I=4294967295 {_CAPABLE}"),
    ("attach", 0x12, "frame", "name:s! handle:I! role:?! snd-settle-mode:B=2/0,1,2 rcv-settle-mode:B=0/0,1 source:S "
     "target:T unsettled:u incomplete-unsettled:?=false initial-delivery-count:I max-message-size:L " + _CAPABLE),
    ("flow", 0x13, "frame", f"next-incoming-id:I {_WINDOWS} handle:I delivery-count:I link-credit:I available:I "
     "drain:?=false echo:?=false properties:m"),
    ("transfer", 0x14, "frame", "handle:I! delivery-id:I delivery-tag:x message-format:I settled:? more:?=false "
     "rcv-settle-mode:B/0,1 state:D resume:?=false aborted:?=false batchable:?=false"),
    ("disposition", 0x15, "frame", "role:?! first:I! last:I settled:?=false state:D batchable:?=false"),
    ("detach", 0x16, "frame", "handle:I! closed:?=false error:E"),
    ("end", 0x17, "frame", "error:E"),
    ("close", 0x18, "frame", "error:E"),
    ("error", 0x1D, "error", "condition:y! description:s info:m"),
    ("received", 0x23, "delivery-state", "section-number:I! section-offset:L!"),
    ("accepted", 0x24, "delivery-state outcome", ""),
    ("rejected", 0x25, "delivery-state outcome", "error:E"),
    ("released", 0x26, "delivery-state outcome", ""),
    ("modified", 0x27, "delivery-state outcome", "delivery-failed:? undeliverable-here:? message-annotations:m"),
    ("source", 0x28, "source", f"{_NODE} distribution-mode:y filter:m default-outcome:O outcomes:y* capabilities:y*"),
    ("target", 0x29, "target", f"{_NODE} capabilities:y*"),
    ("delete-on-close", 0x2B, "lifetime-policy", ""),
    ("delete-on-no-links", 0x2C, "lifetime-policy", ""),
    ("delete-on-no-messages", 0x2D, "lifetime-policy", ""),
    ("delete-on-no-links-or-messages", 0x2E, "lifetime-policy", ""),
    ("coordinator", 0x30, "target", "capabilities:y*"),
    ("declare", 0x31, "", "global-id:a"),
    ("discharge", 0x32, "", "txn-id:x! fail:?"),
    ("declared", 0x33, "delivery-state outcome", "txn-id:x!"),
    ("transactional-state", 0x34, "delivery-state", "txn-id:x! outcome:O"),
    ("sasl-mechanisms", 0x40, "sasl-frame", "sasl-server-mechanisms:y*!"),
    ("sasl-init", 0x41, "sasl-frame", "mechanism:y! initial-response:x hostname:s"),
    ("sasl-challenge", 0x42, "sasl-frame", "challenge:x!"),
    ("sasl-response", 0x43, "sasl-frame", "response:x!"),
    ("sasl-outcome", 0x44, "sasl-frame", "code:B!/0,1,2,3,4 additional-data:x"),
    ("header", 0x70, "section", "durable:?=false priority:B=4 ttl:I first-acquirer:?=false delivery-count:I=0"),
    ("properties", 0x73, "section", "message-id:i user-id:x to:s subject:s reply-to:s correlation-id:i content-type:y "
     "content-encoding:y absolute-expiry-time:t creation-time:t group-id:s group-sequence:I reply-to-group-id:s"),
]  # fmt: skip
