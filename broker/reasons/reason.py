"""A word by which Bartleby reports something, and the kinds of such words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

#: The action where nothing is wrong.
NOTHING = "Nothing: this is normal."


class Text(NamedTuple):
    """A meaning, and what to do; both are sentences."""

    meaning: str
    action: str = NOTHING


class Kind(Enum):
    """Where a word is seen; the value is the kind's name."""

    DEAD_LETTER = "dead-letter"
    REMOVAL = "removal"
    STAYS = "stays"
    ERROR = "error"
    HTTP = "http"
    AMQP = "amqp"
    MQTT = "mqtt"
    STOMP = "stomp"
    LOG = "log"
    EXIT = "exit"
    IBM_MQ = "ibm-mq"

    @property
    def title(self) -> str:
        """The kind as a heading."""
        return _SHOWN[self][0]

    @property
    def label(self) -> str:
        """What a word of this kind is called."""
        return _SHOWN[self][2]

    @property
    def where(self) -> str:
        """Where users see such words, in a sentence."""
        return _SHOWN[self][1]


_SHOWN = {
    Kind.DEAD_LETTER: (
        "Dead-letter reasons",
        "Why a message died: the header `_AMQ_DL_REASON`. The number is the one in the journal.",
        "dead-letter reason",
    ),
    Kind.REMOVAL: (
        "Removal reasons",
        "Why a message left a queue: the journal, audits and metrics. The number is the one in the journal.",
        "removal reason",
    ),
    Kind.STAYS: (
        "Why messages stay",
        "Why a retry, move or replay left messages where they were.",
        "why messages stay",
    ),
    Kind.ERROR: (
        "Refusals",
        "Why the broker refused a request, whatever its protocol: `code` in answers of the management API, whose HTTP "
        "status is the number. AMQP and MQTT clients get the condition or reason code named beside it, STOMP clients "
        "its sentence in an ERROR frame.",
        "refusal",
    ),
    Kind.HTTP: (
        "Answers of the management API",
        "Answers of the management API besides the refusals above: `code` of an error, or a path whose status says it "
        "all. The number is the HTTP status.",
        "management API answer",
    ),
    Kind.AMQP: (
        "AMQP conditions",
        "The `condition` of a rejected delivery, or of a closed link, session or connection.",
        "AMQP condition",
    ),
    Kind.MQTT: (
        "MQTT reason codes",
        "In CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK and DISCONNECT of MQTT 5.0. Earlier versions "
        "have return codes in CONNACK, here in brackets, and 0x80 in SUBACK.",
        "MQTT reason code",
    ),
    Kind.STOMP: (
        "STOMP ERROR messages",
        "The header `message` of an ERROR frame; the body says more. For a refusal (above) it is a sentence.",
        "STOMP ERROR message",
    ),
    Kind.LOG: (
        "Log events",
        "The code of a line of the log, and the label `code` of the metric `broker_events_total`.",
        "log event",
    ),
    Kind.EXIT: ("Exit statuses", "The exit status of `bartleby`, the same for every command.", "exit status"),
    Kind.IBM_MQ: (
        "Codes of IBM MQ",
        "The broker never gives these: what reports the same here is beside them. docs/migrating.md has the rest.",
        "IBM MQ code",
    ),
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A word and what it means.

    `number`: its number in the protocol or the journal, None if it has none; `return_code`: for MQTT, the code in
    CONNACK before 5.0; `level`: for a log event, else empty; `see`: what is sent to clients for it, or its causes, as
    `KIND WORD` of the table; `title`: for a problem of the management API, else empty.
    """

    kind: Kind
    word: str
    meaning: str
    action: str
    number: int | None = None
    return_code: int | None = None
    level: str = ""
    see: tuple[str, ...] = ()
    title: str = ""

    @property
    def number_text(self) -> str:
        """The number in the usual notation; empty for none."""
        if self.number is None:
            return ""
        if self.kind is Kind.IBM_MQ:
            return f"{self.number} (0x{self.number:08X})"
        if self.kind is not Kind.MQTT:
            return str(self.number)
        early = "" if self.return_code is None else f" ({self.return_code})"
        return f"0x{self.number:02X}{early}"

    def view(self) -> dict[str, object]:
        """The reason for JSON, in the CLI and the management API."""
        return {
            "kind": self.kind.value,
            "word": self.word,
            "number": self.number,
            "title": self.title or None,
            "return_code": self.return_code,
            "level": self.level or None,
            "meaning": self.meaning,
            "action": self.action,
            "see": list(self.see),
        }
