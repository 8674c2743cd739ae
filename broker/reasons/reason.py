"""One word that Bartleby says, and the kinds of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

#: What to do where everything is as it should be.
NOTHING = "Nothing: this is normal."


class Text(NamedTuple):
    """A meaning, and what to do; both are sentences."""

    meaning: str
    action: str = NOTHING


class Kind(Enum):
    """Where a word is seen; the value is what people and programs call the kind."""

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

    @property
    def title(self) -> str:
        """The kind as a heading."""
        return _SHOWN[self][0]

    @property
    def label(self) -> str:
        """What one of the kind is called."""
        return _SHOWN[self][2]

    @property
    def where(self) -> str:
        """Where a user meets it, in a sentence."""
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
        "What the management API itself answers, besides the refusals above: `code` of an error, or a path that says "
        "it by its status alone. The number is the HTTP status.",
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
    Kind.EXIT: ("Exit statuses", "What `bartleby` ends with, whatever the command.", "exit status"),
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A word and what it means.

    `number`: its number there, None if it has none; `return_code`: of MQTT, what it is in CONNACK before 5.0; `level`:
    of a log event, else empty; `see`: what clients are told for it, or what it comes from, as `KIND WORD` of the table;
    `title`: of a problem that the management API answers with, else empty.
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
    def number_shown(self) -> str:
        """The number as its readers write it; empty for none."""
        if self.number is None:
            return ""
        if self.kind is not Kind.MQTT:
            return str(self.number)
        early = "" if self.return_code is None else f" ({self.return_code})"
        return f"0x{self.number:02X}{early}"

    def view(self) -> dict[str, object]:
        """The reason as JSON has it: the CLI and the management API."""
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
