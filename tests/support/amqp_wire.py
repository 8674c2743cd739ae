"""AMQP 1.0 frames by hand: each value in every encoding that the specification allows (part 1, 1.6), and wrong ones.

The product's codec writes one encoding only, the shortest, so a test that uses it for both sides cannot find what it
refuses or alters.  Nothing of that codec is used here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from tests.support.links import Lost, SocketLink

HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
NULL: Final = b"\x40"


# -- values ------------------------------------------------------------------------------------------------------------


def boolean(value: object, *, wide: bool = False) -> bytes:
    """A boolean of no or of one byte."""
    return (b"\x56\x01" if value else b"\x56\x00") if wide else (b"\x41" if value else b"\x42")


def ubyte(value: int) -> bytes:
    """One byte."""
    return struct.pack(">BB", 0x50, value)


def ushort(value: int) -> bytes:
    """Two bytes."""
    return struct.pack(">BH", 0x60, value)


def uint(value: int, *, wide: bool = False) -> bytes:
    """uint0, smalluint or uint."""
    if wide or value > 0xFF:
        return struct.pack(">BI", 0x70, value)
    return struct.pack(">BB", 0x52, value) if value else b"\x43"


def ulong(value: int, *, wide: bool = False) -> bytes:
    """ulong0, smallulong or ulong."""
    if wide or value > 0xFF:
        return struct.pack(">BQ", 0x80, value)
    return struct.pack(">BB", 0x53, value) if value else b"\x44"


def _sized(code: int, data: bytes, *, wide: bool) -> bytes:
    if wide or len(data) > 0xFF:
        return struct.pack(">BI", code + 0x10, len(data)) + data
    return struct.pack(">BB", code, len(data)) + data


def binary(value: bytes, *, wide: bool = False) -> bytes:
    """vbin8 or vbin32."""
    return _sized(0xA0, value, wide=wide)


def string(value: str, *, wide: bool = False) -> bytes:
    """str8 or str32."""
    return _sized(0xA1, value.encode(), wide=wide)


def symbol(value: str, *, wide: bool = False) -> bytes:
    """sym8 or sym32."""
    return _sized(0xA3, value.encode(), wide=wide)


def _compound(code: int, count: int, data: bytes, *, wide: bool) -> bytes:
    if wide or len(data) > 0xFE or count > 0xFF:
        return struct.pack(">BII", code + 0x10, 4 + len(data), count) + data
    return struct.pack(">BBB", code, 1 + len(data), count) + data


def listed(*items: bytes, wide: bool = False) -> bytes:
    """list0, list8 or list32."""
    return _compound(0xC0, len(items), b"".join(items), wide=wide) if items or wide else b"\x45"


def mapped(pairs: dict[bytes, bytes] | None = None, *, wide: bool = False) -> bytes:
    """map8 or map32."""
    pairs = pairs or {}
    data = b"".join([key + value for key, value in pairs.items()])
    return _compound(0xC1, 2 * len(pairs), data, wide=wide)


def symbols(*values: str, wide: bool = False) -> bytes:
    """An array8 of sym8, or an array32 of sym32."""
    if wide:
        data = b"\xb3" + b"".join([struct.pack(">I", len(value)) + value.encode() for value in values])
    else:
        data = b"\xa3" + b"".join([bytes([len(value)]) + value.encode() for value in values])
    return _compound(0xE0, len(values), data, wide=wide)


def described(descriptor: bytes, value: bytes) -> bytes:
    """A described value."""
    return b"\x00" + descriptor + value


# -- composites --------------------------------------------------------------------------------------------------------

#: Fields in their order, each with its type; what is not listed is not needed by a test.
FIELDS: Final[dict[str, tuple[int, str]]] = {
    "open": (
        0x10,
        "container-id:string hostname:string max-frame-size:uint channel-max:ushort idle-time-out:uint"
        " outgoing-locales:symbols incoming-locales:symbols offered-capabilities:symbols"
        " desired-capabilities:symbols properties:raw",
    ),
    "begin": (
        0x11,
        "remote-channel:ushort next-outgoing-id:uint incoming-window:uint outgoing-window:uint handle-max:uint"
        " offered-capabilities:symbols desired-capabilities:symbols properties:raw",
    ),
    "attach": (
        0x12,
        "name:string handle:uint role:boolean snd-settle-mode:ubyte rcv-settle-mode:ubyte source:raw target:raw"
        " unsettled:raw incomplete-unsettled:boolean initial-delivery-count:uint max-message-size:ulong"
        " offered-capabilities:symbols desired-capabilities:symbols properties:raw",
    ),
    "flow": (
        0x13,
        "next-incoming-id:uint incoming-window:uint next-outgoing-id:uint outgoing-window:uint handle:uint"
        " delivery-count:uint link-credit:uint available:uint drain:boolean echo:boolean properties:raw",
    ),
    "transfer": (
        0x14,
        "handle:uint delivery-id:uint delivery-tag:binary message-format:uint settled:boolean more:boolean"
        " rcv-settle-mode:ubyte state:raw resume:boolean aborted:boolean batchable:boolean",
    ),
    "disposition": (0x15, "role:boolean first:uint last:uint settled:boolean state:raw batchable:boolean"),
    "detach": (0x16, "handle:uint closed:boolean error:raw"),
    "end": (0x17, "error:raw"),
    "close": (0x18, "error:raw"),
    "error": (0x1D, "condition:symbol description:string info:raw"),
    "received": (0x23, "section-number:uint section-offset:ulong"),
    "accepted": (0x24, ""),
    "rejected": (0x25, "error:raw"),
    "released": (0x26, ""),
    "modified": (0x27, "delivery-failed:boolean undeliverable-here:boolean message-annotations:raw"),
    "source": (
        0x28,
        "address:string durable:uint expiry-policy:symbol timeout:uint dynamic:boolean dynamic-node-properties:raw"
        " distribution-mode:symbol filter:raw default-outcome:raw outcomes:symbols capabilities:symbols",
    ),
    "target": (
        0x29,
        "address:string durable:uint expiry-policy:symbol timeout:uint dynamic:boolean dynamic-node-properties:raw"
        " capabilities:symbols",
    ),
    "coordinator": (0x30, "capabilities:symbols"),
    "declare": (0x31, "global-id:raw"),
    "discharge": (0x32, "txn-id:binary fail:boolean"),
    "declared": (0x33, "txn-id:binary"),
    "transactional-state": (0x34, "txn-id:binary outcome:raw"),
    "sasl-mechanisms": (0x40, "sasl-server-mechanisms:symbols"),
    "sasl-init": (0x41, "mechanism:symbol initial-response:binary hostname:string"),
    "sasl-challenge": (0x42, "challenge:binary"),
    "sasl-response": (0x43, "response:binary"),
    "sasl-outcome": (0x44, "code:ubyte additional-data:binary"),
}
_NAMES: Final = {code: name for name, (code, _) in FIELDS.items()}


@dataclass(frozen=True)
class Style:
    """How composites are written.

    `numeric`: their descriptors are numbers, else symbols; `wide`: of every value the longest encoding; `full`: absent
    fields at the end are null; `arrays`: a single symbol is an array of one.
    """

    numeric: bool = True
    wide: bool = False
    full: bool = False
    arrays: bool = False

    def descriptor(self, code: int, name: str) -> bytes:
        """The descriptor of a composite."""
        return ulong(code, wide=self.wide) if self.numeric else symbol(f"amqp:{name}:list", wide=self.wide)

    def value(self, kind: str, value: Any) -> bytes:
        """A field."""
        if value is None:
            return NULL
        if isinstance(value, bytes) and kind != "binary":
            return value
        if kind == "symbols":
            if len(value) == 1 and not self.arrays:
                return symbol(value[0], wide=self.wide)
            return symbols(*value, wide=self.wide)
        if kind in ("ubyte", "ushort"):
            return {"ubyte": ubyte, "ushort": ushort}[kind](value)
        return _WRITERS[kind](value, wide=self.wide)

    def composite(self, of: str, /, **fields: Any) -> bytes:
        """A composite, whose fields have `_` instead of `-`."""
        code, layout = FIELDS[of]
        left = {key.replace("_", "-"): value for key, value in fields.items()}
        items = []
        for part in layout.split():
            key, kind = part.split(":")
            items.append(self.value(kind, left.pop(key, None)))
        assert not left, f"{of} has no {', '.join(left)}"
        while not self.full and items and items[-1] == NULL:
            items.pop()
        return described(self.descriptor(code, of), listed(*items, wide=self.wide))


_WRITERS: Final[dict[str, Callable[..., bytes]]] = {
    "boolean": boolean,
    "uint": uint,
    "ulong": ulong,
    "binary": binary,
    "string": string,
    "symbol": symbol,
}

PLAIN: Final = Style()
#: One of each kind: the shortest encodings, and three that no client uses throughout.
STYLES: Final = {
    "short": PLAIN,
    "long": Style(wide=True, full=True, arrays=True),
    "symbolic": Style(numeric=False, arrays=True),
    "symbolic and long": Style(numeric=False, wide=True, full=True),
}

composite: Final = PLAIN.composite


def section(code: int, value: bytes) -> bytes:
    """A section of a message."""
    return described(ulong(code), value)


def message(text: str, *, durable: bool = True) -> bytes:
    """A message with a header and a text."""
    return section(0x70, listed(boolean(durable))) + section(0x77, string(text))


def discharge(txn: bytes, *, fail: bool = False) -> bytes:
    """A message to a coordinator that ends a transaction."""
    return section(0x77, composite("discharge", txn_id=txn, fail=fail))


def frame(body: bytes, channel: int = 0, *, kind: int = 0, extended: bytes = b"") -> bytes:
    """A frame, perhaps with an extended header."""
    assert len(extended) % 4 == 0
    return struct.pack(">IBBH", 8 + len(extended) + len(body), 2 + len(extended) // 4, kind, channel) + extended + body


# -- reading -----------------------------------------------------------------------------------------------------------

_FIXED: Final[dict[int, tuple[str, Any]]] = {
    0x50: (">B", None),
    0x51: (">b", None),
    0x52: (">B", None),
    0x53: (">B", None),
    0x54: (">b", None),
    0x55: (">b", None),
    0x60: (">H", None),
    0x61: (">h", None),
    0x70: (">I", None),
    0x71: (">i", None),
    0x80: (">Q", None),
    0x81: (">q", None),
    0x82: (">d", None),
    0x83: (">q", None),
}
_EMPTY: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}


def value_at(data: bytes, at: int) -> tuple[Any, int]:
    """The value at `at`, and where it ends; a described one is a pair, a composite a dict."""
    code = data[at]
    if code:
        return _data_at(code, data, at + 1)
    descriptor, at = value_at(data, at + 1)
    value, at = value_at(data, at)
    if descriptor not in _NAMES:
        return (descriptor, value), at
    name = _NAMES[descriptor]
    keys = [part.split(":")[0] for part in FIELDS[name][1].split()]
    return {"": name} | dict(zip(keys, value, strict=False)), at


def _data_at(code: int, data: bytes, at: int) -> tuple[Any, int]:
    if code in _EMPTY:
        return _EMPTY[code], at
    if code == 0x56:
        return data[at] == 1, at + 1
    if code in _FIXED:
        form = _FIXED[code][0]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if code == 0x98:
        return data[at : at + 16], at + 16
    width = 1 if code >> 4 in (0xA, 0xC, 0xE) else 4
    size = int.from_bytes(data[at : at + width])
    at += width
    end = at + size
    if code >> 4 in (0xA, 0xB):
        raw = data[at:end]
        return (raw if code & 0xF == 0 else raw.decode()), end
    count = int.from_bytes(data[at : at + width])
    at += width
    items = []
    if code >> 4 in (0xE, 0xF):
        of, at = data[at], at + 1
        for _ in range(count):
            item, at = _data_at(of, data, at)
            items.append(item)
        return items, end
    for _ in range(count):
        item, at = value_at(data, at)
        items.append(item)
    if code in (0xC1, 0xD1):
        return dict(zip(items[::2], items[1::2], strict=True)), end
    return items, end


@dataclass
class Frame:
    """A frame that arrived: its composite, and what follows it."""

    channel: int
    name: str
    fields: dict[str, Any]
    payload: bytes = b""
    nbytes: int = 0

    def __getitem__(self, key: str) -> Any:
        return self.fields.get(key)

    @property
    def condition(self) -> str | None:
        """The condition of its error."""
        error = self["error"]
        return None if error is None else error["condition"]


class WireClient(SocketLink):
    """A client that writes frames as it is told, and answers nothing by itself; `style` is that of its performatives.

    `frames` are those that arrived and were not asked for yet.
    """

    def __init__(self, port: int, style: Style = PLAIN, *, container: str | None = "wire", **fields: Any) -> None:
        super().__init__(port)
        self.style = style
        self.frames: list[Frame] = []
        self.headers: list[bytes] = []
        self.max_bytes = 0
        self._left = b""
        if container is not None:
            self.raw(HEADER)
            self.send("open", container_id=container, **fields)
            self.open = self.next("open")

    def heard(self, data: bytes) -> None:
        """Take frames apart."""
        self._left += data
        while len(self._left) >= 8:
            if self._left[:4] == b"AMQP":
                self.headers.append(self._left[:8])
                self._left = self._left[8:]
                continue
            size, doff, _, channel = struct.unpack_from(">IBBH", self._left)
            if len(self._left) < size:
                return
            whole, self._left = self._left[:size], self._left[size:]
            self.max_bytes = max(self.max_bytes, size)
            if size == 4 * doff:
                self.frames.append(Frame(channel, "", {}, nbytes=size))
                continue
            found, at = value_at(whole, 4 * doff)
            self.frames.append(Frame(channel, found.pop(""), found, whole[at:], size))

    def send(self, of: str, payload: bytes = b"", /, *, channel: int = 0, **fields: Any) -> None:
        """Send a frame."""
        self.raw(self.made(of, payload, channel=channel, **fields))

    def made(self, of: str, payload: bytes = b"", /, *, channel: int = 0, **fields: Any) -> bytes:
        """The bytes of a frame."""
        return frame(self.style.composite(of, **fields) + payload, channel, kind=of.startswith("sasl"))

    def next(self, *names: str, channel: int | None = None) -> Frame:
        """Wait for a frame with one of these names, which is taken out; those before it stay."""

        def wanted(each: Frame) -> bool:
            return each.name in names and channel in (None, each.channel)

        self.wait(lambda: any(map(wanted, self.frames)))
        found = next(filter(wanted, self.frames))
        self.frames.remove(found)
        return found

    def all(self, *names: str) -> list[Frame]:
        """The frames with one of these names that have arrived, which are taken out."""
        found = [each for each in self.frames if each.name in names]
        self.frames = [each for each in self.frames if each.name not in names]
        return found

    def rest(self) -> str | None:
        """Read until the broker hangs up; returns the condition of its CLOSE."""
        try:
            self.wait(lambda: False)
        except Lost:
            closes = self.all("close")
            return closes[0].condition if closes else None
        raise AssertionError("the broker goes on")

    # -- usual conversations ---------------------------------------------------------------------------------------

    def begin(self, channel: int = 0, *, next_outgoing_id: int = 0, incoming_window: int = 5000, **more: Any) -> Frame:
        """Begin a session."""
        self.send(
            "begin",
            channel=channel,
            next_outgoing_id=next_outgoing_id,
            incoming_window=incoming_window,
            outgoing_window=5000,
            **more,
        )
        return self.next("begin")

    def sender(self, address: str | None, handle: int = 0, *, channel: int = 0, **more: Any) -> Frame:
        """Attach a producer's link, and wait for its credit."""
        self.attach_sender(address, handle, channel=channel, **more)
        found = self.next("attach")
        self.next("flow", "detach")
        return found

    def attach_sender(self, address: str | None, handle: int = 0, *, channel: int = 0, **more: Any) -> None:
        """Send the ATTACH of a producer's link."""
        fields = {
            "name": f"to {address} {handle}",
            "source": self.style.composite("source"),
            "target": self.style.composite("target", address=address),
            "initial_delivery_count": 0,
        } | more
        self.send("attach", channel=channel, handle=handle, role=False, **fields)

    def receiver(
        self, address: str | None, handle: int = 1, *, credit: int = 0, channel: int = 0, **more: Any
    ) -> Frame:
        """Attach a consumer's link."""
        fields = {
            "name": f"from {address} {handle}",
            "source": self.style.composite("source", address=address),
            "target": self.style.composite("target"),
        } | more
        self.send("attach", channel=channel, handle=handle, role=True, **fields)
        found = self.next("attach")
        if credit:
            self.credit(credit, handle, channel=channel)
        return found

    def coordinator(self, handle: int = 9, **more: Any) -> Frame:
        """Attach a link to the coordinator."""
        return self.sender(None, handle, target=self.style.composite("coordinator"), **more)

    def credit(self, credit: int, handle: int = 1, *, channel: int = 0, **more: Any) -> None:
        """Send FLOW for a consumer's link."""
        fields = {
            "next_incoming_id": 0,
            "incoming_window": 5000,
            "next_outgoing_id": 0,
            "outgoing_window": 5000,
            "delivery_count": 0,
        } | more
        self.send("flow", channel=channel, handle=handle, link_credit=credit, **fields)

    def transfer(
        self, id: int | None, payload: bytes = b"", handle: int = 0, *, tag: bytes | None = b"t", **more: Any
    ) -> None:
        """Send a transfer."""
        self.send("transfer", payload, handle=handle, delivery_id=id, delivery_tag=tag, **more)

    def settled(self, id: int) -> Any:
        """Wait for the broker's state of a message that was sent."""

        def about(each: Frame) -> bool:
            first = each["first"]
            return each.name == "disposition" and each["role"] and first <= id <= (each["last"] or first)

        self.wait(lambda: any(map(about, self.frames)))
        found = next(filter(about, self.frames))
        if (found["last"] or id) == id:
            self.frames.remove(found)
        return found["state"]

    def outcome(self, id: int) -> str:
        """Wait for the outcome of a message: the name of the state, or the condition of a rejection."""
        state = self.settled(id)
        if state[""] == "transactional-state":
            state = state["outcome"]
        return str(state["error"]["condition"] if state[""] == "rejected" else state[""])

    def declare(self, id: int, handle: int = 9) -> bytes:
        """Begin a transaction with a message of this delivery id; returns the transaction's id."""
        self.transfer(id, section(0x77, composite("declare")), handle)
        txn: bytes = self.settled(id)["txn-id"]
        return txn

    def discharge(self, id: int, txn: bytes, *, fail: bool = False, handle: int = 9) -> None:
        """Ask for the end of a transaction."""
        self.transfer(id, discharge(txn, fail=fail), handle)

    def received(self, number: int) -> list[bytes]:
        """Wait for whole messages on any link; returns their payloads."""
        found: list[bytes] = []
        parts = b""
        while len(found) < number:
            each = self.next("transfer")
            parts += each.payload
            if not each["more"]:
                found.append(parts)
                parts = b""
        return found


def split(data: bytes, at: Iterable[int]) -> list[bytes]:
    """The data in pieces that end at these offsets."""
    edges = [0, *at, len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]
