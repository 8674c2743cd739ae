"""The options of the data source: each has a meaning, and what has none is refused."""

from __future__ import annotations

import pytest

from spark_jobs.journal.decode import Condition
from spark_jobs.journal.schema import DEFAULT_RECORDS, SEGMENTS
from spark_jobs.source_options import BadOption, SourceOptions, parse
from store.record import RecordType


def _parse(**options: str) -> SourceOptions:
    return parse({"path": "/data", **options})


def _stream(**options: str) -> SourceOptions:
    return parse({"path": "/data", **options}, stream=True)


def test_defaults_of_the_options() -> None:
    assert _parse() == SourceOptions(paths=("/data",))
    assert _parse().selection.columns == DEFAULT_RECORDS
    assert _parse().strict
    assert _parse().target_bytes == 64 << 20
    assert _parse(view="segments").selection.columns == tuple(SEGMENTS)


def test_conditions() -> None:
    found = _parse(messageIds="7, 9", notNull="user,origin_message_id")
    assert found.selection.conditions == (
        Condition("user"),
        Condition("origin_message_id"),
        Condition("message_id", (7, 9)),
    )
    assert _parse(messageIds="").selection.conditions == (Condition("message_id", ()),)


def test_names_are_as_sparks_without_case() -> None:
    assert _parse(fromPosition="7") == _parse(FROMPOSITION="7") != _parse()


def test_lists() -> None:
    found = _parse(path="/data, /archive", columns=" message_id,reason ", types="message, dead-lettered")
    assert found.paths == ("/data", "/archive")
    assert found.selection.columns == ("message_id", "reason")
    assert found.selection.types == frozenset({int(RecordType.MESSAGE), int(RecordType.DEAD_LETTERED)})


def test_several_paths_as_spark_lists_them() -> None:
    assert parse({"paths": '["/data","/a, b"]'}).paths == ("/data", "/a, b")
    assert _parse(paths='["/archive"]').paths == ("/data", "/archive")


def test_damage_alone_is_no_record_type_at_all() -> None:
    assert _parse(types="damage").selection.types == frozenset()
    assert _parse(types="damage,removed").selection.types == frozenset({int(RecordType.REMOVED)})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2026-03-01T12:00:00Z", 1772366400000),
        ("2026-03-01T12:00:00", 1772366400000),
        ("2026-03-01T13:00:00+01:00", 1772366400000),
        ("2026-03-01T12:00:00.250", 1772366400250),
        ("2026-03-01T12:00:00.250001", 1772366400251),
        ("2026-03-01", 1772323200000),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert _parse(fromTime=text).selection.bounds.from_time == ms
    assert _parse(toTime=text).selection.bounds.to_time == ms


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("4k", 4096), ("64m", 64 << 20), ("64M", 64 << 20), ("2g", 2 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert _parse(targetBytes=text).target_bytes == size


def test_the_rest() -> None:
    found = _parse(mode="permissive", gaps="False", finished="false", toPosition="12")
    assert (found.strict, found.gaps, found.finished, found.selection.bounds.to_position) == (False, False, False, 12)
    assert parse({"snapshot": "{}"}).snapshot == "{}"


def test_streams() -> None:
    assert _stream(fromPosition="latest").latest
    assert _stream(fromPosition="5", maxSegments="3").segments_max == 3
    assert _stream(fromPosition="5").selection.bounds.from_position == 5
    assert not _stream().latest
    assert _stream().segments_max is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"view": "messages"}, "view=messages: possible values are records, segments"),
        ({"columns": "body,colour"}, "columns=colour: possible values are broker_id, segment, "),
        ({"columns": " , "}, "columns= , : name at least one column, and each only once"),
        ({"columns": "body,body"}, "name at least one column, and each only once"),
        ({"view": "segments", "columns": "body"}, "columns=body: possible values are path, segment, "),
        ({"types": "messages"}, "types=messages: possible values are message, removed, .*"),
        ({"types": ""}, "types: name at least one"),
        ({"mode": "DROPMALFORMED"}, "mode=DROPMALFORMED: possible values are FAILFAST, PERMISSIVE"),
        ({"fromTime": "yesterday"}, "fromtime=yesterday: not a time like"),
        ({"fromTime": "1772366400000"}, "fromtime=1772366400000: not a time like"),
        ({"toTime": "20260301"}, "totime=20260301: not a time like"),
        ({"fromPosition": "-1"}, "fromposition=-1: not a whole number of at least 0"),
        ({"fromPosition": "latest"}, "fromposition=latest: not a whole number"),
        ({"targetBytes": "0"}, "targetbytes=0: not a size like 64m"),
        ({"targetBytes": "64MB"}, "targetbytes=64mb: not a size|targetbytes=64MB: not a size"),
        ({"gaps": "maybe"}, "gaps=maybe: possible values are true, false"),
        ({"colour": "red"}, "colour: view=records has no such option"),
        ({"keepBelow": "5"}, "keepbelow: view=records has no such option"),
        ({"view": "segments", "types": "message"}, "types: view=segments has no such option"),
        ({"messageIds": "4,x"}, "messageIds=x: not a whole number of at least 0"),
        ({"messageIds": f"4,{1 << 63}"}, f"messageIds={1 << 63}: ids are at most {(1 << 63) - 1}"),
        ({"notNull": "user, hue"}, "notNull=hue: possible values are broker_id"),
        ({"view": "segments", "messageIds": "4"}, "messageids: view=segments has no such option"),
        ({"view": "segments", "mode": "FAILFAST"}, "mode: view=segments has no such option"),
        ({"finished": "false", "notNull": "user"}, "finished: .* leave out messageIds and notNull"),
        ({"finished": "false", "messageIds": "4"}, "finished: .* leave out messageIds and notNull"),
        ({"path": ""}, "path: name a data directory"),
        ({"maxSegments": "3"}, "maxsegments: view=records has no such option"),
    ],
)
def test_refused_options(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        _parse(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"view": "segments"}, "only records can be read as a stream"),
        ({"toPosition": "5"}, "toposition: a stream has no such option"),
        ({"snapshot": "{}"}, "snapshot: a stream has no such option"),
        ({"maxSegments": "0"}, "maxsegments=0: it must be at least 1"),
    ],
)
def test_options_that_a_stream_refuses(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        _stream(**options)
