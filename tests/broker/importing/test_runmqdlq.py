"""IBM MQ's rules for dead letters: what is read, what becomes of it, and what is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from broker.importing import InvalidFile, Outcome
from broker.importing.runmqdlq_table import RULES_BYTES_MAX, read_table
from broker.reasons.ibm_mq import CODES
from tests.broker.importing.harness import HERE, checked, imported

TWELVE = "_AMQ_DL_ORIG_USER LIKE 'twelve\\_chars%' ESCAPE '\\'"
EXAMPLE = (HERE / "qrule.rul").read_bytes()


def rules(text: str, tmp_path: Path) -> list[dict[str, Any]]:
    """The rules that come of a table, without their names."""
    tables, _ = imported(text.encode(), tmp_path)
    return [{k: v for k, v in rule.items() if k != "name"} for rule in tables.get("dead-letter-rules", [])]


def told(text: str, tmp_path: Path, what: str) -> list[tuple[Outcome, str]]:
    """What the report says of a keyword."""
    _, found = imported(text.encode(), tmp_path)
    return [(each.outcome, each.why) for each in found.report.findings if each.place.what == what]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("ACTION(RETRY)", {"ACTION": "RETRY"}),
        ("action ( retry ) ,retry(3)", {"ACTION": "RETRY", "RETRY": "3"}),
        ("DESTQ(a.b) ACTION(FWD) FWDQ('x y')", {"DESTQ": "A.B", "ACTION": "FWD", "FWDQ": "x y"}),
        ("USERID('it''s') ACTION(IGNORE)", {"USERID": "it's", "ACTION": "IGNORE"}),
        ("USERID('ABC+\n  D') ACTION(IGNORE)", {"USERID": "ABCD", "ACTION": "IGNORE"}),
        ("USERID('ABC-\n  D') ACTION(IGNORE)", {"USERID": "ABC  D", "ACTION": "IGNORE"}),
        ("DES+\n  TQ(A) +  \n\n* between\n ACTION(RETRY)", {"DESTQ": "A", "ACTION": "RETRY"}),
        ("* first\n\nACTION(RETRY)\n* last\n", {"ACTION": "RETRY"}),
        ("USERID(')(') ACTION(RETRY)", {"USERID": ")(", "ACTION": "RETRY"}),
        ("FORMAT(' ') ACTION(RETRY)", {"FORMAT": " ", "ACTION": "RETRY"}),
    ],
)
def test_an_entry(text: str, given: dict[str, str]) -> None:
    control, (entry,) = read_table(text.encode())
    assert control is None
    assert {word: each.value for word, each in entry.given.items()} == given


def test_every_keyword_knows_its_line() -> None:
    _, entries = read_table(b"* 1\nACTION(RETRY)\nDESTQ(A) +\n\n* 5\nACTION(FWD) FWD-\nQ(B)\n")
    assert [entry.line for entry in entries] == [2, 3]
    assert {word: each.line for word, each in entries[1].given.items()} == {"DESTQ": 3, "ACTION": 6, "FWDQ": 6}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no rule in it"),
        ("* nothing\n", "there is no rule in it"),
        ("INPUTQ(DLQ)\n", "there is no rule in it"),
        ("REASON(2053)\n", "line 1: a rule needs an ACTION"),
        ("ACTION(RETRY)\nWAIT(YES)\n", "line 2: WAIT is control data, which only the first entry may have"),
        ("ACTION(RETRY)\n\n+(\n", "line 3: a keyword is expected, not '+('"),
        ("ACTION(RETRY) RETRIES(3)\n", "line 1: RETRIES is not a keyword of a rules table"),
        ("ACTION\n", "line 1: ACTION needs a value in parentheses"),
        ("ACTION(RETRY\n", "line 1: ACTION needs a value"),
        ("USERID('x) ACTION(RETRY)\n", "line 1: USERID needs a value in parentheses; quotes come in pairs"),
        ("ACTION()\n", "line 1: the value of ACTION is empty"),
        ("ACTION(RETRY) +\n action(IGNORE)\n", "line 2: ACTION is given twice in one rule"),
        ("ACTION(RETRY) +\n", "line 1: it ends with +, and nothing follows"),
        ("ACTION(KEEP)\n", "line 1: ACTION is DISCARD, IGNORE, RETRY or FWD, not KEEP"),
        ("ACTION(FWD)\n", "line 1: ACTION(FWD) needs FWDQ"),
        ("ACTION(FWD) FWDQ(' ')\n", "line 1: FWDQ is a queue"),
        ("ACTION(FWD) FWDQ(&DEST)\n", "line 1: FWDQ is a queue, &DESTQ or &REPLYQ, not '&DEST'"),
        ("ACTION(RETRY) RETRY(0)\n", "line 1: RETRY takes a number from 1 to 999999999"),
        ("RETRYINT(soon)\nACTION(RETRY)\n", "line 1: RETRYINT takes a number"),
    ],
)
def test_errors_have_their_line(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=f"^{re.escape(why)}"):
        imported(text.encode(), tmp_path)


def test_size_and_encoding_at_their_limits(tmp_path: Path) -> None:
    rule = b"ACTION(IGNORE)\n"
    read_table(rule + b"*" * (RULES_BYTES_MAX - len(rule)))
    with pytest.raises(InvalidFile, match="larger than 1 MiB"):
        read_table(rule + b"*" * (RULES_BYTES_MAX - len(rule) + 1))
    with pytest.raises(InvalidFile, match="line 2: not UTF-8"):
        read_table(rule + b"\xff")
    read_table(b"\xef\xbb\xbf" + rule)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ACTION(DISCARD)", {"action": "discard"}),
        ("ACTION(IGNORE) DESTQM(*)", {"action": "leave"}),
        ("ACTION(RETRY)", {"action": "retry", "at-most": 1}),
        ("ACTION(RETRY) RETRY(5)", {"action": "retry", "at-most": 5}),
        ("ACTION(RETRY) RETRY(99999)", {"action": "retry", "at-most": 1440}),
        ("RETRYINT(30)\nACTION(RETRY) RETRY(2)", {"action": "retry", "at-most": 2, "every": "30s"}),
        ("RETRYINT(30)\nACTION(DISCARD)", {"action": "discard"}),
        ("INPUTQ('my.dlq') INPUTQM(QM1) WAIT(NO)\nACTION(IGNORE)", {"action": "leave", "queue": "my.dlq"}),
        ("ACTION(FWD) FWDQ(X) RETRY(3) HEADER(NO)", {"action": "move", "to": "X"}),
        ("ACTION(FWD) FWDQ(&DESTQ) FWDQM(' ')", {"action": "retry", "at-most": 1}),
        ("INPUTQM(QM1)\nACTION(FWD) FWDQ(X) FWDQM(QM1)", {"action": "move", "to": "X"}),
        ("ACTION(FWD) FWDQ(X) FWDQM('')", {"action": "move", "to": "X"}),
        ("REASON(MQRC_Q_FULL) ACTION(IGNORE)", {"action": "leave", "reasons": ["queue-full"]}),
        ("REASON(2053) ACTION(IGNORE)", {"action": "leave", "reasons": ["queue-full"]}),
        ("REASON(2035) ACTION(IGNORE)", {"action": "leave", "reasons": ["not-authorised"]}),
        ("REASON(2051) ACTION(IGNORE)", {"action": "leave", "reasons": ["put-disabled"]}),
        ("REASON(MQRC_Q_DELETED) ACTION(IGNORE)", {"action": "leave", "reasons": ["no-route"]}),
        (
            "DESTQ(ORDERS) USERID('shop') ACTION(IGNORE)",
            {
                "action": "leave",
                "selector": "(_AMQ_ORIG_ADDRESS = 'ORDERS' OR _AMQ_DL_REMOTE_ADDRESS = 'ORDERS')",
                "user": "shop",
            },
        ),
        (
            "DESTQ('a_b%.*') ACTION(IGNORE)",
            {
                "action": "leave",
                "selector": "(_AMQ_ORIG_ADDRESS LIKE 'a\\_b\\%.%' ESCAPE '\\'"
                " OR _AMQ_DL_REMOTE_ADDRESS LIKE 'a\\_b\\%.%' ESCAPE '\\')",
            },
        ),
        ("APPLNAME('x') ACTION(IGNORE)", {"action": "leave", "selector": "_AMQ_DL_ORIG_CLIENT = 'x'"}),
        (
            "INPUTQM(QM1)\nDESTQM(QM2) ACTION(IGNORE)",
            {"action": "leave", "selector": "_AMQ_DL_REMOTE_BROKER = 'QM2'"},
        ),
        (
            "INPUTQM(QM1)\nDESTQM(QM?) ACTION(IGNORE)",
            {
                "action": "leave",
                "selector": "(_AMQ_DL_REMOTE_BROKER LIKE 'QM_' OR _AMQ_DL_REMOTE_BROKER IS NULL)",
            },
        ),
        ("USERID('elevenchars') ACTION(IGNORE)", {"action": "leave", "user": "elevenchars"}),
        ("USERID('twelve_chars') ACTION(IGNORE)", {"action": "leave", "selector": TWELVE}),
        (
            "USERID('o''x??') PERSIST(0) ACTION(IGNORE)",
            {"action": "leave", "selector": "_AMQ_DL_ORIG_USER LIKE 'o''x__' AND AMQDurable = 'NON_DURABLE'"},
        ),
    ],
)
def test_a_rule(text: str, rule: dict[str, Any], tmp_path: Path) -> None:
    assert rules(text, tmp_path) == [rule]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("REASON(2033) ACTION(RETRY)", "REASON(2033): messages do not die for this reason here"),
        ("REASON(4711) ACTION(RETRY)", "messages do not die for this reason here"),
        ("MSGTYPE(MQMT_REQUEST) ACTION(RETRY)", "MSGTYPE(MQMT_REQUEST): messages have no MQ type"),
        ("DESTQM(QM2) ACTION(RETRY)", "DESTQM(QM2): give INPUTQM"),
        ("ACTION(FWD) FWDQ(X) FWDQM(QM2)", "FWDQM(QM2): there are no queue managers"),
        ("ACTION(FWD) FWDQ(&REPLYQ)", "FWDQ(&REPLYQ): a rule moves to one address or queue"),
        ("PERSIST(7) ACTION(RETRY)", "PERSIST(7): a message is either persistent or not"),
    ],
)
def test_what_is_left_out_says_why(text: str, why: str, tmp_path: Path) -> None:
    assert rules(text, tmp_path) == []
    ((outcome, reason),) = told(text, tmp_path, "rule")
    assert outcome is Outcome.LEFT
    assert reason.startswith("the rule is left out: ")
    assert why in reason


def test_nothing_is_discarded_that_a_rule_that_is_left_out_saved(tmp_path: Path) -> None:
    text = "MSGTYPE(*) ACTION(RETRY)\n{}ACTION(FWD) FWDQ(X)\nUSERID('x') ACTION(DISCARD)\n"
    idle, active = text.format("REASON(2033) "), text.format("APPLTYPE(1) ")
    assert rules(idle, tmp_path)[-1] == {"action": "discard", "user": "x"}
    assert rules(active, tmp_path)[-1] == {"action": "leave", "user": "x"}
    _, (outcome, why) = told(active, tmp_path, "ACTION")
    assert outcome is Outcome.STRICTER
    assert why.startswith("it might discard what the omitted rule of line 2 saved")


def test_what_can_never_be_reached_is_left_out(tmp_path: Path) -> None:
    assert rules("ACTION(IGNORE)\nREASON(2051) ACTION(RETRY)\n", tmp_path) == [{"action": "leave"}]
    ((_, why),) = told("ACTION(IGNORE)\nACTION(RETRY)\n", tmp_path, "rule")
    assert "matches every dead letter" in why


def test_the_example(tmp_path: Path) -> None:
    """Of each outcome something; what is said of a keyword names the rule that it went to."""
    tables, found = imported(EXAMPLE, tmp_path)
    assert [rule["name"] for rule in tables["dead-letter-rules"]] == ["line-7", "line-12", "line-21", "line-25"]
    assert {finding.outcome for finding in found.report.findings} == set(Outcome)
    assert found.text.startswith("# Made by `bartleby import` from a rules table of runmqdlq: ")
    lines = list(found.report.lines())
    assert (
        '  line 12: RETRY = 5 -> dead-letter-rules["line-12"].at-most: the attempts of all rules count together'
        in lines
    )


def test_the_rules_can_be_appended_to_the_shipped_file(tmp_path: Path) -> None:
    _, found = imported(b"DESTQ(Q6) ACTION(FWD) FWDQ(Q7) FWDQM('') HEADER(NO)\n", tmp_path)
    file = tmp_path / "appended.toml"
    file.write_text((Path(__file__).parents[3] / "etc" / "broker.toml").read_text("utf-8") + found.text, "utf-8")
    (rule,) = checked(file).dead_letter_rules
    assert (rule.action.value, rule.to) == ("move", "Q7")


def test_the_reasons_are_those_that_the_broker_gives() -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text("utf-8")
    listed = re.findall(r"`(MQ(?:RC|FB)_\w+)`", page)
    assert listed
    assert set(listed) <= {code.word for code in CODES if code.dead_letter}
