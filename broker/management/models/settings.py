"""Attributes of queues and address settings as the API shows them, made from the engine's tables.

Rows added to `broker.engine.model.attributes` or `broker.engine.model.settings` appear here and in the OpenAPI document
automatically.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, create_model
from pydantic_core import PydanticCustomError

from broker.config.units import DURATION_UNITS, duration
from broker.engine.model.attributes import ATTRIBUTES, NUMBER_MAX, QueueAttributes
from broker.engine.model.message import RoutingType
from broker.engine.model.row import Described, Unit, kebab
from broker.engine.model.settings import SETTINGS, AddressSettings, as_mapping
from broker.management.models.base import Body, RoutingTypeName, Shown


def _described(row_of: Described) -> str:
    unit = row_of.row.unit
    return row_of.row.why if unit is Unit.NONE else f"{row_of.row.why}  In {unit.value}."


def _described_requested(row_of: Described) -> str:
    if row_of.row.unit is not Unit.MILLISECONDS:
        return _described(row_of)
    return f"{row_of.row.why}  In ms, or a text with a unit: {', '.join(DURATION_UNITS)}."


def _schema_of(row_of: Described) -> Callable[[dict[str, Any]], None]:
    """Edits the JSON schema of an attribute: an omitted one follows the settings or stays, so it has no default."""

    def change(schema: dict[str, Any]) -> None:
        schema.pop("default", None)
        if row_of.row.zero:
            schema["not"] = {"const": 0}
        if row_of.row.unit is Unit.MILLISECONDS:
            number = {name: schema.pop(name) for name in ("type", "minimum", "maximum")}
            schema["anyOf"] = [number, {"type": "string", "pattern": f"^[0-9]+({'|'.join(DURATION_UNITS)})$"}]

    return change


def _shown_type(row_of: Described) -> Any:
    if row_of.type is RoutingType:
        return RoutingTypeName
    if issubclass(row_of.type, StrEnum):
        return Literal[tuple(word.value for word in row_of.type)]
    nullable = row_of.default is None
    return row_of.type | None if nullable else row_of.type


def shown_model(name: str, table: Iterable[Described], doc: str) -> type[Any]:
    fields: dict[str, Any] = {
        each.name: (_shown_type(each), Field(alias=kebab(each.name), description=_described(each))) for each in table
    }
    return create_model(name, __base__=Shown, __doc__=doc, **fields)


def deciding(layers: Sequence[tuple[str, Mapping[str, object]]], field: str) -> str | None:
    """The most specific match that sets a field (`operators.setting_layers`); None: it has its default."""
    return next((match for match, fields in layers if fields.get(field) is not None), None)


def plain(value: object) -> bool | int | float | str | None:
    """A value of a setting as JSON has it."""
    if isinstance(value, RoutingType):
        return value.name
    if isinstance(value, StrEnum):
        return value.value
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def _other_than_zero(why: str) -> Any:
    def check(value: int) -> int:
        if value == 0:
            raise PydanticCustomError("zero", "must not be 0: {why}", {"why": why})
        return value

    return AfterValidator(check)


def _milliseconds(value: object) -> object:
    """Milliseconds of a number, or of a text with a unit as in the configuration."""
    try:
        return duration(value)
    except ValueError:
        units = '"500ms", "30s", "5min", "2h", "7d"'
        why = f"must be milliseconds as a whole number, or a text with a unit: {units}"
        raise PydanticCustomError("not-a-duration", "{why}", {"why": why}) from None


def _requested_type(row_of: Described) -> Any:
    row = row_of.row
    if row_of.type is str:
        return Annotated[str, Field(max_length=row.chars_max)]
    if row_of.type is not int:
        return row_of.type
    low, high = int(row.low or 0), NUMBER_MAX
    if row.unit is Unit.MILLISECONDS:
        return Annotated[int, Field(ge=low, le=high), BeforeValidator(_milliseconds)]
    if row.zero:
        return Annotated[int, Field(ge=low, le=high), _other_than_zero(row.zero)]
    return Annotated[int, Field(ge=low, le=high)]


def _requested_model(name: str, table: Iterable[Described], doc: str) -> type[Any]:
    fields: dict[str, Any] = {
        each.name: (
            _requested_type(each),
            Field(
                default=each.default,
                alias=kebab(each.name),
                description=_described_requested(each),
                json_schema_extra=_schema_of(each),
            ),
        )
        for each in table
    }
    return create_model(name, __base__=Body, __doc__=doc, **fields)


if TYPE_CHECKING:  # their fields come from the tables
    Attributes = Shown
    AskedAttributes = Body
    Settings = Shown
else:
    Attributes = shown_model("QueueAttributes", ATTRIBUTES.values(), "The attributes of a queue.")
    AskedAttributes = _requested_model(
        "AskedAttributes", ATTRIBUTES.values(), "Attributes to set on a queue; the others follow its address settings."
    )
    Settings = shown_model("AddressSettings", SETTINGS.values(), "All settings that apply to an address.")


def requested(attributes: BaseModel | None) -> dict[str, object]:
    """The attributes set in a body, by the engine's field names."""
    return {} if attributes is None else {name: getattr(attributes, name) for name in attributes.model_fields_set}


def attributes_of(attributes: QueueAttributes) -> Attributes:
    """The attributes of a queue."""
    return Attributes(**{kebab(name): getattr(attributes, name) for name in ATTRIBUTES})


def settings_of(settings: AddressSettings) -> Settings:
    """All settings of an address."""
    return Settings(**{kebab(name): plain(value) for name, value in as_mapping(settings).items()})


class EffectiveSetting(Shown):
    """A setting that applies to an address."""

    value: bool | int | float | str | None
    match: str | None = Field(description="The match that sets it; null: the default.")


class EffectiveSettings(Shown):
    """The settings that apply to an address, and where each comes from."""

    name: str
    matches: list[str] = Field(description="The matches that apply to the address, the most specific first.")
    settings: dict[str, EffectiveSetting]


#: The settings of an address that are shown with a queue.
OF_QUEUES: Final = (
    "dead_letter_address",
    "expiry_address",
    "max_delivery_attempts",
    "redelivery_delay",
    "max_size_bytes",
    "max_size_messages",
    "address_full_policy",
)
