"""The way of a message through the code, as docs/dev/ways.md has it."""

from __future__ import annotations

from bench.ways import WAYS, Way, acknowledge, dead_letter, publish
from tests.support.calls import counted_calls
from tests.support.interpreted import interpreted


def test_a_return_is_a_stay_in_a_file_that_was_left() -> None:
    way = Way(["a", "b", "a", "c", "b"])
    assert (len(way.stays), way.files, way.returns) == (5, {"a": 2, "b": 2, "c": 1}, 2)


@interpreted
def test_each_way_is_followed_to_its_end() -> None:
    for follow in (publish, acknowledge, dead_letter):
        files = follow("").files
        assert files["store/log.py"], "the entry is written"
        assert files["broker/sessions/stomp/session.py"]


@interpreted
def test_a_publish_passes_few_files() -> None:
    follow, verb = WAYS["publish"]
    way = follow(verb)
    assert len(way.stays) <= 60
    assert len(way.files) <= 28


@interpreted
def test_a_publish_asks_once_what_is_full_and_who_may_get_it() -> None:
    publish("")  # everything is imported
    with counted_calls() as calls:
        publish("Producers.publish")
    each = calls["plan_straight"]
    assert each, "messages are published"
    assert calls["_what_is_full"] == calls["candidates"] == calls["route"] == each
