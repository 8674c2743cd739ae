"""Composite types (part 1, 1.4): described lists whose elements are named fields.

The classes in `performatives` are the table: a class's code and fields, each with its type, whether it is mandatory
(it has no default), its default, and whether it may have several values (by its type).  This module derives decoding
and encoding from it.

    @composite("flow", 0x13, "frame")
    @dataclass(slots=True)
    class Flow(Composite):
        next_incoming_id: Annotated[int | None, UINT]           = None
        incoming_window:  Annotated[int, UINT, MANDATORY]       = 0

A field that is missing at the end of the list, or null, has its default; one that has its default is written as null.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast, get_args, get_origin

from protocols.amqp.decode import DEFAULT_LIMITS, Decoder
from protocols.amqp.encode import ENCODERS, NULL, add_type, encode, encode_list
from protocols.amqp.errors import DecodeError, format_descriptor, format_value
from protocols.amqp.limits import Limits
from protocols.amqp.types import NAMES, Array, Described, Symbol, Timestamp, UByte, UInt, ULong, UShort


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field: `read` converts a decoded value or raises ValueError, `write` encodes it."""

    name: str
    read: Callable[[Any], object]
    write: Callable[[Any], bytes]
    multiple: bool = False
    choices: frozenset[object] = frozenset()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a composite; `name` is the specification's, `attribute` ours."""

    name: str
    attribute: str
    type: FieldType
    mandatory: bool
    default: object


class Composite:
    """A composite value, of the type that its class defines; `PROVIDES` are its roles in the specification."""

    __slots__ = ()
    NAME: ClassVar[str] = ""
    CODE: ClassVar[int] = 0
    SYMBOL: ClassVar[Symbol] = Symbol("")
    PROVIDES: ClassVar[frozenset[str]] = frozenset()
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    PREFIX: ClassVar[bytes] = b""
    VALUES: ClassVar[Callable[[Any], tuple[object, ...]]]

    def encode(self) -> bytes:
        """The encoded composite."""
        return encode_composite(self)


#: Every composite class by its numeric and its symbolic descriptor.
BY_DESCRIPTOR: Final[dict[object, type[Composite]]] = {}

MANDATORY: Final = "mandatory"

Class = TypeVar("Class", bound=type[Composite])


def composite(name: str, code: int, *provides: str) -> Callable[[Class], Class]:
    """A decorator that enters a class into the table."""

    def enter(cls: Class) -> Class:
        hints = inspect.get_annotations(cls, eval_str=True)
        fields = tuple(_field(field, hints[field.name]) for field in dataclasses.fields(cast(Any, cls)))
        cls.NAME = name
        cls.CODE = code
        cls.SYMBOL = Symbol(f"amqp:{name}:list")
        cls.PROVIDES = frozenset(provides)
        cls.FIELDS = fields
        cls.PREFIX = b"\x00\x53" + bytes([code])
        cls.VALUES = _getter([field.attribute for field in fields])
        BY_DESCRIPTOR[code] = BY_DESCRIPTOR[cls.SYMBOL] = cls
        add_type(cls, encode_composite)
        return cls

    return enter


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    assert get_origin(hint) is Annotated
    marks = get_args(hint)[1:]
    name = field.name.replace("_", "-")
    default = None if field.default is dataclasses.MISSING else field.default
    return Field(name, field.name, marks[0], MANDATORY in marks, default)


def _getter(names: list[str]) -> Callable[[Any], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


# -- reading -----------------------------------------------------------------------------------------------------------


def decode_composite(
    buffer: bytes, at: int = 0, end: int = -1, limits: Limits = DEFAULT_LIMITS
) -> tuple[Composite, int]:
    """The composite that begins at `at`, and where it ends.  Raises DecodeError."""
    decoder = Decoder(buffer, at, end, limits)
    value = decoder.value()
    found = composite_of(value, at)
    if found is None:
        what = format_descriptor(value.descriptor) if isinstance(value, Described) else "without a descriptor"
        raise DecodeError(at, f"a value that is not known here: {what}")
    return found, decoder.at


def decode_body(buffer: bytes, frame: int, at: int, end: int, limits: Limits) -> tuple[Composite, int]:
    """The composite at `at` in the frame that begins at `frame`, and where it ends.

    Raises DecodeError, whose offset counts from the beginning of the frame.
    """
    try:
        return decode_composite(buffer, at, end, limits)
    except DecodeError as error:
        raise DecodeError(error.offset - frame, error.reason) from None


def composite_of(value: object, at: int = 0) -> Composite | None:
    """A decoded value as a composite, or None if its descriptor is unknown.  Raises DecodeError."""
    if not isinstance(value, Described) or type(value.descriptor) not in (ULong, Symbol):
        return None
    cls = BY_DESCRIPTOR.get(value.descriptor)
    if cls is None:
        return None
    values = value.value
    if type(values) is not list:
        raise DecodeError(at, f"{cls.NAME} is a list of fields, not of type {_type_name(values)}")
    return _build(cls, values, at)


def _build(cls: type[Composite], values: list[object], at: int) -> Composite:
    fields = cls.FIELDS
    if len(values) > len(fields):
        raise DecodeError(at, f"{cls.NAME} has {len(fields)} fields, not {len(values)}")
    found = []
    for field, value in zip(fields, values, strict=False):
        if value is None:
            if field.mandatory:
                raise _missing(cls, field, at)
            found.append(field.default)
            continue
        try:
            read = field.type.read(value)
        except ValueError as wrong:
            raise DecodeError(at, f"{cls.NAME}: the field {field.name} {wrong}") from None
        except DecodeError as wrong:
            raise DecodeError(at, f"{cls.NAME}: {wrong.reason}") from None
        if field.mandatory and read == ():
            raise _missing(cls, field, at)
        found.append(read)
    for field in fields[len(values) :]:
        if field.mandatory:
            raise _missing(cls, field, at)
        found.append(field.default)
    return cls(*found)


def _missing(cls: type[Composite], field: Field, at: int) -> DecodeError:
    return DecodeError(at, f"{cls.NAME}: the field {field.name} is missing")


# -- writing -----------------------------------------------------------------------------------------------------------


def encode_composite(value: Composite) -> bytes:
    """The bytes of a composite: its fields up to the last one that differs from its default."""
    cls = type(value)
    parts = [
        NULL if held is None or (held == field.default and not field.mandatory) else field.type.write(held)
        for field, held in zip(cls.FIELDS, cls.VALUES(value), strict=True)
    ]
    while parts and parts[-1] == NULL:
        parts.pop()
    return cls.PREFIX + encode_list(parts)


# -- types of fields ---------------------------------------------------------------------------------------------------


def _plain(name: str, kind: type) -> FieldType:
    """A field of one primitive type."""

    def read(value: object) -> object:
        if type(value) is not kind:
            raise ValueError(f"is of type {name}, not {_type_name(value)}")
        return value

    return FieldType(name, read, ENCODERS[name])


def _type_name(value: object) -> str:
    return NAMES.get(type(value), "described")


def choice(base: FieldType, values: frozenset[object]) -> FieldType:
    """A restricted type: one of certain values of its base."""

    def read(value: object) -> object:
        if base.read(value) not in values:
            found = format_value(value) if isinstance(value, int) else "another"
            raise ValueError(f"is one of {', '.join(sorted(map(str, values)))}, not {found}")
        return value

    return FieldType(base.name, read, base.write, choices=values)


def one_of(name: str, *kinds: type) -> FieldType:
    """A field that may have one of several primitive types."""

    def read(value: object) -> object:
        if type(value) not in kinds:
            raise ValueError(f"is no {name}: it is of type {_type_name(value)}")
        return value

    return FieldType(name, read, encode)


def several(base: FieldType) -> FieldType:
    """A field that may have several values (`multiple`): a tuple, empty for null.  A single value needs no array."""

    def read(value: object) -> object:
        if not isinstance(value, Array):
            return (base.read(value),)
        if value.type != base.name or value.descriptors:
            raise ValueError(f"is an array of {base.name}, not of {value.type}")
        return tuple([base.read(item) for item in value.items])

    def write(values: tuple[object, ...]) -> bytes:
        return encode(Array(base.name, values))

    return FieldType(base.name, read, write, multiple=True)


def provided(role: str) -> FieldType:
    """A field whose value is a composite that provides `role`; an unknown composite is kept as Described."""

    def read(value: object) -> object:
        if not isinstance(value, Described):
            raise ValueError(f"is no {role}: it is of type {_type_name(value)}")
        found = composite_of(value)
        if found is None:
            return value
        if role not in found.PROVIDES:
            raise ValueError(f"is no {role}: it is {found.NAME}")
        return found

    return FieldType(role, read, encode)


def _read_map(kinds: tuple[type, ...], name: str, value: object) -> dict[Any, object]:
    """Check a map whose keys must all be of certain types, of which `name` is the specification's."""
    if not isinstance(value, dict):
        raise ValueError(f"is a map with keys of type {name}, not {_type_name(value)}")
    for key in value:
        if type(key) not in kinds:
            raise ValueError(f"has keys of type {name}, not {_type_name(key)}")
    return value


def _write_fields(value: dict[str, object]) -> bytes:
    return ENCODERS["map"]({Symbol(key): held for key, held in value.items()})


def _read_unsettled(value: object) -> object:
    found = _read_map((bytes,), "binary", value)
    return {tag: state if state is None else DELIVERY_STATE.read(state) for tag, state in found.items()}


ANY: Final = FieldType("any", lambda value: value, encode)
BOOLEAN: Final = _plain("boolean", bool)
UBYTE: Final = _plain("ubyte", UByte)
USHORT: Final = _plain("ushort", UShort)
UINT: Final = _plain("uint", UInt)
ULONG: Final = _plain("ulong", ULong)
BINARY: Final = _plain("binary", bytes)
STRING: Final = _plain("string", str)
SYMBOL: Final = _plain("symbol", Symbol)
TIMESTAMP: Final = _plain("timestamp", Timestamp)
SYMBOLS: Final = several(SYMBOL)
FIELDS_MAP: Final = FieldType("fields", lambda value: _read_map((Symbol,), "symbol", value), _write_fields)
#: The info of an error, which go-amqp and rhea write with texts as keys.
INFO_MAP: Final = FieldType("fields", lambda value: _read_map((Symbol, str), "symbol", value), _write_fields)
DELIVERY_STATE: Final = provided("delivery-state")
OUTCOME: Final = provided("outcome")
UNSETTLED: Final = FieldType("map", _read_unsettled, ENCODERS["map"])
