"""Composites of every kind, by hypothesis, made from the table."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from protocols.amqp.composite import BY_DESCRIPTOR, Composite, Field
from protocols.amqp.performatives import (
    Accepted,
    Coordinator,
    Declared,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from protocols.amqp.types import Symbol
from tests.protocols.amqp.values import SIMPLE, simple

#: Every class of the table, in the order of its codes.
CLASSES: Final[list[type[Composite]]] = [
    BY_DESCRIPTOR[code] for code in sorted(key for key in BY_DESCRIPTOR if isinstance(key, int))
]

OUTCOMES: Final = [Accepted, Rejected, Released, Modified, Declared]
STATES: Final = [*OUTCOMES, Received, TransactionalState]

_BY_TYPE: Final[dict[str, Any]] = {
    "fields": st.dictionaries(SIMPLE["symbol"], simple, max_size=3),
    "source": st.deferred(lambda: instances(Source)),
    "target": st.deferred(lambda: instances(Target) | instances(Coordinator)),
    "error": st.deferred(lambda: instances(Error)),
    "outcome": st.deferred(lambda: st.one_of(*map(instances, OUTCOMES))),
    "delivery-state": st.deferred(lambda: st.one_of(*map(instances, STATES))),
    "map": st.dictionaries(
        st.binary(max_size=32), st.none() | st.deferred(lambda: st.one_of(*map(instances, STATES))), max_size=3
    ),
    "message-id": SIMPLE["ulong"] | SIMPLE["uuid"] | SIMPLE["binary"] | SIMPLE["string"],
    "any": simple,
}


def field_values(field: Field) -> st.SearchStrategy[Any]:
    """What a field may hold when it holds something."""
    if field.type.choices:
        return st.sampled_from(sorted(field.type.choices, key=str))
    one: st.SearchStrategy[Any] = (SIMPLE | _BY_TYPE)[field.type.name]
    return st.lists(one, min_size=field.mandatory, max_size=3).map(tuple) if field.type.multiple else one


_MADE: Final[dict[str, st.SearchStrategy[Composite]]] = {}


def instances(cls: type[Composite]) -> st.SearchStrategy[Composite]:
    """Composites of a class: each field that need not be there may hold its default."""
    if cls.NAME not in _MADE:
        _MADE[cls.NAME] = _made(cls)
    return _MADE[cls.NAME]


def _made(cls: type[Composite]) -> st.SearchStrategy[Composite]:
    fields = {
        field.attribute: field_values(field) if field.mandatory else st.just(field.default) | field_values(field)
        for field in cls.FIELDS
    }
    return st.builds(cls, **fields)


def sample(cls: type[Composite]) -> Composite:
    """One composite of a class with something in every field."""
    made = {field.attribute: _SAMPLES.get(field.type.name, 1) for field in cls.FIELDS}
    made |= {field.attribute: sorted(field.type.choices, key=str)[-1] for field in cls.FIELDS if field.type.choices}
    several = {field.attribute: (Symbol("a"), Symbol("b")) for field in cls.FIELDS if field.type.multiple}
    return cls(**made | several)


_SAMPLES: Final[dict[str, object]] = {
    "boolean": True,
    "string": "word",
    "symbol": Symbol("symbol"),
    "binary": b"binary",
    "fields": {Symbol("key"): "value"},
    "source": Source("from"),
    "target": Target("to"),
    "error": Error("amqp:not-found", "There is none."),
    "outcome": Modified(True),
    "delivery-state": TransactionalState(b"t", Accepted()),
    "map": {b"tag": Received(1, 2), b"other": None},
    "message-id": "id",
    "any": None,
}
