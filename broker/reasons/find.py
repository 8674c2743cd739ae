"""Finds reasons in text that a user pastes: a word, a number, a header line, a line of the log."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from broker.reasons.reason import Kind, Reason

#: Words before a word or number that name its kind: `exit 3`, `mqtt 0x97`.
_KINDS = {
    "amqp": (Kind.AMQP,),
    "dead-letter": (Kind.DEAD_LETTER,),
    "error": (Kind.ERROR, Kind.HTTP, Kind.STOMP),
    "exit": (Kind.EXIT,),
    "http": (Kind.HTTP, Kind.ERROR),
    "ibm-mq": (Kind.IBM_MQ,),
    "log": (Kind.LOG,),
    "mq": (Kind.IBM_MQ,),
    "mqrc": (Kind.IBM_MQ,),
    "mqtt": (Kind.MQTT,),
    "removal": (Kind.REMOVAL,),
    "status": (Kind.EXIT, Kind.ERROR, Kind.HTTP),
    "stays": (Kind.STAYS,),
    "stomp": (Kind.STOMP,),
}
#: Words between a kind and a word or number: `mqtt reason code 5`.
_FILLERS = frozenset({"code", "condition", "reason", "return", "status"})

#: An HTTP status, in a response's first line and in an error of curl.
_STATUS = re.compile(r"(?:HTTP/[0-9.]+|.* returned error:) ([0-9]{3})\b.*")

#: A reason code in a sentence of IBM MQ: `MQPUT ended with reason code 2053`.
_MQ_REASON = re.compile(r".*\breason(?: code)?[ =:']+(2[0-9]{3})\b.*", re.IGNORECASE)

#: The words of a sentence that are long enough to carry meaning.
_WORD = re.compile(r"[a-z]{4,}")

_SPLIT = re.compile(r"[\s\"'`,;()\[\]{}=#]+")
#: The wildcard in a word: any text.
_ANYTHING = "*"

#: The kinds whose numbers are also written in hexadecimal.
_HEXADECIMAL = (Kind.IBM_MQ, Kind.MQTT)
#: No number of any kind is so large; one that seems to be has its bytes swapped.
_SWAPPED_MIN = 1 << 16

#: Words suggested at most: a line of them.
SUGGESTIONS_MAX = 5


def find(reasons: Iterable[Reason], text: str) -> list[Reason]:
    """The reasons that a text refers to; empty if there are none.

    A text is a word, also with other separators; a number; either of them after the name of a kind; or a line that
    contains words, of which those with a punctuation mark (`login.refused`, `max-deliveries`) take precedence.
    """
    reasons = list(reasons)
    kinds, rest = _kind_of(text)
    if kinds and (found := _exact([r for r in reasons if r.kind in kinds], rest)):
        return found
    if found := _exact(reasons, text.strip()):
        return found
    return _within(reasons, text)


def suggest(reasons: Iterable[Reason], text: str) -> list[str]:
    """Words similar to a text, the closest first; for a sentence, words whose meanings share words with it."""
    reasons = list(reasons)
    wanted = _key(_kind_of(text)[1])
    words: dict[str, str] = {}
    for reason in reasons:
        for key in _keys(reason):
            words.setdefault(key, reason.word)
    near = difflib.get_close_matches(wanted, words, n=SUGGESTIONS_MAX, cutoff=0.6)
    near += [key for key in words if len(wanted) > 2 and wanted in re.split(r"[.:-]", key)]
    found = list(dict.fromkeys(words[key] for key in near)) or _alike(reasons, text)
    return found[:SUGGESTIONS_MAX]


def _alike(reasons: Sequence[Reason], sentence: str) -> list[str]:
    """Words of reasons that share at least two words with a sentence, those that share most first."""
    said = set(_WORD.findall(sentence.casefold()))
    shared = {
        reason.word: len(said & set(_WORD.findall(f"{reason.word} {reason.meaning}".casefold()))) for reason in reasons
    }
    return [word for word in sorted(shared, key=lambda word: -shared[word]) if shared[word] > 1]


def _kind_of(text: str) -> tuple[tuple[Kind, ...], str]:
    """The kinds that the first word names, and the rest; or no kinds, and the whole text."""
    if status := _STATUS.fullmatch(text.strip()):
        return _KINDS["http"], status[1]
    if code := _MQ_REASON.fullmatch(text.strip()):
        return _KINDS["ibm-mq"], code[1]
    first, _, rest = text.strip().partition(" ")
    kinds = _KINDS.get(first.casefold())
    if kinds is None or not rest:
        return (), text
    words = rest.split()
    while len(words) > 1 and words[0].casefold() in _FILLERS:
        del words[0]
    return kinds, " ".join(words)


def _key(text: str) -> str:
    """A word normalised for comparison."""
    return re.sub(r"[\s_-]+", "-", text.strip().rstrip(".:").casefold())


def _keys(reason: Reason) -> Iterable[str]:
    yield _key(reason.word)
    if reason.kind is Kind.AMQP:
        yield _key(reason.word.rpartition("amqp:")[2])
    if reason.title:
        yield _key(reason.title)


def _phrases(reason: Reason) -> Iterable[str]:
    """The names of a reason that have several words."""
    names = (reason.word.casefold(), reason.title.casefold())
    return (name for name in names if " " in name and _ANYTHING not in name)


def _number(text: str) -> int | None:
    """A decimal or hexadecimal number; one of eight digits may have its bytes swapped, as MQ's dumps on Intel do."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", text):
        number = int(text, 16)
        return number if number < _SWAPPED_MIN else int.from_bytes(number.to_bytes(4, "little"))
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text) else None


def _exact(reasons: Sequence[Reason], text: str) -> list[Reason]:
    text = text.strip()
    number = _number(text)
    if number is not None:
        hexadecimal = text[:2].lower() == "0x"
        kinds = _HEXADECIMAL if hexadecimal else tuple(Kind)
        return [r for r in reasons if number in (r.number, r.return_code) and r.kind in kinds]
    wanted = _key(text)
    found = [reason for reason in reasons if wanted in _keys(reason)]
    return found or [r for r in reasons if _ANYTHING in r.word and fnmatchcase(wanted, _key(r.word))]


def _within(reasons: Sequence[Reason], line: str) -> list[Reason]:
    """The reasons whose words a line contains."""
    parts = [part for part in _SPLIT.split(line) if part]
    tokens = {_key(part) for part in parts} | {_key(part.rpartition(":")[2]) for part in parts}
    text = f" {' '.join(line.casefold().split())} "
    marked: list[Reason] = []
    plain: list[Reason] = []
    for reason in reasons:
        if any(re.search(rf"\b{re.escape(phrase)}\b", text) for phrase in _phrases(reason)):
            marked.append(reason)
        elif " " not in reason.word and not tokens.isdisjoint(_keys(reason)):
            (marked if re.search(r"[.:-]", reason.word) else plain).append(reason)
    return marked or plain
