"""Attributes of queues: from text and JSON, by settings, by what somebody asks for."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.attributes import (
    NUMBER_MAX,
    PLAIN,
    PROPERTY_NAME_CHARS_MAX,
    QueueAttributes,
    as_json,
    differences,
    from_json,
    parse,
    with_requested,
)
from broker.engine.model.errors import InvalidAttribute
from broker.engine.model.row import kebab
from broker.engine.model.settings import from_mapping

numbers = st.integers(-1, NUMBER_MAX)
attributes = st.builds(
    QueueAttributes,
    **{
        field.name: st.booleans() if field.type == "bool" else numbers if field.type == "int" else st.text(max_size=20)
        for field in fields(QueueAttributes)
    },
)


@given(attributes)
def test_json_and_back(made: QueueAttributes) -> None:
    assert from_json(as_json(made)) == made


def test_a_plain_queue_says_nothing() -> None:
    assert as_json(PLAIN) == {}
    assert not PLAIN.rules
    assert from_json({"a-later-version": 1}) == PLAIN


@pytest.mark.parametrize("name", [field.name for field in fields(QueueAttributes)])
def test_every_attribute_comes_from_the_settings_and_from_text(name: str) -> None:
    value, text = {"bool": (True, "true"), "int": (7, "7"), "str": ("key", "key")}[
        str(next(field.type for field in fields(QueueAttributes) if field.name == name))
    ]
    if name == "enabled":
        value, text = False, "false"
    assert parse(kebab(name), text) == {name: value}
    if name != "enabled":
        setting = {"last_value": "default_last_value_queue", "exclusive": "default_exclusive_queue"}
        settings = from_mapping({setting.get(name, f"default_{name}"): value})
        assert settings.queue_attributes == with_requested(PLAIN, {name: value})


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("exclusive", "yes", "exclusive must be true or false, not 'yes'"),
        ("max-consumers", "-2", "max-consumers must be a number from -1"),
        ("max-consumers", str(NUMBER_MAX + 1), "max-consumers must be a number"),
        ("max-consumers", "9" * 5000, "max-consumers must be a number"),
        ("max-consumers", "\u0661", "max-consumers must be a number"),
        ("ring-size", "0", "other than 0"),
        ("consumers-before-dispatch", "-1", "a number from 0"),
        ("delay-before-dispatch", "5s", "a number of milliseconds from -1"),
        ("last-value-key", "k" * (PROPERTY_NAME_CHARS_MAX + 1), "at most 255"),
        ("colour", "red", "queues have no attribute 'colour'; they have consumers-before-dispatch"),
    ],
)
def test_no_attribute(name: str, text: str, wanted: str) -> None:
    with pytest.raises(InvalidAttribute, match=wanted):
        parse(name, text)


def test_limits() -> None:
    assert parse("max-consumers", str(NUMBER_MAX)) == {"max_consumers": NUMBER_MAX}
    assert parse("last-value-key", "k" * PROPERTY_NAME_CHARS_MAX)
    assert parse("ring-size", "-1") == {"ring_size": -1}


def test_differences_in_words() -> None:
    made = with_requested(PLAIN, {"ring_size": 3, "last_value_key": "k"})
    assert differences(made, {"ring_size": 3}) == []
    assert differences(made, {"ring_size": 4, "exclusive": True}) == [
        "ring-size is 3, not 4",
        "exclusive is false, not true",
    ]


def test_attributes_that_make_a_last_value_queue() -> None:
    assert with_requested(PLAIN, {"last_value": True}).key == "_AMQ_LVQ_NAME"
    assert with_requested(PLAIN, {"last_value_key": "k"}).key == "k"
    assert PLAIN.key == ""
