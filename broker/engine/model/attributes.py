"""What makes a queue other than plain: its attributes, as in ActiveMQ Artemis.

A queue gets them when it is made: what the configuration or the client asks for, and for the rest the `default-*`
settings of its address.  They belong to the queue from then on and stand in its definition; `alter` changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from broker.engine.model.errors import InvalidAttribute

#: The property that is the key of a last-value queue unless another is named.
LAST_VALUE_KEY_DEFAULT: Final = "_AMQ_LVQ_NAME"

#: Characters of a property's name in an attribute: names in use stay below 100.
PROPERTY_NAME_CHARS_MAX: Final = 255

#: The largest number in an attribute: a ring of so many messages, a delay of so many ms.
NUMBER_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """The kind of a queue; `QueueAttributes()` is a plain one.  -1: no limit, or off."""

    last_value: bool = False
    last_value_key: str = ""
    non_destructive: bool = False
    exclusive: bool = False
    max_consumers: int = -1
    purge_on_no_consumers: bool = False
    ring_size: int = -1
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1
    group_rebalance: bool = False
    group_rebalance_pause_dispatch: bool = False
    group_buckets: int = -1
    group_first_key: str = ""
    enabled: bool = True

    @property
    def key(self) -> str:
        """The property by which messages replace each other; empty: they do not."""
        return self.last_value_key or (LAST_VALUE_KEY_DEFAULT if self.last_value else "")

    @property
    def groups(self) -> bool:
        """Whether messages of a group go to one consumer; pointless where one consumer, or each, gets everything."""
        return self.group_buckets != 0 and not self.exclusive and not self.non_destructive


PLAIN: Final = QueueAttributes()

#: Attributes by field name that somebody asked for; those that are absent are left to the settings.
Asked = Mapping[str, object]
NOTHING_ASKED: Final[Asked] = {}


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _number(low: int, *, but: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text.removeprefix("-")
        number = int(text) if len(digits) <= 10 and digits.isascii() and digits.isdigit() else low - 1
        if not low <= number <= NUMBER_MAX or number == but:
            raise ValueError(f"a number from {low} to {NUMBER_MAX}" + ("" if but is None else f" other than {but}"))
        return number

    return parse


def _property_name(text: str) -> str:
    if len(text) > PROPERTY_NAME_CHARS_MAX:
        raise ValueError(f"a property's name of at most {PROPERTY_NAME_CHARS_MAX} characters")
    return text


#: How the text of each attribute is read, by its name in Artemis.  The parsers raise ValueError with what is expected.
_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "last-value": _boolean,
    "last-value-key": _property_name,
    "non-destructive": _boolean,
    "exclusive": _boolean,
    "max-consumers": _number(-1),
    "purge-on-no-consumers": _boolean,
    "ring-size": _number(-1, but=0),
    "consumers-before-dispatch": _number(0),
    "delay-before-dispatch": _number(-1),
    "group-rebalance": _boolean,
    "group-rebalance-pause-dispatch": _boolean,
    "group-buckets": _number(-1),
    "group-first-key": _property_name,
    "enabled": _boolean,
}

FIELDS: Final = tuple(field.name for field in fields(QueueAttributes))


def dashed(field: str) -> str:
    """The name of a field outside: ring_size is ring-size."""
    return field.replace("_", "-")


assert set(map(dashed, FIELDS)) == set(_PARSERS)


def is_attribute(name: str) -> bool:
    """Whether an attribute has this name."""
    return name in _PARSERS


def parse(name: str, text: str) -> dict[str, object]:
    """One attribute from text, by its field's name.  Raises InvalidAttribute."""
    parser = _PARSERS.get(name)
    if parser is None:
        known = ", ".join(sorted(_PARSERS))
        raise InvalidAttribute(f"queues have no attribute {name[:100]!r}; they have {known}")
    try:
        return {name.replace("-", "_"): parser(text)}
    except ValueError as expected:
        raise InvalidAttribute(f"{name} is {expected}, not {text[:100]!r}") from None


def with_asked(attributes: QueueAttributes, asked: Asked) -> QueueAttributes:
    """Attributes with those replaced that were asked for."""
    return replace(attributes, **asked) if asked else attributes  # type: ignore[arg-type]


def as_json(attributes: QueueAttributes) -> dict[str, object]:
    """What differs from a plain queue, by Artemis's names: how a definition says it."""
    return {dashed(name): value for name in FIELDS if (value := getattr(attributes, name)) != getattr(PLAIN, name)}


def from_json(values: Mapping[str, object]) -> QueueAttributes:
    """The inverse of `as_json`; names that this version does not know say nothing to it."""
    known = {name: values[dashed(name)] for name in FIELDS if dashed(name) in values}
    return replace(PLAIN, **known)  # type: ignore[arg-type]


def differences(attributes: QueueAttributes, asked: Asked) -> list[str]:
    """Where attributes are other than what was asked for, in words."""
    return [
        f"{dashed(name)} is {_shown(getattr(attributes, name))} and not {_shown(value)}"
        for name, value in asked.items()
        if getattr(attributes, name) != value
    ]


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
