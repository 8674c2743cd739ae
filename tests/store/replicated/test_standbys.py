"""Which connections may confirm a commit: names in the setting, and who has them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from store.replicated.standbys import Standbys, doubt_about, judged, standby_names


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("", []),
        ("two", ["two"]),
        (" one , two ", ["one", "two"]),
        ("2 (one, two)", ["one", "two"]),
        ("FIRST 1 (one, two)", ["one", "two"]),
        ("any 1(one,two)", ["one", "two"]),
        ('ANY 1 ("127.0.0.2", "a, (b) ""c""", first_1)', ["127.0.0.2", 'a, (b) "c"', "first_1"]),
        ("1", ["1"]),
        ("*", ["*"]),
        ('FIRST 2 (one, "*")', ["one", "*"]),
        ("dé$1", ["dé$1"]),
    ],
)
def test_names(setting: str, names: list[str]) -> None:
    assert standby_names(setting) == names


@pytest.mark.parametrize("setting", ["one", "ANY 1 (one, two)", '2 ("one", "t*o", three)'])
def test_names_of_servers_are_fit(setting: str) -> None:
    assert doubt_about(setting) == ""


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("", "names no synchronous standby"),
        ("*", r"is \*: with \* also a running backup counts"),
        ("ANY 1 (*)", r"is ANY 1 \(\*\): with \*"),
        ("FIRST 1 (one, *)", r"with \*"),
        ('"*"', r"with \*"),
        ("one, PG_BaseBackup", "has PG_BaseBackup, as which backups connect"),
        ("FIRST 1 (pg_receivewal)", "has pg_receivewal"),
    ],
)
def test_a_setting_that_a_backup_satisfies_is_told(setting: str, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(doubt_about(setting))
    assert judged(setting, "").doubt == doubt_about(setting)


def test_the_servers_that_confirm_are_known() -> None:
    senders = json.dumps([["one", "quorum", True], ["two", "quorum", True]])
    assert judged("ANY 1 (one, two)", senders) == Standbys(("one", "two"))
    assert judged("two", "") == Standbys()


def test_a_connection_that_replays_nothing_is_told() -> None:
    found = judged("FIRST 1 (two, three)", json.dumps([["three", "sync", True], ["two", "sync", False]]))
    assert found.confirming == ("three",)
    assert "calls itself two counts as the synchronous standby, but replays nothing" in found.doubt


def test_a_role_that_may_not_look_sees_nobody() -> None:
    assert judged("two", json.dumps([["two", None, False]])) == Standbys((), visible=False)


def test_the_settings_on_the_pages_are_fit() -> None:
    pages = (Path(__file__).parents[3] / "docs").glob("*.md")
    settings = [
        each for page in pages for each in re.findall(r"synchronous_standby_names = '([^']*)'", page.read_text())
    ]
    assert settings
    assert [doubt_about(each) for each in settings] == [""] * len(settings)
