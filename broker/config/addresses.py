"""The sections [addresses.NAME] and [[address-settings]]: generated from the engine's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Optional

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from broker.config.section import Section
from broker.config.units import LARGEST, duration, size, word_of
from broker.engine.model.attributes import ATTRIBUTES, FIELDS
from broker.engine.model.message import RoutingType
from broker.engine.model.row import Described, Row, Unit, kebab
from broker.engine.model.settings import SETTINGS, DeliveryCountPersistence

#: The default of every setting, by field name: the engine's own.
DEFAULTS: Final[dict[str, object]] = {name: each.default for name, each in sorted(SETTINGS.items())}


#: Artemis's address settings that Bartleby does not accept, each with the reason.
REFUSED_SETTINGS: Final[dict[str, str]] = {
    "max-redelivery-records": "delivery counts are never forgotten, so there is nothing to set: remove it",
    "page-max-cache-size": "it has no effect here, nor in current versions of Artemis: remove it",
    "page-size-bytes": "paged messages stay in the journal, whose files have journal.segment-size: remove it",
    "prefetch-page-messages": "max-read-page-messages limits what is read back: remove it",
    "prefetch-page-bytes": "max-read-page-bytes limits what is read back: remove it",
    "queue-prefetch": "the window of a subscription is stomp-consumer-window-size of its acceptor: remove it",
    "redistribution-delay": "brokers do not redistribute messages to one another: remove it",
    "message-counter-history-day-limit": "the scraper of /metrics keeps the history: remove it",
    "default-consumer-window-size": "it is for the core protocol; other protocols use the acceptor's window: remove it",
    "auto-create-jms-queues": "an old name: give auto-create-queues and auto-create-addresses",
    "auto-create-jms-topics": "an old name: give auto-create-addresses",
    "auto-delete-jms-queues": "an old name: give auto-delete-queues",
    "auto-delete-jms-topics": "an old name: give auto-delete-addresses",
    "initial-queue-buffer-size": "queues have no buffer of a fixed size here: remove it",
    "disk-full-policy": "address-full-policy also applies to a full disk: remove it",
}


def _routing_type(value: object) -> object:
    if isinstance(value, str) and value in RoutingType.__members__:
        return RoutingType[value]
    raise ValueError('give "ANYCAST" or "MULTICAST"')


Routing = Annotated[RoutingType, BeforeValidator(_routing_type)]


def _other_than_zero(why: str) -> Callable[[int], int]:
    def check(value: int) -> int:
        if value == 0:
            raise ValueError(why)
        return value

    return check


_UNITS: Final = {Unit.MILLISECONDS: duration, Unit.BYTES: size}


def _annotation(setting: Described) -> object:
    """The pydantic type of a setting."""
    row = setting.row
    if setting.type is RoutingType:
        return Routing
    if issubclass(setting.type, StrEnum):
        return Annotated[setting.type, BeforeValidator(word_of(setting.type))]
    if setting.type is bool:
        return bool
    if setting.type is str:
        return str if row.chars_max < 0 else Annotated[str, Field(max_length=row.chars_max)]
    if setting.type is float:
        return Annotated[float, Field(ge=row.low, le=row.high, allow_inf_nan=False)]
    checks: list[object] = [Field(ge=row.low, le=LARGEST if row.high is None else row.high)]
    if row.unit in _UNITS:
        checks.insert(0, BeforeValidator(_UNITS[row.unit]))
    if row.zero:
        checks.append(AfterValidator(_other_than_zero(row.zero)))
    return Annotated[(int, *checks)]


def _section(name: str, base: type[Section], settings: Iterable[Described]) -> type[Section]:
    """A section with these settings added, all optional."""
    fields: dict[str, Any] = {
        each.name: (Optional[_annotation(each)], Field(default=None, description=each.row.why))  # noqa: UP045
        for each in settings
    }
    return create_model(name, __base__=base, **fields)


class _DeclaredQueue(Section):
    routing_type: Routing
    """ANYCAST: each message to one consumer; MULTICAST: the queue is a subscription and gets its own copy."""
    durable: bool = True
    """false: queue and messages do not survive a restart."""
    filter: str = ""
    """Only messages that match this selector enter the queue; empty: all."""


#: Older names of settings, by the settings that they stand for.
_OLDER_NAMES: Final = {
    "default_last_value_queue": Described(
        "last_value_queue", bool, None, Row("An old name of default-last-value-queue.")
    ),
    "delivery_count_persistence": Described(
        "persist_delivery_count_before_delivery",
        bool,
        None,
        Row('Artemis\'s name for delivery-count-persistence: true is "strict", false is "on-return".'),
    ),
}


def _with_older_names() -> Iterator[Described]:
    for name, setting in SETTINGS.items():
        yield setting
        if name in _OLDER_NAMES:
            yield _OLDER_NAMES[name]


if TYPE_CHECKING:  # their fields come from the tables
    _QueueWithAttributes = _DeclaredQueue
    _Settings = Section
else:
    _QueueWithAttributes = _section("_QueueWithAttributes", _DeclaredQueue, ATTRIBUTES.values())
    _Settings = _section("_Settings", Section, _with_older_names())


class Queue(_QueueWithAttributes):
    """A queue that exists from the start and is never deleted automatically."""

    def requested(self) -> dict[str, object]:
        """The attributes that are set, by the engine's field names."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


class AddressSection(Section):
    """An address that exists from the start and is never deleted automatically."""

    routing_types: Annotated[tuple[Routing, ...], Field(strict=False)] = ()
    """The address's routing types, besides those of the queues given with it."""
    queues: dict[str, Queue] = Field(default_factory=dict)

    @property
    def all_routing_types(self) -> frozenset[RoutingType]:
        """The address's own routing types and those of its queues."""
        return frozenset(self.routing_types) | {queue.routing_type for queue in self.queues.values()}


class AddressSetting(_Settings):
    """Settings for the addresses that `match` covers.  Unset ones are from less specific ones, `#` as shipped."""

    match: Annotated[str, Field(min_length=1)]
    """An address, address::queue, or a pattern: `*` is any one word, `#` at the end any number of words."""

    def given(self, name: str) -> object:
        """The value of a setting, by its name in the file; None if it is unset."""
        value: object = getattr(self, name.replace("-", "_"))
        return value

    def fields(self) -> dict[str, object]:
        """The settings given, by the engine's field names."""
        named = self.model_fields_set
        values = {name: value for name in SETTINGS if name in named and (value := self.given(name)) is not None}
        older = self.given("last-value-queue")
        if older is not None:
            values.setdefault("default_last_value_queue", older)
        strict = self.given("persist-delivery-count-before-delivery")
        if strict is not None:
            persistence = DeliveryCountPersistence.STRICT if strict else DeliveryCountPersistence.ON_RETURN
            values.setdefault("delivery_count_persistence", persistence)
        return values


assert {kebab(name) for name in SETTINGS}.isdisjoint(REFUSED_SETTINGS)
