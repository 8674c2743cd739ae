r"""Topic names and topic filters: their rules (MQTT 5.0 section 4.7, 4.8.2), and the addresses that they map to.

| MQTT                    | address                  |                                                                |
|-------------------------|--------------------------|----------------------------------------------------------------|
| `a/b`                   | `a.b`                    | levels are words                                               |
| `/a`, `a//b`, `/`       | `.a`, `a..b`, `.`        | an empty level is an empty word                                |
| `a/+/b`, `a/#`          | `a.*.b`, `a.#`           | `#` stands for no word too, in both                            |
| `a.b/c`, `a*`, `a\b`    | `a\.b.c`, `a\*`, `a\\b`  | characters that are special in addresses are escaped           |
| `a::b`                  | `a:\:b`                  | two colons would separate an address from a queue              |

(Artemis semantics 5.3.)  Different topics have different addresses, and a topic's address maps back to it:
`to_topic(to_address(topic)) == topic`.  An address created by another protocol may have no topic: `a+b` would be a
filter.  The special characters of addresses are configurable and passed in; with `:` as the delimiter, topics with
empty levels would have no addresses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.errors import MqttError, format_value, malformed, violation
from protocols.mqtt.limits import Limits

SEPARATOR: Final = "/"
SINGLE_LEVEL: Final = "+"
MULTI_LEVEL: Final = "#"
SHARE_PREFIX: Final = "$share/"

_ESCAPE: Final = "\\"
_WILDCARD: Final = re.compile("[+#]").search


def check_topic_name(topic: str, limits: Limits) -> None:
    """Check the topic name of a message.  Raises MqttError.

    At least one character [MQTT-4.7.3-1], no wildcards [MQTT-3.3.2-2], [MQTT-4.7.0-1].
    """
    if not topic:
        raise malformed("a topic name has at least one character", "MQTT-4.7.3-1")
    if _WILDCARD(topic):
        raise malformed(f"the topic name {format_value(topic)} has a wildcard (+ or #)", "MQTT-3.3.2-2")
    _check_size("topic name", topic, limits, ReasonCode.TOPIC_NAME_INVALID)


def check_will_topic(topic: str, limits: Limits) -> None:
    """Check the topic name of a will.  Raises MqttError, without the name: in a CONNECT it may be a password."""
    try:
        check_topic_name(topic, limits)
    except MqttError as error:
        sentence = f"CONNECT: the will topic, of {len(topic)} characters, is no topic name, or is too long"
        raise MqttError(error.reason, sentence, error.rule) from None


def check_topic_filter(text: str, limits: Limits) -> None:
    """Check a topic filter without its share.  Raises MqttError.

    At least one character [MQTT-4.7.3-1], `#` alone in the last level [MQTT-4.7.1-1], `+` alone in its level
    [MQTT-4.7.1-2].
    """
    if not text:
        raise malformed("a topic filter has at least one character", "MQTT-4.7.3-1")
    _check_size("topic filter", text, limits, ReasonCode.TOPIC_FILTER_INVALID)
    levels = text.split(SEPARATOR)
    for level in levels:
        if SINGLE_LEVEL in level and level != SINGLE_LEVEL:
            raise malformed(f"the topic filter {format_value(text)} has + beside other characters", "MQTT-4.7.1-2")
        if MULTI_LEVEL in level and level != MULTI_LEVEL:
            raise malformed(f"the topic filter {format_value(text)} has # beside other characters", "MQTT-4.7.1-1")
    if MULTI_LEVEL in levels[:-1]:
        raise malformed(f"the topic filter {format_value(text)} goes on after #", "MQTT-4.7.1-1")


def _check_size(what: str, text: str, limits: Limits, reason: ReasonCode) -> None:
    most = limits.topic_bytes_max
    if len(text) > most or (not text.isascii() and len(text.encode()) > most):
        raise MqttError(reason, f"the {what} {format_value(text)} is longer than {most} bytes")
    levels = text.count(SEPARATOR) + 1
    if levels > limits.topic_levels_max:
        raise MqttError(
            reason,
            f"the {what} {format_value(text)} has {levels} levels, at most {limits.topic_levels_max} are allowed",
        )


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A topic filter in its parts: `$share/{share}/{pattern}`, or the pattern alone."""

    text: str
    pattern: str
    share: str | None = None

    @property
    def wildcard(self) -> bool:
        """Whether it may match several topics."""
        return _WILDCARD(self.pattern) is not None

    def matches(self, topic: str) -> bool:
        """Whether a topic name matches the pattern (4.7.1, 4.7.2)."""
        levels = topic.split(SEPARATOR)
        wanted = self.pattern.split(SEPARATOR)
        if topic[:1] == "$" and wanted[0] in (SINGLE_LEVEL, MULTI_LEVEL):
            return False  # [MQTT-4.7.2-1]
        for at, level in enumerate(wanted):
            if level == MULTI_LEVEL:
                return True  # the parent level too
            if at == len(levels):
                return False
            if level not in (SINGLE_LEVEL, levels[at]):
                return False
        return len(levels) == len(wanted)


def parse_topic_filter(text: str, limits: Limits) -> TopicFilter:
    """Parse a topic filter.  Raises MqttError.

    A share name has at least one character [MQTT-4.8.2-1] and no `/`, `+` or `#`; the `/` that ends it is followed by a
    topic filter [MQTT-4.8.2-2].
    """
    if not text.startswith(SHARE_PREFIX):
        check_topic_filter(text, limits)
        return TopicFilter(text, text)
    share, separator, pattern = text[len(SHARE_PREFIX) :].partition(SEPARATOR)
    if not share:
        raise malformed(f"the shared subscription {format_value(text)} lacks a share name", "MQTT-4.8.2-1")
    if _WILDCARD(share):
        raise malformed(f"the share name in {format_value(text)} has a wildcard (+ or #)", "MQTT-4.8.2-2")
    if not separator or not pattern:
        raise malformed(f"the shared subscription {format_value(text)} lacks a topic filter", "MQTT-4.8.2-2")
    _check_size("topic filter", text, limits, ReasonCode.TOPIC_FILTER_INVALID)
    check_topic_filter(pattern, limits)
    return TopicFilter(text, pattern, share)


def prefixed(prefix: str, pattern: str) -> str:
    """The filter for topics that begin with a prefix, followed by a match of `pattern`."""
    if prefix and pattern == MULTI_LEVEL:  # `a/#` matches `a`, which does not begin with `a/`
        pattern = f"{SINGLE_LEVEL}{SEPARATOR}{MULTI_LEVEL}"
    return prefix + pattern


def check_response_topic(topic: str, limits: Limits) -> None:
    """Check a response topic, which must be a topic name [MQTT-3.3.2-14].  Raises MqttError."""
    if _WILDCARD(topic):
        raise violation(f"the response topic {format_value(topic)} has a wildcard (+ or #)", "MQTT-3.3.2-14")
    check_topic_name(topic, limits)


class AddressSyntax:
    """The special characters of addresses, and the mapping of topics to addresses and back."""

    __slots__ = ("_any_words", "_delimiter", "_escapes", "_single_word", "_special", "_written")

    def __init__(self, delimiter: str = ".", any_words: str = "#", single_word: str = "*") -> None:
        self._delimiter = delimiter
        self._any_words = any_words
        self._single_word = single_word
        self._escapes = str.maketrans({c: _ESCAPE + c for c in (delimiter, any_words, single_word, _ESCAPE)})
        self._special = re.compile("[" + re.escape(delimiter + any_words + single_word + _ESCAPE) + "]|::").search
        self._written = re.compile(rf"\\(.)|{re.escape(delimiter)}", re.DOTALL)

    def to_address(self, topic: str) -> str:
        """The address of a topic name."""
        if self._special(topic):
            return self._delimiter.join([self._escape(level) for level in topic.split(SEPARATOR)])
        return topic.replace(SEPARATOR, self._delimiter)

    def to_pattern(self, pattern: str) -> str:
        """The wildcard address of a topic filter's pattern."""
        wildcards = {SINGLE_LEVEL: self._single_word, MULTI_LEVEL: self._any_words}
        return self._delimiter.join([wildcards.get(level) or self._escape(level) for level in pattern.split(SEPARATOR)])

    def to_topic(self, address: str) -> str | None:
        """The topic name of an address; None if there is no such topic in MQTT."""
        if not address or "\0" in address or _WILDCARD(address):
            return None
        if _ESCAPE not in address:
            return address.replace(self._delimiter, SEPARATOR)
        return self._written.sub(lambda match: match[1] or SEPARATOR, address)

    def _escape(self, level: str) -> str:
        escaped = level.translate(self._escapes)
        while "::" in escaped:
            escaped = escaped.replace("::", ":\\:")
        return escaped
