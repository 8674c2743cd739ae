"""A rules table of IBM MQ's runmqdlq as [[dead-letter-rules]], and the remote queues that its rules forward to.

A rule is translated completely or not at all: without one of its conditions it would discard or move messages that it
must not.  Reasons for which messages do not die here, and forwards to a queue manager that no option names, have no
counterpart.  `runmqdlq_match` has the conditions.

Messages that an omitted rule would have saved must not be discarded by a later one: such a rule is written with
`leave`, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from broker.config.dead_letter_checks import SECTION, dead_letter_rule_problems
from broker.config.dead_letter_rules import RuleSection
from broker.config.model import Config
from broker.engine import AT_MOST_MAX
from broker.importing.files import InvalidFile
from broker.importing.report import Outcome, Place, Report, format_value
from broker.importing.runmqdlq_match import Fields, LeftOutError, LinkTo, Site, Tell, put_conditions
from broker.importing.runmqdlq_table import Entry, Given, read_table
from broker.importing.toml import toml_text

_FIRST_ATTEMPT: Final = "the first attempt is made after this time, not at once"
_REPLIED: Final = "to the address in reply-to, if the sender may send there; without a reply-to the next rule decides"
_EACH: Final = (
    "the queue differs from message to message: write a rule for each DESTQ or REPLYQ, with the queue as FWDQ"
)


def translate(data: bytes, report: Report, queue_manager: str, links: Mapping[str, LinkTo]) -> str:
    """The rules as the text of a TOML file.

    `queue_manager`: the name of this broker in the table, empty: that of INPUTQM; `links`: to others, by their names.
    Raises InvalidFile.
    """
    control, entries = read_table(data)
    site = Site(queue_manager, links)
    everywhere = _control(control, report, site)
    rules: dict[str, Fields] = {}
    places: dict[str, Place] = {}
    missing: Entry | None = None  # an omitted rule, whose messages reach those after it
    for entry in entries:
        name = f"line-{entry.line}"
        try:
            rule = _rule(entry, report, missing, site)
        except LeftOutError as left:
            why = f"{left.given.keyword}({left.given.value}): {left}"
            report.left(_whole(entry), f"the rule is left out: {why}")
            missing = missing or (None if left.idle else entry)
            continue
        wanted = {key: value for key, value in everywhere.items() if key != "every" or rule["action"] == "retry"}
        rules[name] = {"name": name, **wanted, **rule}
        places[name] = _whole(entry)
    _drop_refused(rules, places, report)
    tables: dict[str, object] = {"links": found} if (found := _links(rules, site, report)) else {}
    return toml_text(tables | ({SECTION: list(rules.values())} if rules else {}))


def _links(rules: Mapping[str, Fields], site: Site, report: Report) -> dict[str, Fields]:
    """The links with the remote queues that rules forward to."""
    targets = {rule.get("to") for rule in rules.values()}
    found: dict[str, Fields] = {}
    for manager, (link, url) in site.links.items():
        remote = {
            address: {"queue": queue}
            for address, (name, queue) in site.remote.items()
            if name == link and address in targets
        }
        if remote:
            found[link] = ({"url": url} if url else {}) | {"remote-queues": remote}
        else:
            report.left(Place(0, f"--link {manager}"), "no rule forwards to this queue manager")
    return found


def _place(given: Given) -> Place:
    return Place(given.line, given.keyword, format_value(given.keyword, given.value))


def _whole(entry: Entry) -> Place:
    return Place(entry.line, "rule", f"ACTION({entry.get('ACTION')})")


def _key(entry: Entry, setting: str) -> str:
    return f'{SECTION}["line-{entry.line}"].{setting}'


# -- control data ------------------------------------------------------------------------------------------------------


def _control(entry: Entry | None, report: Report, site: Site) -> Fields:
    """The fields common to all rules; the site gets the name of this broker.  Raises InvalidFile."""
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
        elif site.own and site.own != value.strip():
            report.add(place, Outcome.CHANGED, why=f"this broker is {site.own} (--queue-manager)")
        else:
            site.own = value.strip()
            report.add(place, Outcome.TAKEN, why="it is this broker, in FWDQM, DESTQM and REPLYQM too")
    return fields


def _number(given: Given, low: int) -> int:
    """The number in a value.  Raises InvalidFile."""
    if not (given.value.isascii() and given.value.isdigit() and low <= int(given.value) <= 999_999_999):
        raise InvalidFile(f"line {given.line}: {given.keyword} takes a number from {low} to 999999999")
    return int(given.value)


# -- one rule ----------------------------------------------------------------------------------------------------------


def _rule(entry: Entry, report: Report, missing: Entry | None, site: Site) -> Fields:
    """The rule without its name; each keyword is reported.  Raises LeftOutError, InvalidFile."""
    found: list[tuple[Place, Outcome, str, str]] = []

    def tell(given: Given, outcome: Outcome, setting: str = "", why: str = "") -> None:
        found.append((_place(given), outcome, _key(entry, setting) if setting else "", why))

    fields = _action(entry, tell, site)
    put_conditions(entry, fields, tell, site)
    if fields["action"] == "discard" and missing is not None:
        fields["action"] = "leave"
        why = f"it might discard what the omitted rule of line {missing.line} saved: decide, and write discard"
        found[0] = (_place(entry.given["ACTION"]), Outcome.STRICTER, _key(entry, "action"), why)
    for finding in found:
        report.add(*finding)
    return fields


def _action(entry: Entry, tell: Tell, site: Site) -> Fields:
    action = entry.given["ACTION"]
    fields: Fields
    if action.value in ("DISCARD", "IGNORE"):
        fields = {"action": {"DISCARD": "discard", "IGNORE": "leave"}[action.value]}
        tell(action, Outcome.TAKEN, "action")
    elif action.value == "RETRY":
        fields = {"action": "retry"}
        tell(action, Outcome.TAKEN, "action")
    elif action.value == "FWD":
        fields = _forward(entry, tell, site)
    else:
        raise InvalidFile(f"line {action.line}: ACTION is DISCARD, IGNORE, RETRY or FWD, not {action.value}")
    _details(entry, fields, tell)
    return fields


def _forward(entry: Entry, tell: Tell, site: Site) -> Fields:
    """The action by FWDQ and FWDQM.  Raises LeftOutError, InvalidFile."""
    action, target, manager = entry.given["ACTION"], entry.given.get("FWDQ"), entry.given.get("FWDQM")
    if target is None:
        raise InvalidFile(f"line {action.line}: ACTION(FWD) needs FWDQ")
    queue, there = target.value.strip(), "" if manager is None else manager.value.strip()
    of_message = {"&DESTQ": ("retry", "&DESTQM"), "&REPLYQ": ("reply", "&REPLYQM")}.get(queue)
    if of_message is not None:
        word, own = of_message
        if not (site.is_own(there) or there == own):
            assert manager is not None
            raise LeftOutError(manager, _EACH)
        why = "a forward to the original destination is a retry here" if word == "retry" else _REPLIED
        tell(action, Outcome.CHANGED, "action", why)
        tell(target, Outcome.TAKEN, "action")
        if manager is not None:
            tell(manager, Outcome.TAKEN, why="messages name addresses of this broker, also those of remote queues")
        return {"action": word}
    if not queue or queue.startswith("&"):
        raise InvalidFile(f"line {target.line}: FWDQ is a queue, &DESTQ or &REPLYQ, not {target.value!r}")
    tell(action, Outcome.TAKEN, "action")
    tell(target, Outcome.TAKEN, "to")
    if manager is None or site.is_own(there):
        if manager is not None:
            tell(manager, Outcome.TAKEN, why="it is this broker")
        return {"action": "move", "to": queue}
    return {"action": "move", "to": _remote(manager, there, queue, tell, site)}


def _remote(manager: Given, there: str, queue: str, tell: Tell, site: Site) -> str:
    """The address of a remote queue that a rule forwards to.  Raises LeftOutError."""
    if there.startswith("&"):
        raise LeftOutError(manager, "messages name no queue manager: write a rule for each, with its name as FWDQM")
    if there not in site.links:
        own = "" if site.own else f", or --queue-manager {there} if it is this broker"
        raise LeftOutError(manager, f"give --link {there}=URL, so that the rule moves to a remote queue of a link{own}")
    link, url = site.links[there]
    address = f"{link}.{queue}"
    site.remote[address] = link, queue
    key = f'links.{link}.remote-queues."{address}"'
    if url:
        tell(manager, Outcome.TAKEN, why=f"{key}: give the link a user and a password-file if it needs them")
    else:
        tell(manager, Outcome.CHANGED, why=f"{key}: append it to a broker.toml that has the link {link}")
    return address


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
        own = "rules are the broker's own and need no permission"
        why = "the message's sender needs the permission to send there" if fields["action"] == "reply" else own
        tell(user, Outcome.CHANGED, why=why)
    if "CONVERT" in entry.given:
        tell(entry.given["CONVERT"], Outcome.CHANGED, why="messages are never converted on the way")


# -- what the models say -----------------------------------------------------------------------------------------------


def _drop_refused(rules: dict[str, Fields], places: dict[str, Place], report: Report) -> None:
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
