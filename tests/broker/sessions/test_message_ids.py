"""Message ids as texts, and back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sessions.message_ids import correlation_data, correlation_text, id_of, id_text
from protocols.amqp.performatives import MessageId
from protocols.amqp.types import ULong

_PREFIXES = ["", *(f"ID:AMQP_{name}:" for name in ("BINARY", "STRING", "ULONG", "UUID", "NO_PREFIX"))]

#: Texts that are like those that stand for other types.
texts = st.builds(
    "{}{}{}".format,
    st.sampled_from(_PREFIXES),
    st.sampled_from(_PREFIXES),
    st.text(max_size=5) | st.uuids().map(str) | st.sampled_from(("5", "05", "00FF", "00ff", str(2**64))),
)
ids = st.one_of(texts, st.binary(max_size=5), st.uuids(), st.integers(0, 2**64 - 1).map(ULong))


@given(ids)
def test_every_id_comes_back_of_its_type(id: MessageId) -> None:
    again = id_of(id_text(id))
    assert (again, type(again)) == (id, type(id))


@given(texts)
def test_every_text_comes_back(text: str) -> None:
    assert id_text(id_of(text)) == text


@given(st.binary(max_size=20))
def test_correlation_data_comes_back(data: bytes) -> None:
    assert correlation_data(correlation_text(data)) == data


@pytest.mark.parametrize(
    ("id", "text"),
    [
        ("order-1", "order-1"),
        ("ID:5", "ID:5"),
        (ULong(5), "ID:AMQP_ULONG:5"),
        (UUID(int=7), "ID:AMQP_UUID:00000000-0000-0000-0000-000000000007"),
        (b"\x00\xff", "ID:AMQP_BINARY:00FF"),
        ("ID:AMQP_ULONG:5", "ID:AMQP_STRING:ID:AMQP_ULONG:5"),
    ],
)
def test_the_texts_are_those_of_the_jms_mapping(id: MessageId, text: str) -> None:
    assert id_text(id) == text


def test_a_text_of_many_prefixes() -> None:
    text = "ID:AMQP_STRING:" * 4_000 + "ID:AMQP_ULONG:5"
    assert id_of(text) == text.removeprefix("ID:AMQP_STRING:")
