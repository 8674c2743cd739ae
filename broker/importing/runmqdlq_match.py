"""The pattern-matching keywords of a runmqdlq rule as conditions of a rule here: `reasons`, `user`, or a selector.

What MQ has in a message's descriptor is looked for where its JMS client puts it: JMS_IBM_Format, JMS_IBM_MsgType,
JMS_IBM_Feedback, JMS_IBM_PutApplType, JMS_IBM_MQMD_ApplIdentityData, JMSXAppID.  Messages that came from MQ have them,
and others if their senders set them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.importing.report import Outcome
from broker.importing.runmqdlq_table import PATTERN, Entry, Given
from broker.reasons.ibm_mq import BY_NAME, BY_NUMBER

Fields = dict[str, object]

#: Reports a keyword: its outcome, the setting that it went to, and why.
Tell = Callable[..., None]

_PERSISTENCE: Final = {
    "MQPER_PERSISTENT": "DURABLE",
    "1": "DURABLE",
    "MQPER_NOT_PERSISTENT": "NON_DURABLE",
    "0": "NON_DURABLE",
}
_REQUEST: Final = 1
_DATAGRAM: Final = 8
_TYPES: Final = {"MQMT_REQUEST": _REQUEST, "MQMT_REPLY": 2, "MQMT_REPORT": 4, "MQMT_DATAGRAM": _DATAGRAM}
_FEEDBACKS: Final = {
    "MQFB_NONE": 0,
    "MQFB_QUIT": 256,
    "MQFB_EXPIRATION": 258,
    "MQFB_COA": 259,
    "MQFB_COD": 260,
    "MQFB_APPL_CANNOT_BE_STARTED": 265,
    "MQFB_TM_ERROR": 266,
    "MQFB_APPL_TYPE_ERROR": 267,
    "MQFB_STOPPED_BY_MSG_EXIT": 268,
    "MQFB_ACTIVITY": 269,
    "MQFB_XMIT_Q_MSG_ERROR": 271,
    "MQFB_PAN": 275,
    "MQFB_NAN": 276,
} | {name: code.number for name, code in BY_NAME.items()}
_APPLICATIONS: Final = {
    "MQAT_NO_CONTEXT": 0,
    "MQAT_CICS": 1,
    "MQAT_MVS": 2,
    "MQAT_OS390": 2,
    "MQAT_ZOS": 2,
    "MQAT_IMS": 3,
    "MQAT_OS2": 4,
    "MQAT_DOS": 5,
    "MQAT_AIX": 6,
    "MQAT_UNIX": 6,
    "MQAT_QMGR": 7,
    "MQAT_OS400": 8,
    "MQAT_WINDOWS": 9,
    "MQAT_CICS_VSE": 10,
    "MQAT_WINDOWS_NT": 11,
    "MQAT_IMS_BRIDGE": 19,
    "MQAT_CICS_BRIDGE": 21,
    "MQAT_BROKER": 26,
    "MQAT_JAVA": 28,
    "MQAT_CHANNEL_INITIATOR": 30,
    "MQAT_BATCH": 32,
}
_WILDCARDS: Final = frozenset("*?")
_EVERY_NAME: Final = re.compile(r"\**\?\**")
_USER_CHARS: Final = 12
"""Characters of a user's name in MQ's header of a message; it cuts off the rest."""
_EVERY: Final = "every message has a value"
_OWN: Final = "give INPUTQM or --queue-manager, to tell whether it is this broker"
_JMS: Final = "a property that MQ's JMS client sets, and others may"
_TYPE: Final = "without this property: a request if it has a reply-to, else a datagram, as MQ's JMS client sends it"


class LinkTo(NamedTuple):
    """The link to a queue manager; `url`: empty if the broker.toml has the link."""

    name: str
    url: str = ""


@dataclass(slots=True)
class Site:
    """The queue managers that a table may name: this broker, and those behind `links`.

    `remote`: the addresses of the remote queues that rules forward to, with the link and the queue there.
    """

    own: str = ""
    links: Mapping[str, LinkTo] = field(default_factory=dict)
    remote: dict[str, tuple[str, str]] = field(default_factory=dict)

    def is_own(self, manager: str) -> bool:
        """Whether a name, blank by default, is this broker's."""
        return manager.strip() in ("", self.own)


class LeftOutError(Exception):
    """Why a rule has no counterpart, and the keyword responsible; `idle`: it would never match a message."""

    def __init__(self, given: Given, why: str, *, idle: bool = False) -> None:
        super().__init__(why)
        self.given = given
        self.idle = idle


def put_conditions(entry: Entry, fields: Fields, tell: Tell, site: Site) -> None:
    """Put the conditions of a rule.  Raises LeftOutError."""
    found = []
    converts = False
    for given in entry.given.values():
        if given.keyword not in PATTERN:
            continue
        if given.value.strip() == "*":
            tell(given, Outcome.TAKEN, why="it matches everything")
            continue
        selector = _CONDITIONS[given.keyword](given, given.value.rstrip(), fields, tell, site)
        converts = converts or given.keyword in _NUMBERS
        if selector:
            found.append(selector)
    if found:  # properties of STOMP and MQTT are texts
        fields["selector"] = ("convert_string_expressions:" if converts else "") + " AND ".join(found)


def _reason(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    value = value.strip()
    code = BY_NUMBER.get(int(value)) if value.isascii() and value.isdigit() else BY_NAME.get(value)
    if code is None or not code.dead_letter:
        raise LeftOutError(given, "messages do not die for this reason here", idle=True)
    fields["reasons"] = [code.dead_letter]
    tell(given, Outcome.TAKEN, "reasons")
    return ""


def _persistence(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    if value not in _PERSISTENCE:
        raise LeftOutError(given, "a message is either persistent or not")
    tell(given, Outcome.TAKEN, "selector")
    return f"AMQDurable = '{_PERSISTENCE[value]}'"


def _destination(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    if not value:
        raise LeftOutError(given, _EVERY)
    tell(given, Outcome.TAKEN, "selector", "the address where it died, or, on a link, the address there")
    return f"({_like('_AMQ_ORIG_ADDRESS', value)} OR {_like('_AMQ_DL_REMOTE_ADDRESS', value)})"


def _manager(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    """The broker where it died: a dead letter that died here, not on a link, has no remote one."""
    if not value:
        raise LeftOutError(given, _EVERY)
    if not site.own:
        raise LeftOutError(given, _OWN)
    tell(given, Outcome.TAKEN, "selector", "the broker behind the link on which it died, or this one")
    remote = _like("_AMQ_DL_REMOTE_BROKER", value)
    return f"({remote} OR _AMQ_DL_REMOTE_BROKER IS NULL)" if _fits(value, site.own) else remote


def _program(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    if not value:
        raise LeftOutError(given, _EVERY)
    tell(given, Outcome.CHANGED, "selector", "the client id, or JMSXAppID of a message from MQ")
    return f"({_like('_AMQ_DL_ORIG_CLIENT', value)} OR {_padded('JMSXAppID', value)})"


def _user(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    """In capitals and small letters too: MQ folds user names on some platforms, and values without quotes on all."""
    if not value:
        raise LeftOutError(given, _EVERY)
    cut = len(value) == _USER_CHARS and "*" not in value
    forms = list(dict.fromkeys((value, value.upper(), value.lower())))
    why = "as written, in capitals and in small letters" if len(forms) > 1 else ""
    if cut:
        why += f"; MQ knows {_USER_CHARS} characters of a name: longer names match by their beginning"
    why = why.removeprefix("; ")
    pattern = cut or bool(set(value) & _WILDCARDS)
    if len(forms) == 1 and not pattern:
        fields["user"] = value
        tell(given, Outcome.TAKEN, "user")
        return ""
    tell(given, Outcome.CHANGED if why else Outcome.TAKEN, "selector", why)
    found = [_like("_AMQ_DL_ORIG_USER", form + "*" if cut else form) for form in forms]
    return f"({' OR '.join(found)})" if len(found) > 1 else found[0]


def _reply_queue(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    tell(given, Outcome.TAKEN, "selector", "the address in reply-to, without a prefix")
    return _like("AMQReplyTo", value) if value else "AMQReplyTo IS NULL"


def _reply_manager(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    if value and not _EVERY_NAME.fullmatch(value):
        if not site.own:
            raise LeftOutError(given, _OWN)
        if not _fits(value, site.own):
            text = "a reply-to is an address of this broker: give the address of a remote queue as REPLYQ"
            raise LeftOutError(given, text)
    tell(given, Outcome.TAKEN, "selector", "a reply-to is an address of this broker")
    return f"AMQReplyTo IS {'NOT ' if value else ''}NULL"


def _type(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    number = _number(given, value, _TYPES)
    implied = {_REQUEST: "NOT NULL", _DATAGRAM: "NULL"}.get(number)
    tell(given, Outcome.CHANGED, "selector", _TYPE if implied else _JMS)
    found = f"JMS_IBM_MsgType = {number}"
    return f"({found} OR (JMS_IBM_MsgType IS NULL AND AMQReplyTo IS {implied}))" if implied else found


def _feedback(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    number = _number(given, value, _FEEDBACKS)
    tell(given, Outcome.CHANGED, "selector", _JMS)
    found = f"JMS_IBM_Feedback = {number}"
    return found if number else f"({found} OR JMS_IBM_Feedback IS NULL)"


def _application(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
    number = _number(given, value, _APPLICATIONS)
    tell(given, Outcome.CHANGED, "selector", _JMS)
    return f"JMS_IBM_PutApplType = {number}"


def _text_of(name: str) -> Callable[[Given, str, Fields, Tell, Site], str]:
    """The condition on a property that is a text, padded with blanks by MQ."""

    def condition(given: Given, value: str, fields: Fields, tell: Tell, site: Site) -> str:
        tell(given, Outcome.CHANGED, "selector", _JMS)
        return _padded(name, value) if value else f"({name} IS NULL OR {name} = '' OR {name} LIKE ' %')"

    return condition


def _number(given: Given, value: str, names: Mapping[str, int]) -> int:
    """The number of a symbol, or the number itself.  Raises LeftOutError."""
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    if value not in names:
        raise LeftOutError(given, "this name is unknown here: give its number")
    return names[value]


_CONDITIONS: Final[Mapping[str, Callable[[Given, str, Fields, Tell, Site], str]]] = {
    "APPLIDAT": _text_of("JMS_IBM_MQMD_ApplIdentityData"),
    "APPLNAME": _program,
    "APPLTYPE": _application,
    "DESTQ": _destination,
    "DESTQM": _manager,
    "FEEDBACK": _feedback,
    "FORMAT": _text_of("JMS_IBM_Format"),
    "MSGTYPE": _type,
    "PERSIST": _persistence,
    "REASON": _reason,
    "REPLYQ": _reply_queue,
    "REPLYQM": _reply_manager,
    "USERID": _user,
}
_NUMBERS: Final = frozenset({"APPLTYPE", "FEEDBACK", "MSGTYPE"})


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name) is not None


def _padded(name: str, value: str) -> str:
    """The selector by which a property is a name, or fits a pattern of MQ, perhaps with blanks after it."""
    if value.endswith("*"):
        return _like(name, value)
    return f"({_like(name, value)} OR {_like(name, value + ' *')})"


def _like(name: str, value: str) -> str:
    """The selector by which a property is a name, or fits a pattern of MQ."""
    escaped = value.replace("'", "''")
    if not set(value) & _WILDCARDS:
        return f"{name} = '{escaped}'"
    for character in "\\%_":
        escaped = escaped.replace(character, f"\\{character}")
    pattern = escaped.replace("*", "%").replace("?", "_")
    escape = " ESCAPE '\\'" if "\\" in pattern else ""
    return f"{name} LIKE '{pattern}'{escape}"
