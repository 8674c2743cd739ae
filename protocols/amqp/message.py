"""Messages (part 3, 3.2): finds their sections without decoding them.

    header | delivery-annotations | message-annotations | properties | application-properties | body | footer
    '---------- may be changed on the way ------------'   '------------ the bare message ----------'   may be

Each is optional, and a described value; the body is one amqp-value, or any number of data or of amqp-sequences.  A
Message finds the sections before the body when it is first asked for one of them, skipping values by their sizes, and
decodes a section when its contents are needed.  The bare message is forwarded byte for byte.

Errors in a message raise DecodeError, whose offset counts from the message's first byte.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from protocols.amqp.composite import Composite, composite_of
from protocols.amqp.decode import DEFAULT_LIMITS, Decoder
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError, TooMany, format_descriptor
from protocols.amqp.performatives import Header, Properties
from protocols.amqp.types import Described, Pairs, Symbol, ULong

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
AMQP_SEQUENCE: Final = 0x76
AMQP_VALUE: Final = 0x77
FOOTER: Final = 0x78

_SYMBOLS: Final[dict[object, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": AMQP_SEQUENCE,
    "amqp:amqp-value:*": AMQP_VALUE,
    "amqp:footer:map": FOOTER,
}

_NAMES: Final = {code: name.split(":")[1] for name, code in _SYMBOLS.items() if isinstance(name, str)}

_SMALL_ULONG: Final = b"\x00\x53"
_SECTIONS: Final = {_SMALL_ULONG + bytes([code]): code for code in range(HEADER, FOOTER + 1)}
_COMPOUND_8: Final = (0xC0, 0xC1)
_MAP_8: Final = 0xC1
_MAP_32: Final = 0xD1

#: The types of bodies; amqp-value may have any.
_BODY_TYPES: Final[dict[int, type]] = {DATA: bytes, AMQP_SEQUENCE: list}

#: The offsets of a section's beginning, of its value after the descriptor, and of its end.
Span = tuple[int, int, int]


class Message:
    """An encoded message, decoded only as far as needed."""

    __slots__ = ("_body_at", "_spans", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self._spans: dict[int, Span] = {}
        self._body_at = -1

    # -- sections --------------------------------------------------------------------------------------------------

    @property
    def body_at(self) -> int:
        """Where the body begins, or the footer, or the end.  Raises DecodeError."""
        if self._body_at < 0:
            self._body_at = self._index()
        return self._body_at

    def _index(self) -> int:
        """Find the sections before the body."""
        payload = self.payload
        end = len(payload)
        at = previous = 0
        while at < end:
            code, value_at = self.section_at(at)
            if code >= DATA:
                break
            if code <= previous:
                raise DecodeError(at, f"{_NAMES[code]} after {_NAMES[previous]}")
            stop = value_at + 2
            if stop < end and payload[value_at] in _COMPOUND_8:  # nearly always
                stop += payload[value_at + 1]
            else:
                stop = end + 1
            if stop > end:
                decoder = Decoder(payload, value_at)
                decoder.skip()
                stop = decoder.at
            self._spans[code] = (at, value_at, stop)
            previous = code
            at = stop
        return at

    def section_at(self, at: int) -> tuple[int, int]:
        """The code of the section at `at`, and where its value begins."""
        payload = self.payload
        known = _SECTIONS.get(payload[at : at + 3])
        if known is not None:
            return known, at + 3
        if payload[at]:
            raise DecodeError(at, "a section begins with its descriptor")
        decoder = Decoder(payload, at + 1)
        descriptor = decoder.value()
        code = _SYMBOLS.get(descriptor) if type(descriptor) is Symbol else descriptor
        if not isinstance(code, int) or type(descriptor) not in (Symbol, ULong) or not HEADER <= code <= FOOTER:
            raise DecodeError(at, f"no section of a message: {format_descriptor(descriptor)}")
        return code, decoder.at

    def section(self, code: int) -> bytes:
        """A section before the body with its descriptor, empty if there is none.  Raises DecodeError."""
        found = self._span(code)
        return self.payload[found[0] : found[2]] if found is not None else b""

    def _span(self, code: int) -> Span | None:
        if self._body_at < 0:
            self._body_at = self._index()
        return self._spans.get(code)

    @property
    def properties_at(self) -> int:
        """Where the value of the properties begins; 0 without them.  Raises DecodeError."""
        found = self._span(PROPERTIES)
        return 0 if found is None else found[1]

    @property
    def bare_at(self) -> int:
        """Where the bare message begins: from this byte on it must not be changed.  Raises DecodeError."""
        found = self._span(PROPERTIES) or self._span(APPLICATION_PROPERTIES)
        return found[0] if found is not None else self.body_at

    @property
    def bare(self) -> bytes:
        """The bare message and the footer.  Raises DecodeError."""
        return self.payload[self.bare_at :]

    # -- contents --------------------------------------------------------------------------------------------------

    def _value(self, found: Span) -> object:
        return Decoder(self.payload, found[1], found[2]).value()

    def _composite(self, code: int) -> Composite | None:
        found = self._span(code)
        if found is None:
            return None
        return composite_of(Described(ULong(code), self._value(found)), found[0])

    def _map(self, code: int) -> dict[object, object]:
        found = self._span(code)
        return _map_of(code, self._value(found), found[0]) if found is not None else {}

    @property
    def header(self) -> Header:
        """The header; its defaults if there is none.  Raises DecodeError."""
        found = self._composite(HEADER)
        return found if isinstance(found, Header) else Header()

    @property
    def properties(self) -> Properties:
        """The properties; all absent if there is no such section.  Raises DecodeError."""
        found = self._composite(PROPERTIES)
        return found if isinstance(found, Properties) else Properties()

    @property
    def message_annotations(self) -> dict[object, object]:
        """The annotations of the message by nodes on the way.  Raises DecodeError."""
        return self._map(MESSAGE_ANNOTATIONS)

    @property
    def application_properties(self) -> dict[object, object]:
        """The application's own properties.  Raises DecodeError."""
        return self._map(APPLICATION_PROPERTIES)

    @property
    def application_property_count(self) -> int:
        """How many application properties their section claims to have, without decoding it.  Raises DecodeError."""
        found = self._span(APPLICATION_PROPERTIES)
        if found is None:
            return 0
        payload, (_, at, end) = self.payload, found
        if payload[at] == _MAP_8 and at + 2 < end:
            return payload[at + 2] // 2
        return int.from_bytes(payload[at + 5 : at + 9]) // 2 if payload[at] == _MAP_32 and at + 8 < end else 0

    def body(self) -> tuple[int, list[object]]:
        """DATA, AMQP_SEQUENCE or AMQP_VALUE, and the value of each such section; 0 without one.

        Raises DecodeError, also for a wrong footer, and TooMany.
        """
        at, end = self.body_at, len(self.payload)
        kind, ended = 0, False
        values: list[object] = []
        decoder = Decoder(self.payload)  # one, so that its limit holds for all sections together
        while at < end:
            code, decoder.at = self.section_at(at)
            if len(values) + ended >= DEFAULT_LIMITS.sections_max:
                raise TooMany(at, f"a body has at most {DEFAULT_LIMITS.sections_max} sections")
            if code < DATA or ended or (kind and code not in (kind, FOOTER)) or kind == code == AMQP_VALUE:
                raise DecodeError(at, f"{_NAMES[code]} does not belong there")
            value = decoder.value()
            if code == FOOTER:
                _map_of(code, value, at)
                ended = True
            else:
                kind = code
                if code in _BODY_TYPES and type(value) is not _BODY_TYPES[code]:
                    raise DecodeError(at, f"{_NAMES[code]} cannot be a {type(value).__name__}")
                values.append(value)
            at = decoder.at
        return kind, values


def _map_of(code: int, value: object, at: int) -> dict[object, object]:
    """The map in a section.  Of keys that are equal in Python, the last one counts."""
    if isinstance(value, Pairs):
        return dict(value.pairs) if all(isinstance(key, Hashable) for key, _ in value.pairs) else {}
    if not isinstance(value, dict):
        raise DecodeError(at, f"{_NAMES[code]} is a map")
    return value


def encode_annotations(code: int, values: Mapping[object, object]) -> bytes:
    """A section of annotations: DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS or FOOTER; none if there are none."""
    return encode_section(code, {_annotation_key(key): value for key, value in values.items()})


def _annotation_key(key: object) -> object:
    """A text converted to the symbol that it should be (3.2.10), if possible."""
    return Symbol(key) if type(key) is str and key.isascii() else key


def encode_application_properties(values: Mapping[str, object]) -> bytes:
    """The section of application properties; none if there are none."""
    return encode_section(APPLICATION_PROPERTIES, dict(values))


def encode_section(code: int, value: object) -> bytes:
    """A section of any kind; none for an empty map."""
    return _SMALL_ULONG + bytes([code]) + encode(value) if value != {} else b""
