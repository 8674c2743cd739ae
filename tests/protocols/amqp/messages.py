"""Messages by chance, as values and encoded."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from protocols.amqp.encode import encode
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from protocols.amqp.performatives import Header, Properties
from protocols.amqp.types import Described, ULong
from tests.protocols.amqp.composites import instances
from tests.protocols.amqp.values import SIMPLE, simple, values

noted: st.SearchStrategy[dict[object, object]] = st.dictionaries(
    SIMPLE["symbol"] | SIMPLE["ulong"], values, min_size=1, max_size=3
)


properties = st.dictionaries(SIMPLE["string"], simple, min_size=1, max_size=3)


bodies: st.SearchStrategy[tuple[int, list[Any]]] = st.one_of(
    st.tuples(st.just(DATA), st.lists(SIMPLE["binary"], min_size=1, max_size=3)),
    st.tuples(st.just(AMQP_SEQUENCE), st.lists(st.lists(values, max_size=3), min_size=1, max_size=3)),
    st.tuples(st.just(AMQP_VALUE), st.lists(values, min_size=1, max_size=1)),
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Maybe none."""
    return st.none() | strategy


@st.composite
def messages(draw: st.DrawFn) -> tuple[dict[int, Any], int, list[object]]:
    """The sections of a message before its body and after it by their codes, and its body."""
    sections = {
        HEADER: draw(optional(instances(Header))),
        DELIVERY_ANNOTATIONS: draw(optional(noted)),
        MESSAGE_ANNOTATIONS: draw(optional(noted)),
        PROPERTIES: draw(optional(instances(Properties))),
        APPLICATION_PROPERTIES: draw(optional(properties)),
        FOOTER: draw(optional(noted)),
    }
    kind, body = draw(bodies)
    return {code: held for code, held in sections.items() if held is not None}, kind, body


def section(code: int, held: object) -> bytes:
    """A section, encoded by what it says."""
    return held.encode() if isinstance(held, Header | Properties) else encode(Described(ULong(code), held))


def encoded(sections: dict[int, Any], kind: int, body: list[object]) -> dict[int, bytes]:
    """The sections of a message in their order, encoded."""
    raw = {code: section(code, held) for code, held in sections.items()} | {
        kind: b"".join([section(kind, held) for held in body])
    }
    return dict(sorted(raw.items()))
