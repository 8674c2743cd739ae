"""The names of addresses and queues: which are allowed, how they are split into words, what a wildcard is.

| name            | rule                                                                                         |
|-----------------|----------------------------------------------------------------------------------------------|
| `a.b.c`         | words between delimiters; an empty word is a word                                             |
| `a.*`, `a.#`    | wildcards: a queue may be on such an address, nothing may be sent to it                        |
| `a\\.b`, `\\*`    | an escaped character is part of its word and means itself; the name keeps its backslash        |
| `address::queue`| FQQN, one queue of one address; neither part may be empty or contain another `::`              |
| `temporary-UUID`| a temporary destination: created by the broker for one owner, never again after it is deleted    |

Names are case-sensitive. Spaces and `& , ? >` are allowed although other brokers advise against them. (Artemis
semantics 1.3, 2.4, 5.3.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from broker.engine.model.errors import InvalidName, NotFound

FQQN_SEPARATOR: Final = "::"
#: The address, and the queue on it, where the broker stores retained messages.
RETAINED: Final = "$sys.mqtt.retained"

#: The address that stands for the broker as a whole in permissions, as in Artemis.
WHOLE_BROKER: Final = "activemq.management"

#: The prefix of the names of links' stored sessions: no client may choose such a name.
LINK_SESSIONS: Final = "$link/"

#: The prefix of the names of shared subscriptions' queues; no other queue gets such a name, but journals of earlier
#: versions may have some.
SHARED_PREFIX: Final = "$share."

#: The first words in the names of the broker's internal resources, as in Artemis.
_INTERNAL: Final = ("$", "artemis", "internal", "")

#: Characters of the broker's own names: as wildcards, they would turn those names into patterns.  Not `$`, with which
#: they begin and which the AMQ Broker manual uses as a wildcard: `is_wildcard` exempts the broker's names.
_OWN: Final = re.compile(r"[^\W_]|[-.:]").fullmatch

#: The prefix of the names of temporary destinations; a UUID follows, so that no other name is like them.
TEMPORARY: Final = "temporary-"
_TEMPORARY: Final = re.compile(TEMPORARY + "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch

ESCAPE: Final = "\\"

NAME_BYTES_MAX: Final = 1024
"""Bytes of UTF-8 in a name. Names in use stay below 255. The journal has a u16 for the length, and a filter on a name
must fit in a filter's 4096 characters even if every character is a quote to be doubled. Caches hold thousands of
names."""


@dataclass(frozen=True)
class WildcardSyntax:
    """The special characters of hierarchical names, configured in `wildcard-addresses`. Raises ValueError.

    routing: whether a queue on a wildcard address gets the messages of matching addresses; if not, such a name is like
    any other. Matches of settings and the like have wildcards all the same.
    """

    delimiter: str = "."
    any_words: str = "#"
    single_word: str = "*"
    routing: bool = True

    def __post_init__(self) -> None:
        characters = (self.delimiter, self.any_words, self.single_word, ESCAPE)
        if any(len(character) != 1 for character in characters):
            raise ValueError("delimiter, any-words and single-word are one character each")
        if len(set(characters)) != len(characters):
            raise ValueError(f"delimiter, any-words and single-word must differ, from each other and from {ESCAPE}")
        if _OWN(self.any_words) or _OWN(self.single_word):
            raise ValueError(
                "any-words and single-word are characters of the broker's own names: letters, digits, - . :"
            )

    def words(self, name: str) -> list[str]:
        """The name split at its delimiters, but not at escaped ones; escapes stay in the words."""
        if ESCAPE not in name:
            return name.split(self.delimiter)
        words = [""]
        for character in self.characters(name):
            if character == self.delimiter:
                words.append("")
            else:
                words[-1] += character
        return words

    def characters(self, name: str) -> list[str]:
        """The name's characters; a backslash and the next one count as one, and so never equal a wildcard."""
        pieces: list[str] = []
        escaped = False
        for character in name:
            if escaped:
                pieces[-1] += character
            else:
                pieces.append(character)
            escaped = character == ESCAPE and not escaped
        return pieces

    def is_wildcard(self, name: str) -> bool:
        """Whether the name has an unescaped wildcard character anywhere, as in `foo*`."""
        if self.any_words not in name and self.single_word not in name:
            return False
        if name[0] == "$" and (name == RETAINED or name.startswith(internal_prefix(self))):
            return False
        if ESCAPE not in name:
            return True
        characters = self.characters(name)
        return self.any_words in characters or self.single_word in characters

    def routes(self, name: str) -> bool:
        """Whether a queue on this address gets messages sent to other addresses."""
        return self.routing and self.is_wildcard(name)


DEFAULT_SYNTAX: Final = WildcardSyntax()


def split_fqqn(name: str) -> tuple[str, str | None]:
    """The parts of `address::queue`, or the name and None. Raises InvalidName if a part is missing or one too many."""
    address, separator, queue = name.partition(FQQN_SEPARATOR)
    if not separator:
        return name, None
    if not address:
        raise InvalidName(f"no address before {FQQN_SEPARATOR} in {format_name(name)}")
    if not queue:
        raise InvalidName(f"no queue name after {FQQN_SEPARATOR} in {format_name(name)}")
    if FQQN_SEPARATOR in queue:
        raise InvalidName(f"more than one {FQQN_SEPARATOR} in {format_name(name)}")
    return address, queue


def is_temporary(name: str) -> bool:
    """Whether this is the name of a temporary destination, as the broker makes them."""
    return name.startswith(TEMPORARY) and _TEMPORARY(name) is not None


def check_not_temporary(name: str) -> None:
    """Refuse to create a temporary destination by name: it was deleted. Raises NotFound."""
    if is_temporary(name):
        raise NotFound(f"the temporary destination {name} is gone")


def check_name(name: str) -> None:
    """Check the name of an address. Raises InvalidName."""
    _check("address", name)


def check_queue_name(name: str) -> None:
    """Check the name of a queue. Raises InvalidName."""
    _check("queue", name)


def digest_of(pattern: str) -> str:
    """What stands for a pattern that is too long for a name; no pattern is such a text, as the `#` begins a word."""
    return f"#{sha256(pattern.encode()).hexdigest()}"


def check_not_shared(queue: str) -> None:
    """Refuse the name of a queue of a shared subscription to all others: a restart deletes those without sessions.

    Raises InvalidName.
    """
    if queue.startswith(SHARED_PREFIX):
        raise InvalidName(
            f"{format_name(queue)}: a name that begins with {SHARED_PREFIX} is that of a shared subscription"
        )


def internal_prefix(syntax: WildcardSyntax) -> str:
    """The prefix in the names of the broker's internal resources, as in Artemis."""
    return syntax.delimiter.join(_INTERNAL)


def check_public(name: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
    """Refuse the broker's own names to clients and operators. Raises InvalidName."""
    if name.startswith(internal_prefix(syntax)):
        raise InvalidName(f"{format_name(name)} is the broker's own: it holds the messages of a retroactive address")
    if name == RETAINED:
        raise InvalidName(f"{name} is the broker's own: it holds the retained messages")


def check_sendable(address: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
    """Check an address that a message is sent to, which may have no wildcards. Raises InvalidName."""
    check_name(address)
    check_public(address, syntax)
    if syntax.routes(address):
        raise InvalidName(
            f"address {format_name(address)} has a wildcard ({syntax.single_word} or {syntax.any_words}): it can be"
            " consumed from, not sent to; a wildcard character that is part of a name is written"
            f" {ESCAPE}{syntax.single_word}"
        )


def check_target(name: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
    """Check an address, queue or FQQN that messages are moved to.  Raises InvalidName."""
    address, queue = split_fqqn(name)
    check_sendable(address, syntax)
    if queue is not None:
        check_queue_name(queue)


def _check(kind: str, name: str) -> None:
    if not name:
        raise InvalidName(f"the {kind} name is empty")
    if FQQN_SEPARATOR in name:
        raise InvalidName(
            f"the {kind} name {format_name(name)} contains {FQQN_SEPARATOR}, which separates address and queue"
        )
    if _size(name) > NAME_BYTES_MAX:
        raise InvalidName(f"the {kind} name {format_name(name)} is longer than {NAME_BYTES_MAX} bytes")


def _size(name: str) -> int:
    if name.isascii():
        return len(name)
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"the name {format_name(name)} is not valid Unicode") from None


_SHOWN: Final = 75  # characters of a name in an error message


def format_name(name: str) -> str:
    """A name, or another text that a client chose, as an error message shows it."""
    return repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")


#: The most characters of a text of a client that are remembered as they are.
REMEMBERED_CHARS_MAX: Final = 64


def remembered(text: str) -> str:
    """What is remembered to recognise a text whose length clients choose: of a long one its SHA-256.

    That is one character longer than any text that is remembered as it is, so it is like none of them.
    """
    return text if len(text) <= REMEMBERED_CHARS_MAX else "#" + sha256(text.encode(errors="surrogatepass")).hexdigest()
