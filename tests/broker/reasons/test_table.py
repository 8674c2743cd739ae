"""Everything that the broker can say is explained, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from broker.engine import KNOWN, REASONS
from broker.engine.model import errors
from broker.engine.model.errors import EngineError
from broker.engine.moves import transfer
from broker.log_events import EVENTS
from broker.management import problems
from broker.reasons import exit_status, ibm_mq
from broker.reasons.exit_status import ExitStatus
from broker.reasons.reason import NOTHING, Kind, Reason
from broker.reasons.refusals import ANSWERS, PROBLEMS
from broker.reasons.table import client_words, reasons
from broker.sessions.mqtt.terms import TooMany
from protocols.amqp import errors as amqp
from protocols.mqtt.codes import ReasonCode
from spark_jobs import results
from store.record_types import DeadLetterReason, RemovalReason

ROOT: Final = Path(__file__).parents[3]

#: Reason codes that say that all is well, or that only clients send.
WELL: Final = {"SUCCESS", "CONTINUE_AUTHENTICATION", "RE_AUTHENTICATE"}


def of(kind: Kind) -> dict[str, Reason]:
    found = [reason for reason in reasons() if reason.kind is kind]
    by_word = {reason.word: reason for reason in found}
    assert len(by_word) == len(found), "a word stands twice"
    return by_word


def nodes(*places: str) -> Iterator[ast.AST]:
    """The syntax of the modules in these folders, or of these modules."""
    for place in places:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield from ast.walk(ast.parse(file.read_text("utf-8")))


def called(node: ast.AST) -> str:
    """The last name of what is called, empty if nothing is."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def shapes(argument: ast.expr) -> list[str]:
    """The texts that an expression may be, with `*` for what is filled in; none if it says nothing of them."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return [argument.value]
    if isinstance(argument, ast.JoinedStr):
        return ["".join(str(v.value) if isinstance(v, ast.Constant) else "*" for v in argument.values)]
    if isinstance(argument, ast.IfExp):
        return shapes(argument.body) + shapes(argument.orelse)
    return []


@pytest.mark.parametrize(("kind", "members"), [(Kind.DEAD_LETTER, DeadLetterReason), (Kind.REMOVAL, RemovalReason)])
def test_the_journal_s_reasons(kind: Kind, members: type[DeadLetterReason] | type[RemovalReason]) -> None:
    assert {word: reason.number for word, reason in of(kind).items()} == {each.word: each.value for each in members}


def test_dead_letter_reasons_that_are_not_given_say_so() -> None:
    rooms = (ROOT / "broker" / "engine", ROOT / "broker" / "sessions")
    sources = "".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    given = {DeadLetterReason[name].word for name in re.findall(r"\bDeadLetterReason\.([A-Z_]+)\b", sources)}
    assert {word for word, reason in of(Kind.DEAD_LETTER).items() if "Reserved" not in reason.meaning} == given


def test_why_messages_stay() -> None:
    words = {value for name, value in vars(transfer).items() if name.isupper() and str(value).islower()}
    assert set(of(Kind.STAYS)) == words | {KNOWN}


def test_refusals() -> None:
    classes: list[type[EngineError]] = [TooMany]
    classes += [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, EngineError)]
    assert set(of(Kind.ERROR)) == {each.code for each in classes if each is not EngineError}
    defined = {
        n.name for n in nodes("broker") if isinstance(n, ast.ClassDef) and _inherits(n, "EngineError", "NoQueue")
    }
    assert defined - {"BadImport", "BadReplay"} == {each.__name__ for each in classes} - {"EngineError"}


def _inherits(node: ast.ClassDef, *bases: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id in bases for each in node.bases)


def test_conditions_of_amqp() -> None:
    names = {name: value for name, value in vars(amqp).items() if name.isupper() and str(value).startswith("amqp:")}
    used = {n.id for n in nodes("broker/sessions", "protocols/amqp") if isinstance(n, ast.Name) and _loaded(n)}
    assert set(of(Kind.AMQP)) == {names[name] for name in used & names.keys()}


def _loaded(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def test_reason_codes_of_mqtt() -> None:
    used = {
        node.attr
        for place in ("broker/sessions/mqtt", "protocols/mqtt")
        for file in sorted((ROOT / place).glob("*.py"))
        if file.name != "codes.py"
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ReasonCode"
    }
    assert {reason.number for reason in of(Kind.MQTT).values()} == {ReasonCode[name] for name in used - WELL}


def test_messages_of_stomp() -> None:
    place = {"StompError": 0, "FirstTooLarge": 0, "_refused": 0, "error": 1}
    said = {"connection closed", "broker shutting down"}  # chosen before the call
    for node in nodes("broker/sessions/stomp", "protocols/stomp"):
        if isinstance(node, ast.Call) and called(node) in place and len(node.args) > place[called(node)]:
            said.update(shapes(node.args[place[called(node)]]))
    refused: set[str] = set()  # what a refusal says before its colon
    for node in nodes("broker/engine"):
        if isinstance(node, ast.Call) and called(node) in ("Denied", "InvalidSelector"):
            refused.update(text.partition(":")[0] for text in shapes(node.args[0]))
    assert len(refused) == 2
    explained = set(of(Kind.STOMP))
    assert explained == {word for word in said if not re.fullmatch(r"invalid (ack|browser)", word)} | refused


def test_log_events() -> None:
    assert {word: reason.meaning for word, reason in of(Kind.LOG).items()} == {c: e.meaning for c, e in EVENTS.items()}
    severe = [event for event in EVENTS.values() if event.level in ("warning", "error", "critical")]
    assert all(event.action for event in severe)


def test_errors_of_the_management_api() -> None:
    said = {"invalid-replay"}
    for node in nodes("broker/management"):
        if isinstance(node, ast.Call) and called(node) in ("Refused", "problem"):
            said.update(shapes(node.args[0]))
        elif isinstance(node, ast.Assign | ast.FunctionDef):  # chosen before the call
            said.update(text for each in ast.walk(node) if isinstance(each, ast.Constant) for text in _problems(each))
    assert said | set(ANSWERS) == set(of(Kind.HTTP))


def test_each_problem_of_the_management_api_is_explained_with_its_status() -> None:
    answered = {word: reason for kind in (Kind.ERROR, Kind.HTTP) for word, reason in of(kind).items() if reason.title}
    assert answered == problems.ALL_KINDS
    assert set(of(Kind.ERROR)) - set(answered) == {TooMany.code}, "what only a session refuses"
    assert all(400 <= (reason.number or 0) < 600 for reason in answered.values())


def _problems(node: ast.Constant) -> list[str]:
    return [word for word in shapes(node) if word in PROBLEMS]


def test_exit_statuses_are_one_set() -> None:
    assert {reason.number for reason in of(Kind.EXIT).values()} == set(map(int, ExitStatus))
    assert set(exit_status.TEXTS) == set(ExitStatus)
    audits = {each.name: each.value for each in results.ExitStatus}
    assert audits.items() <= {each.name: each.value for each in ExitStatus}.items()


def test_codes_of_ibm_mq() -> None:
    """Each in one row, in order; a reason for which messages die here is one that the broker gives."""
    numbers = [code.number for code in ibm_mq.CODES]
    assert numbers == sorted(set(numbers))
    assert set(of(Kind.IBM_MQ)) == set(ibm_mq.BY_NAME)
    assert {code.dead_letter for code in ibm_mq.CODES} - {""} <= set(REASONS)
    assert ibm_mq.BY_NUMBER[2053].dead_letter == "queue-full"
    assert ibm_mq.BY_NUMBER[2033].dead_letter == ""
    assert of(Kind.IBM_MQ)["MQRC_Q_FULL"].number_text == "2053 (0x00000805)"


def test_texts_are_sentences() -> None:
    for reason in reasons():
        for text in (reason.meaning, reason.action):
            assert re.match(r"[A-Z`0-9]", text), (reason.word, text)
            assert text.endswith((".", ").", "`.")), (reason.word, text)
            assert text.count("`") % 2 == 0, (reason.word, text)
            assert "  " not in text
            assert "\n" not in text


def test_each_word_that_is_seen_is_in_the_table() -> None:
    known = {f"{reason.kind.value} {reason.word}" for reason in reasons()}
    for reason in reasons():
        assert set(reason.see) <= known, reason.word


def test_a_refusal_is_joined_with_what_clients_are_told() -> None:
    assert client_words(errors.AddressFull) == ("amqp amqp:resource-limit-exceeded", "mqtt Quota exceeded")
    assert "error address-full" in of(Kind.MQTT)["Quota exceeded"].see
    assert "error address-full" in of(Kind.AMQP)["amqp:resource-limit-exceeded"].see


def test_normal_events_need_nothing_done() -> None:
    assert of(Kind.LOG)["ready"].action == NOTHING
