"""`bartleby explain`."""

from __future__ import annotations

import json

from broker.reasons.reason import Kind
from broker.reasons.table import reasons
from tests.broker.cli.harness import invoke


def test_a_word_is_explained_with_what_to_do() -> None:
    result = invoke("explain", "max-deliveries")
    assert result.exit_code == 0
    head, *rest = result.stdout.splitlines()
    assert head == "max-deliveries  (dead-letter reason 1)"
    assert "  Its deliveries failed" in rest[0]
    assert "Do: " in result.stdout


def test_words_in_several_kinds_are_all_shown() -> None:
    shown = invoke("explain", "exit", "3").stdout + invoke("explain", "expired").stdout
    assert "unreachable  (exit status 3)" in shown
    assert "expired  (dead-letter reason 3)" in shown
    assert "expired  (removal reason 2)" in shown


def test_as_json() -> None:
    (one,) = json.loads(invoke("explain", "0x97", "-o", "json").stdout)
    assert (one["kind"], one["word"], one["number"], one["return_code"]) == ("mqtt", "Quota exceeded", 151, 3)
    assert "error address-full" in one["see"]
    assert len(json.loads(invoke("explain", "-o", "json").stdout)) == len(reasons())


def test_without_a_word_all_are_listed_by_kind() -> None:
    listed = invoke("explain").stdout
    assert all(f"\n{kind.title}\n" in f"\n{listed}" for kind in Kind)
    assert all(f"  {reason.word}  " in listed for reason in reasons())


def test_an_unknown_word_is_1_and_what_is_near_it() -> None:
    result = invoke("explain", "max-delivries")
    assert result.exit_code == 1
    assert "max-deliveries" in result.stderr
    noise = invoke("explain", "qqqqqqqq\x1b[2J")
    assert noise.exit_code == 1
    assert "lists all" in noise.stderr
    assert "\x1b" not in noise.stderr
