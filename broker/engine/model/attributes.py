"""The attributes of a queue, as in ActiveMQ Artemis.

A queue gets them when it is created: those that the configuration or the client asks for, and for the rest the
`default-*` settings of its address.  From then on they are stored in the queue's definition; `alter` changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from broker.engine.model.errors import InvalidAttribute
from broker.engine.model.row import Described, Unit, kebab, row, rows

#: The key property of a last-value queue that names no other.
LAST_VALUE_KEY_DEFAULT: Final = "_AMQ_LVQ_NAME"

#: The most characters of a property's name in an attribute: names in use stay below 100.
PROPERTY_NAME_CHARS_MAX: Final = 255

#: The largest number in an attribute: messages of a ring, milliseconds of a delay.
NUMBER_MAX: Final = (1 << 31) - 1

RING_OF_NOTHING: Final = "a ring of 0 would lose every message: give at least 1, or -1 for no limit"


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """A queue's attributes; `QueueAttributes()` is a plain queue's.  -1: no limit, or off."""

    last_value: bool = row(
        False, "true: a message replaces a waiting one with the same last-value-key, by default _AMQ_LVQ_NAME."
    )
    last_value_key: str = row(
        "",
        "Messages with the same value of this property replace each other; setting it makes a last-value queue.",
        chars_max=PROPERTY_NAME_CHARS_MAX,
    )
    non_destructive: bool = row(False, "true: each consumer gets every message, and consuming removes none.")
    exclusive: bool = row(False, "true: one consumer gets everything; the others wait for it to leave.")
    max_consumers: int = row(-1, "Consumers at a time; 0: none, -1: any number.", low=-1, high=NUMBER_MAX)
    purge_on_no_consumers: bool = row(
        False, "true: the queue takes messages only while it has consumers; the last one to leave empties it."
    )
    ring_size: int = row(
        -1,
        "Messages that may wait; beyond that each new one evicts the oldest; -1: no limit.",
        low=-1,
        high=NUMBER_MAX,
        zero=RING_OF_NOTHING,
    )
    consumers_before_dispatch: int = row(
        0, "Deliveries begin once there are this many consumers.", low=0, high=NUMBER_MAX
    )
    delay_before_dispatch: int = row(
        -1,
        "Deliveries begin this long after the first consumer, even if there are too few; -1: they do not.",
        unit=Unit.MILLISECONDS,
        low=-1,
    )
    group_rebalance: bool = row(False, "true: each new consumer makes the broker assign all message groups again.")
    group_rebalance_pause_dispatch: bool = row(False, "true: reassign groups only once nothing is in delivery.")
    group_buckets: int = row(
        -1, "Hash message groups into this many buckets; 0: ignore groups, -1: do not hash.", low=-1, high=NUMBER_MAX
    )
    group_first_key: str = row(
        "",
        "The property set to true on the first message of a group that a consumer gets.",
        chars_max=PROPERTY_NAME_CHARS_MAX,
    )
    enabled: bool = row(
        True, "false: no new messages enter, but those there can be consumed; unset: as an operator left it."
    )

    @property
    def key(self) -> str:
        """The property by which messages replace each other; empty: they do not."""
        return self.last_value_key or (LAST_VALUE_KEY_DEFAULT if self.last_value else "")

    @property
    def groups(self) -> bool:
        """Whether messages of a group go to one consumer; not where one consumer, or each, gets everything anyway."""
        return self.group_buckets != 0 and not self.exclusive and not self.non_destructive

    @property
    def rules(self) -> bool:
        """Whether a queue with these attributes needs rules that a plain queue does not have (`QueueRules`)."""
        return bool(
            self.key
            or self.ring_size >= 0
            or self.purge_on_no_consumers
            or self.exclusive
            or self.consumers_before_dispatch > 0
            or self.group_rebalance
            or self.group_first_key
        )


PLAIN: Final = QueueAttributes()

#: Requested attributes by field name; the settings decide the others.
RequestedAttributes = Mapping[str, object]
NO_ATTRIBUTES: Final[RequestedAttributes] = {}

#: The attributes by field name.
ATTRIBUTES: Final = rows(QueueAttributes)

FIELDS: Final = tuple(ATTRIBUTES)

#: The address setting that is the default of each attribute, by field name; `enabled` has none.
SETTING_OF: Final = {name: f"default_{name}" for name in FIELDS if name != "enabled"} | {
    "last_value": "default_last_value_queue",
    "exclusive": "default_exclusive_queue",
}

_BY_NAME: Final = {kebab(name): name for name in FIELDS}


def _read(attribute: Described, text: str) -> object:
    """The value in a text.  Raises ValueError, whose text says what is expected."""
    if attribute.type is bool:
        if text not in ("true", "false"):
            raise ValueError("true or false")
        return text == "true"
    row = attribute.row
    if attribute.type is str:
        if len(text) > row.chars_max:
            raise ValueError(f"a property's name of at most {row.chars_max} characters")
        return text
    digits = text.removeprefix("-")
    number = int(text) if len(digits) <= 10 and digits.isascii() and digits.isdigit() else None
    low = row.low or 0
    if number is None or not low <= number <= NUMBER_MAX or (row.zero and not number):
        number_of = "a number of milliseconds" if row.unit is Unit.MILLISECONDS else "a number"
        raise ValueError(f"{number_of} from {low} to {NUMBER_MAX}" + (" other than 0" if row.zero else ""))
    return number


def parse(name: str, text: str) -> dict[str, object]:
    """One attribute from text, by its field's name.  Raises InvalidAttribute."""
    field = _BY_NAME.get(name)
    if field is None:
        known = ", ".join(sorted(_BY_NAME))
        raise InvalidAttribute(f"queues have no attribute {name[:100]!r}; they have {known}")
    try:
        return {field: _read(ATTRIBUTES[field], text)}
    except ValueError as expected:
        raise InvalidAttribute(f"{name} must be {expected}, not {text[:100]!r}") from None


def with_requested(attributes: QueueAttributes, asked: RequestedAttributes) -> QueueAttributes:
    """The attributes, with those that were asked for replaced."""
    return replace(attributes, **asked) if asked else attributes  # type: ignore[arg-type]


def as_json(attributes: QueueAttributes) -> dict[str, object]:
    """The attributes that differ from a plain queue's, by Artemis's names, as in a definition."""
    return {kebab(name): value for name in FIELDS if (value := getattr(attributes, name)) != getattr(PLAIN, name)}


def from_json(values: Mapping[str, object]) -> QueueAttributes:
    """The inverse of `as_json`; names unknown to this version are ignored."""
    known = {name: values[kebab(name)] for name in FIELDS if kebab(name) in values}
    return replace(PLAIN, **known)  # type: ignore[arg-type]


def differences(attributes: QueueAttributes, asked: RequestedAttributes) -> list[str]:
    """The differences between attributes and those asked for, in words."""
    return [
        f"{kebab(name)} is {_format_value(getattr(attributes, name))}, not {_format_value(value)}"
        for name, value in asked.items()
        if getattr(attributes, name) != value
    ]


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
