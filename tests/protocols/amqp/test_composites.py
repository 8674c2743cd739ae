"""Composite types: the table, and reading and writing by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.composite import BY_DESCRIPTOR, Composite, composite_of, decode_body, decode_composite
from protocols.amqp.decode import DEFAULT_LIMITS as DEFAULT
from protocols.amqp.decode import decode
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Declare,
    Disposition,
    Error,
    Flow,
    Open,
    Properties,
    Rejected,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from protocols.amqp.types import Array, Described, Pairs, Symbol, UByte, UInt, ULong, UShort
from tests.protocols.amqp.composites import CLASSES, instances, sample
from tests.protocols.amqp.specification import LETTERS, TYPES
from tests.protocols.amqp.values import typed


def written(cls: type[Composite]) -> tuple[str, int, str, str]:
    """A class as a line of TYPES."""
    letters = {name: letter for letter, name in LETTERS.items()}
    fields = []
    for field in cls.FIELDS:
        text = f"{field.name}:{letters[field.type.name]}" + "*" * field.type.multiple + "!" * field.mandatory
        if field.default not in (None, ()) and not field.mandatory:
            text += f"={format(field.default, 'd') if type(field.default) is not str else field.default}"
        choices = sorted(map(str, field.type.choices))
        fields.append(text.replace("?=0", "?=false") + ("/" + ",".join(choices) if choices else ""))
    return cls.NAME, cls.CODE, " ".join(sorted(cls.PROVIDES)), " ".join(fields)


def test_the_table_is_the_specifications() -> None:
    assert [written(cls) for cls in CLASSES] == TYPES


@pytest.mark.parametrize("cls", CLASSES)
@given(data=st.data())
def test_round_trip(cls: type[Composite], data: st.DataObject) -> None:
    value = data.draw(instances(cls))
    raw = value.encode()
    assert raw[:3] == bytes([0, 0x53, cls.CODE])
    again, end = decode_composite(b"\xff" + raw + b"\xff", 1, 1 + len(raw))
    assert again == value
    assert end == 1 + len(raw)
    assert again.encode() == raw


@pytest.mark.parametrize("cls", CLASSES)
def test_every_prefix_is_refused(cls: type[Composite]) -> None:
    raw = sample(cls).encode()
    assert decode_composite(raw) == (sample(cls), len(raw))
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            decode_composite(raw[:cut])


@pytest.mark.parametrize("cls", CLASSES)
def test_other_encodings_of_the_same(cls: type[Composite]) -> None:
    value = sample(cls)
    described = decode(value.encode())
    assert isinstance(described, Described)
    fields = described.value
    assert isinstance(fields, list)
    nulls: list[object] = [None] * (len(cls.FIELDS) - len(fields))
    for descriptor in ULong(cls.CODE), Symbol(f"amqp:{cls.NAME}:list"):
        for trailing in [], nulls:
            again, _ = decode_composite(encode(Described(descriptor, fields + trailing)))
            assert again == value
    wide = b"\x00\x80" + cls.CODE.to_bytes(8) + encode(fields)
    assert decode_composite(wide) == (value, len(wide))


@pytest.mark.parametrize("cls", CLASSES)
def test_mandatory_fields(cls: type[Composite]) -> None:
    described = decode(sample(cls).encode())
    assert isinstance(described, Described)
    fields = described.value
    assert isinstance(fields, list)
    for at, field in enumerate(cls.FIELDS):
        without = [None if number == at else value for number, value in enumerate(fields)]
        for values in without, fields[:at]:
            found = composite_of_or_reason(Described(ULong(cls.CODE), values))
            if any(later.mandatory for later in cls.FIELDS[at:]) and values is not without:
                missing = next(later.name for later in cls.FIELDS[at:] if later.mandatory)
                assert found == f"{cls.NAME}: the field {missing} is missing at byte 7"
            elif field.mandatory:
                assert found == f"{cls.NAME}: the field {field.name} is missing at byte 7"
            else:
                assert isinstance(found, cls)
                assert getattr(found, field.attribute) == field.default


def composite_of_or_reason(value: object) -> Composite | str | None:
    """A composite, or what is wrong."""
    try:
        return composite_of(value, 7)
    except DecodeError as error:
        return f"{error.reason} at byte {error.offset}"


@pytest.mark.parametrize("cls", CLASSES)
def test_wrong_types(cls: type[Composite]) -> None:
    for at, field in enumerate(cls.FIELDS):
        if field.type.name == "any":
            continue
        wrong: object
        for wrong in 1.5, [], Array("double", [1.5]), Described(ULong(0x10), []):
            fields: list[object] = [None] * at + [wrong]
            described = decode(sample(cls).encode())
            assert isinstance(described, Described)
            assert isinstance(described.value, list)
            fields[:at] = described.value[:at]
            found = composite_of_or_reason(Described(ULong(cls.CODE), fields))
            assert isinstance(found, str), (field, wrong)
            mine = f"{cls.NAME}: the field {field.name} ", f"{cls.NAME}: open: the field container-id is missing"
            assert found.startswith(mine)
            assert found.endswith(" at byte 7")


WRONG = [
    (Open, ["x", None, UShort(512)], "open: the field max-frame-size is of type uint, not ushort"),
    (Open, [Symbol("x")], "open: the field container-id is of type string, not symbol"),
    (Attach, ["l", UInt(0), UByte(1)], "attach: the field role is of type boolean, not ubyte"),
    (Attach, ["l", UInt(0), True, UByte(3)], "attach: the field snd-settle-mode is one of 0, 1, 2, not '3'"),
    (Attach, ["l", UInt(0), True, 1], "attach: the field snd-settle-mode is of type ubyte, not long"),
    (Source, [1], "source: the field address is of type string, not long"),
    (
        Source,
        [None, None, Symbol("x")],
        "source: the field expiry-policy is one of connection-close, link-detach, never, session-end, not another",
    ),
    (Source, [None] * 5 + [{"a": 1}], "source: the field dynamic-node-properties has keys of type symbol, not string"),
    (
        Source,
        [None] * 5 + [Pairs([("a", 1), (Symbol("a"), 1)])],
        "source: the field dynamic-node-properties is a map with keys of type symbol, not map",
    ),
    (Source, [None] * 9 + [Array("string", ["a"])], "source: the field outcomes is an array of symbol, not of string"),
    (
        Source,
        [None] * 9 + [Array("symbol", [Symbol("a")], (ULong(1),))],
        "source: the field outcomes is an array of symbol, not of symbol",
    ),
    (
        Source,
        [None] * 8 + [Described(ULong(0x29), [])],
        "source: the field default-outcome is no outcome: it is target",
    ),
    (Transfer, [UInt(0)] + [None] * 6 + [1], "transfer: the field state is no delivery-state: it is of type long"),
    (Rejected, [Described(ULong(0x1D), 5)], "rejected: error is a list of fields, not of type long"),
    (Accepted, [None], "accepted has 0 fields, not 1"),
    (SaslMechanisms, [Array("symbol", [])], "sasl-mechanisms: the field sasl-server-mechanisms is missing"),
    (SaslOutcome, [UByte(5)], "sasl-outcome: the field code is one of 0, 1, 2, 3, 4, not '5'"),
    (Properties, [1], "properties: the field message-id is no message-id: it is of type long"),
    (
        Attach,
        ["l", UInt(0), True] + [None] * 4 + [{"a": None}],
        "attach: the field unsettled has keys of type binary, not string",
    ),
]


@pytest.mark.parametrize(("cls", "fields", "reason"), WRONG)
def test_messages_about_wrong_fields(cls: type[Composite], fields: list[object], reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_composite(encode(Described(ULong(cls.CODE), fields)))
    assert caught.value.reason == reason


def test_unknown_composites() -> None:
    known = Described(ULong(0x10), [])
    value: object
    for value in (1, [], Described(ULong(0x99), []), Described(0x24, []), Described("amqp:accepted:list", [])):
        assert composite_of(value) is None
        with pytest.raises(DecodeError, match="a value that is not known here"):
            decode_composite(encode(value))
    with pytest.raises(DecodeError, match="container-id is missing"):
        composite_of(known)


def test_custom_states_and_termini_are_kept() -> None:
    custom = Described(Symbol("vendor:state:list"), ["x"])
    transfer = Transfer(0, state=custom)
    assert decode_composite(transfer.encode())[0] == transfer
    attach = Attach("link", 0, True, source=custom, target=custom, unsettled={b"t": custom})
    assert decode_composite(attach.encode())[0] == attach
    nested = TransactionalState(b"t", custom)
    assert decode_composite(nested.encode())[0] == nested


def test_composites_stand_where_values_do() -> None:
    policy = Described(ULong(0x2B), [])
    target = Target(dynamic=True, dynamic_node_properties={"lifetime-policy": BY_DESCRIPTOR[0x2B]()})
    again, _ = decode_composite(target.encode())
    assert isinstance(again, Target)
    assert again.dynamic_node_properties == {"lifetime-policy": policy}
    assert encode([Declare()]) == encode([Described(ULong(0x31), [])])


def test_defaults_are_not_written() -> None:
    assert Open("c").encode().hex() == "005310c0040 1a10163".replace(" ", "")
    assert Flow(None, 1, 2, 3).encode().hex() == "005313c0080440520152025203"
    assert Begin(None, 0, 0, 0).encode().hex() == "005311c0050440434343"
    assert Disposition(True, 1, settled=False, state=None).encode().hex() == "005315c00402415201"
    assert Rejected().encode().hex() == "00532545"


def test_the_info_of_an_error_may_have_texts_as_keys() -> None:
    """As go-amqp and rhea write it when an application rejects a message."""
    raw = encode(Described(ULong(0x1D), [Symbol("app:bad"), None, {"text": 1, Symbol("symbol"): 2}]))
    assert decode_composite(raw)[0] == Error("app:bad", info={"text": 1, "symbol": 2})
    for wrong in {ULong(1): 1}, Pairs([("a", 1), (Symbol("a"), 2)]):
        with pytest.raises(DecodeError, match="keys of type symbol"):
            decode_composite(encode(Described(ULong(0x1D), [Symbol("app:bad"), None, wrong])))


def test_one_value_stands_for_several() -> None:
    raw = encode(Described(ULong(0x40), [Symbol("PLAIN")]))
    assert decode_composite(raw)[0] == SaslMechanisms(("PLAIN",))


def test_names_of_symbols_may_be_plain_strings() -> None:
    value = Source("a", filter={"f": 1}, capabilities=("queue",), distribution_mode="copy")
    again, _ = decode_composite(value.encode())
    assert isinstance(again, Source)
    assert typed(again.filter) == typed({Symbol("f"): 1})
    assert typed(list(again.capabilities)) == typed([Symbol("queue")])


def test_offsets_in_a_frame() -> None:
    raw = b"12345" + b"frame678" + Open("c").encode()
    with pytest.raises(DecodeError) as caught:
        decode_body(raw[:-1], 5, 13, len(raw) - 1, DEFAULT)
    assert caught.value.offset == 8 + 3 + 2
    assert decode_body(raw, 5, 13, len(raw), DEFAULT) == (Open("c"), len(raw))
