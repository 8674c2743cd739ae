"""IBM MQ's rules for dead letters: what is read, what becomes of it, and what is told."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from broker.engine import compile_filter
from broker.engine.model.message import Message, MessageHeader, PropertyView, RoutingType
from broker.importing import InvalidFile, LinkTo, Outcome, translate
from broker.importing.runmqdlq_table import RULES_BYTES_MAX, read_table
from broker.reasons.ibm_mq import CODES
from broker.sessions.stomp.format import StompFormat
from tests.broker.importing.harness import HERE, checked, imported

USER = "_AMQ_DL_ORIG_USER"
TWELVE = " OR ".join(
    f"{USER} LIKE '{name}\\_{chars}%' ESCAPE '\\'" for name, chars in (("twelve", "chars"), ("TWELVE", "CHARS"))
)
CONVERT = "convert_string_expressions:"
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


def selecting(selector: str) -> dict[str, Any]:
    """A rule that leaves what a selector matches."""
    return {"action": "leave", "selector": selector}


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
                "selector": "(_AMQ_ORIG_ADDRESS = 'ORDERS' OR _AMQ_DL_REMOTE_ADDRESS = 'ORDERS')"
                " AND (_AMQ_DL_ORIG_USER = 'shop' OR _AMQ_DL_ORIG_USER = 'SHOP')",
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
        (
            "APPLNAME('x') ACTION(IGNORE)",
            selecting("(_AMQ_DL_ORIG_CLIENT = 'x' OR (JMSXAppID = 'x' OR JMSXAppID LIKE 'x %'))"),
        ),
        ("APPLIDAT('a*') ACTION(IGNORE)", selecting("JMS_IBM_MQMD_ApplIdentityData LIKE 'a%'")),
        ("APPLTYPE(MQAT_UNIX) ACTION(IGNORE)", selecting(f"{CONVERT}JMS_IBM_PutApplType = 6")),
        ("APPLTYPE(28) ACTION(IGNORE)", selecting(f"{CONVERT}JMS_IBM_PutApplType = 28")),
        (
            "FEEDBACK(MQFB_COA) PERSIST(1) ACTION(IGNORE)",
            selecting(f"{CONVERT}JMS_IBM_Feedback = 259 AND AMQDurable = 'DURABLE'"),
        ),
        ("FEEDBACK(MQRC_Q_FULL) ACTION(IGNORE)", selecting(f"{CONVERT}JMS_IBM_Feedback = 2053")),
        ("FEEDBACK(0) ACTION(IGNORE)", selecting(f"{CONVERT}(JMS_IBM_Feedback = 0 OR JMS_IBM_Feedback IS NULL)")),
        (
            "FORMAT(MQSTR) ACTION(IGNORE)",
            selecting("(JMS_IBM_Format = 'MQSTR' OR JMS_IBM_Format LIKE 'MQSTR %')"),
        ),
        (
            "FORMAT(' ') ACTION(IGNORE)",
            selecting("(JMS_IBM_Format IS NULL OR JMS_IBM_Format = '' OR JMS_IBM_Format LIKE ' %')"),
        ),
        ("MSGTYPE(MQMT_REPORT) ACTION(IGNORE)", selecting(f"{CONVERT}JMS_IBM_MsgType = 4")),
        (
            "MSGTYPE(MQMT_REQUEST) ACTION(IGNORE)",
            selecting(f"{CONVERT}(JMS_IBM_MsgType = 1 OR (JMS_IBM_MsgType IS NULL AND AMQReplyTo IS NOT NULL))"),
        ),
        (
            "MSGTYPE(8) ACTION(IGNORE)",
            selecting(f"{CONVERT}(JMS_IBM_MsgType = 8 OR (JMS_IBM_MsgType IS NULL AND AMQReplyTo IS NULL))"),
        ),
        ("REPLYQ('?*') ACTION(IGNORE)", selecting("AMQReplyTo LIKE '_%'")),
        ("REPLYQ(ANSWERS) ACTION(IGNORE)", selecting("AMQReplyTo = 'ANSWERS'")),
        ("REPLYQ(' ') ACTION(IGNORE)", selecting("AMQReplyTo IS NULL")),
        ("REPLYQM('?*') ACTION(IGNORE)", selecting("AMQReplyTo IS NOT NULL")),
        ("REPLYQM('') ACTION(IGNORE)", selecting("AMQReplyTo IS NULL")),
        ("INPUTQM(QM1)\nREPLYQM(QM*) ACTION(IGNORE)", selecting("AMQReplyTo IS NOT NULL")),
        ("ACTION(FWD) FWDQ(&REPLYQ) FWDQM(&REPLYQM)", {"action": "reply"}),
        ("ACTION(FWD) FWDQ(&REPLYQ)", {"action": "reply"}),
        ("INPUTQM(QM1)\nACTION(FWD) FWDQ(&REPLYQ) FWDQM(QM1)", {"action": "reply"}),
        ("ACTION(FWD) FWDQ(&DESTQ) FWDQM(&DESTQM)", {"action": "retry", "at-most": 1}),
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
        ("USERID('12345678901') ACTION(IGNORE)", {"action": "leave", "user": "12345678901"}),
        ("USERID('Eve') ACTION(IGNORE)", selecting(f"({USER} = 'Eve' OR {USER} = 'EVE' OR {USER} = 'eve')")),
        ("USERID('twelve_chars') ACTION(IGNORE)", {"action": "leave", "selector": f"({TWELVE})"}),
        (
            "USERID('o''x??') PERSIST(0) ACTION(IGNORE)",
            {
                "action": "leave",
                "selector": f"({USER} LIKE 'o''x__' OR {USER} LIKE 'O''X__') AND AMQDurable = 'NON_DURABLE'",
            },
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
        ("MSGTYPE(MQMT_ODD) ACTION(RETRY)", "MSGTYPE(MQMT_ODD): this name is unknown here: give its number"),
        ("APPLTYPE(1.5) ACTION(RETRY)", "APPLTYPE(1.5): this name is unknown here: give its number"),
        ("DESTQM(QM2) ACTION(RETRY)", "DESTQM(QM2): give INPUTQM or --queue-manager"),
        ("REPLYQM(QM2) ACTION(RETRY)", "REPLYQM(QM2): give INPUTQM or --queue-manager"),
        ("INPUTQM(QM1)\nREPLYQM(QM2) ACTION(RETRY)", "REPLYQM(QM2): a reply-to is an address of this broker"),
        (
            "ACTION(FWD) FWDQ(X) FWDQM(QM2)",
            "FWDQM(QM2): give --link QM2=URL, so that the rule moves to a remote queue of a link,"
            " or --queue-manager QM2 if it is this broker",
        ),
        ("INPUTQM(QM1)\nACTION(FWD) FWDQ(X) FWDQM(QM2)", "so that the rule moves to a remote queue of a link"),
        ("ACTION(FWD) FWDQ(X) FWDQM(&DESTQM)", "FWDQM(&DESTQM): messages name no queue manager"),
        ("ACTION(FWD) FWDQ(&DESTQ) FWDQM(QM2)", "FWDQM(QM2): the queue differs from message to message"),
        ("ACTION(FWD) FWDQ(&REPLYQ) FWDQM(QM2)", "FWDQM(QM2): the queue differs from message to message"),
        ("PERSIST(7) ACTION(RETRY)", "PERSIST(7): a message is either persistent or not"),
    ],
)
def test_rules_left_out_say_why(text: str, why: str, tmp_path: Path) -> None:
    assert rules(text, tmp_path) == []
    ((outcome, reason),) = told(text, tmp_path, "rule")
    assert outcome is Outcome.LEFT
    assert reason.startswith("the rule is left out: ")
    assert why in reason


def test_nothing_is_discarded_that_a_rule_that_is_left_out_saved(tmp_path: Path) -> None:
    text = "MSGTYPE(*) ACTION(RETRY)\n{}ACTION(FWD) FWDQ(X)\nUSERID('x') ACTION(DISCARD)\n"
    idle, active = text.format("REASON(2033) "), text.format("DESTQM(QM2) ")
    both = f"({USER} = 'x' OR {USER} = 'X')"
    assert rules(idle, tmp_path)[-1] == {"action": "discard", "selector": both}
    assert rules(active, tmp_path)[-1] == {"action": "leave", "selector": both}
    _, (outcome, why) = told(active, tmp_path, "ACTION")
    assert outcome is Outcome.STRICTER
    assert why.startswith("it might discard what the omitted rule of line 2 saved")


def test_rules_that_can_never_be_reached_are_left_out(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("control", "option", "outcome", "why"),
    [
        ("INPUTQM(QM1)", "", Outcome.TAKEN, "it is this broker, in FWDQM, DESTQM and REPLYQM too"),
        ("INPUTQM(QM1)", "QM1", Outcome.TAKEN, "it is this broker, in FWDQM, DESTQM and REPLYQM too"),
        ("INPUTQM(QM9)", "QM1", Outcome.CHANGED, "this broker is QM1 (--queue-manager)"),
        ("INPUTQM(' ')", "QM1", Outcome.TAKEN, "the rules are the broker's own"),
    ],
)
def test_the_name_of_this_broker(control: str, option: str, outcome: Outcome, why: str) -> None:
    found = translate(f"{control}\nDESTQM(QM1) ACTION(FWD) FWDQ(X) FWDQM(QM1)\n".encode(), queue_manager=option)
    assert [(each.outcome, each.why) for each in found.report.findings if each.place.what == "INPUTQM"] == [
        (outcome, why)
    ]
    (rule,) = tomllib.loads(found.text)["dead-letter-rules"]
    assert (rule["to"], rule["selector"]) == ("X", "(_AMQ_DL_REMOTE_BROKER = 'QM1' OR _AMQ_DL_REMOTE_BROKER IS NULL)")


@pytest.mark.parametrize(("link", "url"), [("QM2", "amqps://qm2.example.org:5671"), ("QM2", ""), ("qm2", "")])
def test_a_forward_over_a_link(link: str, url: str, tmp_path: Path) -> None:
    text = "DESTQ(Q1) ACTION(FWD) FWDQ(Q7) FWDQM(QM2)\nACTION(FWD) FWDQ(DLQ) FWDQM(QM2)\n"
    found = translate(text.encode(), links={"QM2": LinkTo(link, url), "QM3": LinkTo("QM3")})
    made = tomllib.loads(found.text)
    assert [rule["to"] for rule in made["dead-letter-rules"]] == [f"{link}.Q7", f"{link}.DLQ"]
    remote = {f"{link}.Q7": {"queue": "Q7"}, f"{link}.DLQ": {"queue": "DLQ"}}
    assert made["links"] == {link: ({"url": url} if url else {}) | {"remote-queues": remote}}
    before = "" if url else f'[links.{link}]\nurl = "amqp://qm2.example.org"\n'
    file = tmp_path / "appended.toml"
    file.write_text(
        (Path(__file__).parents[3] / "etc" / "broker.toml").read_text("utf-8") + before + found.text, "utf-8"
    )
    assert set(checked(file).links[link].remote_queues) == set(remote)
    assert "  --link QM3: no rule forwards to this queue manager" in list(found.report.lines())


def test_the_options_are_for_rules_tables() -> None:
    for options in ({"queue_manager": "QM1"}, {"links": {"QM2": LinkTo("QM2")}}):
        with pytest.raises(InvalidFile, match="--queue-manager and --link are for a rules table of runmqdlq"):
            translate(b"listener 1883\n", **options)


#: IBM's own example, without its comments, in the order of its page.
IBMS = """
inputqm(' ') inputq(' ')
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)
REASON(MQRC_PUT_INHIBITED) ACTION(RETRY) RETRY(5)
MSGTYPE(MQMT_REQUEST) REPLYQM(AAAA.*) +
  ACTION(FWD) FWDQ(DEADQ) FWDQM(&REPLYQM)
DESTQM(bbbb.1) +
  action(fwd) fwdq(&DESTQ) fwdqm(bbbb.2) header(no)
REPLYQM(CCCC.*) +
  ACTION(IGNORE)
PERSIST(MQPER_NOT_PERSISTENT) ACTION(DISCARD)
REPLYQM('?*') +
  ACTION(FWD) FWDQ('DEADQ') FWDQM(&REPLYQM)
ACTION(IGNORE)
"""


def test_ibm_s_example() -> None:
    found = translate(IBMS.encode(), queue_manager="AAAA.1")
    made = tomllib.loads(found.text)["dead-letter-rules"]
    assert [(rule["name"], rule["action"]) for rule in made] == [
        ("line-3", "retry"),
        ("line-4", "retry"),
        ("line-11", "leave"),
        ("line-14", "leave"),
    ], "what is not persistent is not discarded, as rules before it are left out"


@pytest.mark.parametrize(
    ("condition", "head", "matches"),
    [
        ("FORMAT(MQSTR)", "JMS_IBM_Format:MQSTR   \n", True),
        ("FORMAT(MQSTR)", "JMS_IBM_Format:MQSTRX\n", False),
        ("FORMAT('M?S*R')", "JMS_IBM_Format:MQSTR   \n", True),
        ("FORMAT(' ')", "", True),
        ("MSGTYPE(MQMT_REQUEST)", "JMS_IBM_MsgType:1\n", True),
        ("MSGTYPE(MQMT_REQUEST)", "reply-to:/queue/a\n", True),
        ("MSGTYPE(MQMT_REQUEST)", "JMS_IBM_MsgType:8\nreply-to:/queue/a\n", False),
        ("MSGTYPE(MQMT_DATAGRAM)", "", True),
        ("FEEDBACK(MQFB_NONE)", "", True),
        ("FEEDBACK(MQFB_COD)", "JMS_IBM_Feedback:260\n", True),
        ("APPLTYPE(MQAT_JAVA)", "JMS_IBM_PutApplType:28\n", True),
        ("APPLNAME('pay*')", "JMSXAppID:payroll                     \n", True),
        ("REPLYQ(A)", "reply-to:/queue/A\n", True),
        ("REPLYQ(A)", "reply-to:/queue/AB\n", False),
        ("REPLYQM('?*')", "", False),
    ],
)
def test_messages_that_a_condition_matches(condition: str, head: str, matches: bool) -> None:
    (rule,) = tomllib.loads(translate(f"{condition} ACTION(IGNORE)\n".encode()).text)["dead-letter-rules"]
    format = StompFormat((("/queue/", RoutingType.ANYCAST),))
    selector = compile_filter(rule["selector"])
    assert selector is not None
    assert selector.matches(PropertyView(Message(MessageHeader("a", format), head.encode(), b""))) is matches


@pytest.mark.parametrize(
    ("target", "why"), [("&REPLYQ", "the message's sender needs the permission to send there"), ("X", "rules are the")]
)
def test_whose_permission_a_forward_needs(target: str, why: str, tmp_path: Path) -> None:
    ((outcome, found),) = told(f"ACTION(FWD) FWDQ({target}) PUTAUT(DEF)\n", tmp_path, "PUTAUT")
    assert outcome is Outcome.CHANGED
    assert found.startswith(why)
