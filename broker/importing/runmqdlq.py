"""A rules table of IBM MQ's runmqdlq as [[dead-letter-rules]].

A rule is translated completely or not at all: without one of its conditions it would discard or move messages that it
must not.  Conditions on fields of MQ's header that Bartleby's messages lack (format, message type, reply
queue), reasons for which messages do not die here, and forwards to another queue manager have no counterpart.

Messages that an omitted rule would have saved must not be discarded by a later one: such a rule is written with
`leave`, and the report says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pydantic import ValidationError

from broker.config.dead_letter_checks import SECTION, dead_letter_rule_problems
from broker.config.dead_letter_rules import RuleSection
from broker.config.model import Config
from broker.engine import AT_MOST_MAX
from broker.importing.files import InvalidFile
from broker.importing.report import Outcome, Place, Report, shown
from broker.importing.runmqdlq_table import Entry, Given, read_table
from broker.importing.toml import toml_text
from broker.reasons.ibm_mq import BY_NAME, BY_NUMBER

Fields = dict[str, object]

_PERSISTENCE: Final = {
    "MQPER_PERSISTENT": "DURABLE",
    "1": "DURABLE",
    "MQPER_NOT_PERSISTENT": "NON_DURABLE",
    "0": "NON_DURABLE",
}
_ONE_BROKER: Final = "there are no queue managers: a rule applies to the queues of its own broker"
_ABSENT: Final = {
    "APPLIDAT": "messages have no application identity data",
    "APPLTYPE": "the type of the sending program is unknown",
    "FEEDBACK": "messages have no feedback: use a selector on a property that the sender sets",
    "FORMAT": "messages have no MQ format: use a selector on a property that the sender sets",
    "MSGTYPE": "messages have no MQ type: use a selector on a property that the sender sets",
    "REPLYQ": "selectors cannot refer to the reply destination",
    "REPLYQM": _ONE_BROKER,
}
_WILDCARDS: Final = frozenset("*?")
_USER_CHARS: Final = 12
"""Characters of a user's name in MQ's header of a message; it cuts off the rest."""
_FIRST_ATTEMPT: Final = "the first attempt is made after this time, not at once"


def translate(data: bytes, report: Report) -> str:
    """The rules as the text of a TOML file.  Raises InvalidFile."""
    control, entries = read_table(data)
    everywhere = _control(control, report)
    own = control.get("INPUTQM").strip() if control is not None else ""
    rules: dict[str, Fields] = {}
    places: dict[str, Place] = {}
    missing: Entry | None = None  # an omitted rule, whose messages reach those after it
    for entry in entries:
        name = f"line-{entry.line}"
        try:
            rule = _rule(entry, report, missing, own)
        except _LeftOutError as left:
            why = f"{left.given.keyword}({left.given.value}): {left}"
            report.left(_whole(entry), f"the rule is left out: {why}")
            missing = missing or (None if left.idle else entry)
            continue
        wanted = {key: value for key, value in everywhere.items() if key != "every" or rule["action"] == "retry"}
        rules[name] = {"name": name, **wanted, **rule}
        places[name] = _whole(entry)
    _settle(rules, places, report)
    return toml_text({SECTION: list(rules.values())}) if rules else ""


def _place(given: Given) -> Place:
    return Place(given.line, given.keyword, shown(given.keyword, given.value))


def _whole(entry: Entry) -> Place:
    return Place(entry.line, "rule", f"ACTION({entry.get('ACTION')})")


def _key(entry: Entry, setting: str) -> str:
    return f'{SECTION}["line-{entry.line}"].{setting}'


# -- control data ------------------------------------------------------------------------------------------------------


def _control(entry: Entry | None, report: Report) -> Fields:
    """The fields common to all rules.  Raises InvalidFile."""
    fields: Fields = {}
    for given in entry.given.values() if entry is not None else ():
        place, value = _place(given), given.value
        if given.keyword == "INPUTQ" and value.strip():
            fields["queue"] = value
            why = "an address setting must name its address as dead-letter-address"
            report.add(place, Outcome.CHANGED, f"{SECTION}.queue", why)
        elif given.keyword == "INPUTQ":
            report.add(place, Outcome.TAKEN, why="the rules are for all queues of dead letters")
        elif given.keyword == "RETRYINT":
            fields["every"] = f"{_number(given, 1)}s"
            report.add(place, Outcome.CHANGED, f"{SECTION}.every", _FIRST_ATTEMPT)
        elif given.keyword == "WAIT" and value == "YES":
            report.add(place, Outcome.TAKEN, why="the broker always runs the rules")
        elif given.keyword == "WAIT":
            report.left(place, "the broker runs the rules as long as it runs")
        elif not value.strip():
            report.add(place, Outcome.TAKEN, why="the rules are the broker's own")
        else:
            report.left(place, _ONE_BROKER)
    return fields


def _number(given: Given, low: int) -> int:
    """The number in a value.  Raises InvalidFile."""
    if not (given.value.isascii() and given.value.isdigit() and low <= int(given.value) <= 999_999_999):
        raise InvalidFile(f"line {given.line}: {given.keyword} takes a number from {low} to 999999999")
    return int(given.value)


# -- one rule ----------------------------------------------------------------------------------------------------------


class _LeftOutError(Exception):
    """Why a rule has no counterpart, and the keyword responsible; `idle`: it would never match a message."""

    def __init__(self, given: Given, why: str, *, idle: bool = False) -> None:
        super().__init__(why)
        self.given = given
        self.idle = idle


def _rule(entry: Entry, report: Report, missing: Entry | None, own: str) -> Fields:
    """The rule without its name; each keyword is reported.  Raises _LeftOutError, InvalidFile."""
    found: list[tuple[Place, Outcome, str, str]] = []

    def tell(given: Given, outcome: Outcome, setting: str = "", why: str = "") -> None:
        found.append((_place(given), outcome, _key(entry, setting) if setting else "", why))

    fields = _action(entry, tell, own)
    selectors = [text for given in entry.given.values() if (text := _condition(given, fields, tell, own))]
    if fields["action"] == "discard" and missing is not None:
        fields["action"] = "leave"
        why = f"it might discard what the omitted rule of line {missing.line} saved: decide, and write discard"
        found[0] = (_place(entry.given["ACTION"]), Outcome.STRICTER, _key(entry, "action"), why)
    if selectors:
        fields["selector"] = " AND ".join(selectors)
    for finding in found:
        report.add(*finding)
    return fields


Tell = Callable[..., None]


def _action(entry: Entry, tell: Tell, own: str) -> Fields:
    action = entry.given["ACTION"]
    fields: Fields
    if action.value in ("DISCARD", "IGNORE"):
        fields = {"action": {"DISCARD": "discard", "IGNORE": "leave"}[action.value]}
        tell(action, Outcome.TAKEN, "action")
    elif action.value == "RETRY":
        fields = {"action": "retry"}
        tell(action, Outcome.TAKEN, "action")
    elif action.value == "FWD":
        fields = _forward(entry, tell, own)
    else:
        raise InvalidFile(f"line {action.line}: ACTION is DISCARD, IGNORE, RETRY or FWD, not {action.value}")
    _details(entry, fields, tell)
    return fields


def _forward(entry: Entry, tell: Tell, own: str) -> Fields:
    action, target, manager = entry.given["ACTION"], entry.given.get("FWDQ"), entry.given.get("FWDQM")
    if target is None:
        raise InvalidFile(f"line {action.line}: ACTION(FWD) needs FWDQ")
    if manager is not None and manager.value.strip() not in ("", "&DESTQM", own):
        raise _LeftOutError(manager, _ONE_BROKER)
    if target.value == "&REPLYQ":
        raise _LeftOutError(target, "a rule moves to one address or queue, not to one that each message names")
    if target.value == "&DESTQ":
        tell(action, Outcome.CHANGED, "action", "a forward to the original destination is a retry here")
        tell(target, Outcome.TAKEN, "action")
        return {"action": "retry"}
    if not target.value.strip() or target.value.startswith("&"):
        raise InvalidFile(f"line {target.line}: FWDQ is a queue, &DESTQ or &REPLYQ, not {target.value!r}")
    tell(action, Outcome.TAKEN, "action")
    tell(target, Outcome.TAKEN, "to")
    return {"action": "move", "to": target.value}


def _details(entry: Entry, fields: Fields, tell: Tell) -> None:
    """Translate RETRY, HEADER, PUTAUT, CONVERT, and a target without a forward."""
    attempts = entry.given.get("RETRY")
    if fields["action"] == "retry":
        count = 1 if attempts is None else _number(attempts, 1)
        fields["at-most"] = min(count, AT_MOST_MAX)
        if attempts is not None:
            why = f"at most {AT_MOST_MAX} here" if count > AT_MOST_MAX else "the attempts of all rules count together"
            tell(attempts, Outcome.CHANGED, "at-most", why)
    elif attempts is not None:
        _number(attempts, 1)
        tell(attempts, Outcome.CHANGED, why="messages that cannot be moved stay, and are retried every minute")
    if "FWDQM" in entry.given and entry.get("ACTION") == "FWD":
        tell(entry.given["FWDQM"], Outcome.TAKEN, why="it is this broker")
    for keyword in ("FWDQ", "FWDQM"):
        if keyword in entry.given and entry.get("ACTION") != "FWD":
            tell(entry.given[keyword], Outcome.CHANGED, why="it is only for ACTION(FWD), and has no effect here")
    header, user = entry.given.get("HEADER"), entry.given.get("PUTAUT")
    if header is not None:
        if header.value == "NO":
            tell(header, Outcome.CHANGED, why="the message keeps the broker's annotations (_AMQ_DL_...)")
        else:
            tell(header, Outcome.TAKEN)
    if user is not None:
        tell(user, Outcome.CHANGED, why="rules are the broker's own and need no permission")
    if "CONVERT" in entry.given:
        tell(entry.given["CONVERT"], Outcome.CHANGED, why="messages are never converted on the way")


# -- its conditions ----------------------------------------------------------------------------------------------------


def _condition(given: Given, fields: Fields, tell: Tell, own: str) -> str:
    """Put a condition, or return it as a selector; empty for none.  Raises _LeftOutError."""
    value = given.value.rstrip()
    if given.keyword in ("REASON", "PERSIST", "DESTQ", "DESTQM", "APPLNAME", "USERID", *_ABSENT) and value == "*":
        tell(given, Outcome.TAKEN, why="it matches everything")
        return ""
    if given.keyword in _ABSENT:
        raise _LeftOutError(given, _ABSENT[given.keyword])
    if given.keyword == "REASON":
        fields["reasons"] = [_reason(given)]
        tell(given, Outcome.TAKEN, "reasons")
    elif given.keyword == "PERSIST":
        if value not in _PERSISTENCE:
            raise _LeftOutError(given, "a message is either persistent or not")
        tell(given, Outcome.TAKEN, "selector")
        return f"AMQDurable = '{_PERSISTENCE[value]}'"
    elif given.keyword == "DESTQM":
        return _manager(given, value, tell, own)
    elif given.keyword in ("DESTQ", "USERID", "APPLNAME"):
        return _name(given, value, fields, tell)
    return ""


def _reason(given: Given) -> str:
    value = given.value.strip()
    code = BY_NUMBER.get(int(value)) if value.isascii() and value.isdigit() else BY_NAME.get(value)
    if code is None or not code.dead_letter:
        raise _LeftOutError(given, "messages do not die for this reason here", idle=True)
    return code.dead_letter


def _name(given: Given, value: str, fields: Fields, tell: Tell) -> str:
    """A name as a setting or a selector; an MQ pattern, which does not work by words, as a selector."""
    if not value:
        raise _LeftOutError(given, "every message has a value")
    if given.keyword == "DESTQ":
        why = "the address where it died, or, on a link, the address there"
        tell(given, Outcome.TAKEN, "selector", why)
        return f"({_like('_AMQ_ORIG_ADDRESS', value)} OR {_like('_AMQ_DL_REMOTE_ADDRESS', value)})"
    if given.keyword == "APPLNAME":
        tell(given, Outcome.CHANGED, "selector", "the client id stands for the name of the program")
        return _like("_AMQ_DL_ORIG_CLIENT", value)
    if not set(value) & _WILDCARDS and len(value) != _USER_CHARS:
        fields["user"] = value
        tell(given, Outcome.TAKEN, "user")
        return ""
    cut = len(value) == _USER_CHARS and "*" not in value
    why = f"MQ knows {_USER_CHARS} characters of a user's name: longer names match by their beginning" if cut else ""
    tell(given, Outcome.CHANGED if cut else Outcome.TAKEN, "selector", why)
    return _like("_AMQ_DL_ORIG_USER", value + "*" if cut else value)


def _manager(given: Given, value: str, tell: Tell, own: str) -> str:
    """The broker where it died: a dead letter that died here, not on a link, has no remote one."""
    if not value:
        raise _LeftOutError(given, "every message has a value")
    if not own:
        raise _LeftOutError(given, "give INPUTQM, to tell whether it is this queue manager")
    tell(given, Outcome.TAKEN, "selector", "the broker behind the link on which it died, or this one")
    remote = _like("_AMQ_DL_REMOTE_BROKER", value)
    pattern = re.escape(value).replace(r"\*", ".*").replace(r"\?", ".")
    return f"({remote} OR _AMQ_DL_REMOTE_BROKER IS NULL)" if re.fullmatch(pattern, own) else remote


def _like(header: str, value: str) -> str:
    """The selector by which a header is a name, or fits a pattern of MQ."""
    escaped = value.replace("'", "''")
    if not set(value) & _WILDCARDS:
        return f"{header} = '{escaped}'"
    for character in "\\%_":
        escaped = escaped.replace(character, f"\\{character}")
    pattern = escaped.replace("*", "%").replace("?", "_")
    escape = " ESCAPE '\\'" if "\\" in pattern else ""
    return f"{header} LIKE '{pattern}'{escape}"


# -- what the models say -----------------------------------------------------------------------------------------------


def _settle(rules: dict[str, Fields], places: dict[str, Place], report: Report) -> None:
    """Remove the rules that the models refuse."""
    while True:
        wrong: dict[str, str] = {}
        sections: list[RuleSection] = []
        for name, fields in rules.items():
            try:
                sections.append(RuleSection.model_validate(fields))
            except ValidationError as error:
                wrong[name] = "; ".join(str(each["msg"]) for each in error.errors(include_url=False))
        config = Config().model_copy(update={"dead_letter_rules": tuple(sections)})
        for keys, _, why in dead_letter_rule_problems(config):
            name = keys[0].partition('["')[2].partition('"]')[0]
            wrong.setdefault(name or next(reversed(rules)), why)
        if not wrong:
            return
        for name, why in wrong.items():
            del rules[name]
            report.left(places[name], f"the rule is left out: {why}")
