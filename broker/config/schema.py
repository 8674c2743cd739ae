"""Navigates the models: the keys at a place in the configuration, and their types.

A place is a path of keys as in the file: ("acceptors", "stomp", "port"), ("address-settings", 0, "match").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from broker.config.model import Config
from broker.config.section import Section
from broker.engine.model.row import kebab

Path = tuple[str | int, ...]


def arms(annotation: object) -> Iterator[object]:
    """The plain types of an annotation, without Annotated, Optional and other unions."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from arms(get_args(annotation)[0])
    elif origin is Union or origin is UnionType:
        for arm in get_args(annotation):
            yield from arms(arm)
    else:
        yield annotation


def sections(annotation: object) -> list[type[Section]]:
    """The models among the arms."""
    return [arm for arm in arms(annotation) if isinstance(arm, type) and issubclass(arm, Section)]


def model_fields(annotation: object) -> dict[str, FieldInfo]:
    """The fields of the models of an annotation, by key."""
    return {kebab(name): field for model in sections(annotation) for name, field in model.model_fields.items()}


def child(annotation: object, key: str | int) -> object | None:
    """The type of the value under a key, or None if there is no such key."""
    field = model_fields(annotation).get(str(key))
    if field is not None:
        return field.annotation
    for arm in arms(annotation):
        if get_origin(arm) is dict:
            return _argument(arm, 1)
        if get_origin(arm) is tuple and isinstance(key, int):
            return _argument(arm, 0)
    return None


def _argument(annotation: object, index: int) -> object:
    argument: object = get_args(annotation)[index]
    return argument


def annotation_at(path: Sequence[str | int]) -> object | None:
    """The type of a place, or None if there is no such place."""
    annotation: object | None = Config
    for key in path:
        annotation = child(annotation, key)
        if annotation is None:
            return None
    return annotation


def is_table(annotation: object) -> bool:
    """Whether a place holds further keys rather than one value."""
    return bool(sections(annotation)) or any(get_origin(arm) is dict for arm in arms(annotation))


def dotted(path: Sequence[str | int], raw: object = None) -> str:
    """A path as text; an entry of a list is named by its match or name, as in `address-settings["#"].expiry-delay`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            entries = raw if isinstance(raw, list | tuple) else ()
            entry = entries[key] if key < len(entries) else None
            match = entry.get("match", entry.get("name")) if isinstance(entry, dict) else None
            text += f'["{match}"]' if isinstance(match, str) else f"[{key}]"
            raw = entry
        else:
            text += f".{key}" if text else key
            raw = raw.get(key) if isinstance(raw, dict) else None
    return text
