"""Turns pydantic's errors into problems that name the fix."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pydantic_core import ErrorDetails

from broker.config.acceptors import PROTOCOLS_NOT_YET
from broker.config.addresses import REFUSED_SETTINGS
from broker.config.problems import Problem
from broker.config.schema import Path, annotation_at, dotted, is_table, model_fields
from broker.config.security import REFUSED_PERMISSIONS

SHOWN_CHARS_MAX: Final = 75
"""Characters of a value in a problem: enough to recognise it."""

SourceOf = Callable[[str], str]

# The fix for each type of error that the models can raise; value errors have their own.
_FIXES: Final = {
    "bool_type": "give true or false",
    "dict_type": "give a table",
    "finite_number": "give a finite number",
    "float_type": "give a number",
    "greater_than_equal": "give {ge} or more",
    "int_type": "give an integer",
    "less_than_equal": "give {le} or less",
    "literal_error": "give {expected}",
    "missing": "this key is required: add it",
    "model_attributes_type": "give a table",
    "model_type": "give a table",
    "path_type": "give a path, in quotes",
    "string_too_long": "give at most {max_length} characters",
    "string_too_short": "give a text that is not empty",
    "string_type": "give a text, in quotes",
    "too_short": "give a text that is not empty",
    "tuple_type": "give a list",
    "union_tag_not_found": 'this acceptor needs its protocol: add protocol = "stomp", "amqp", "mqtt" or "http"',
}


def place(error: ErrorDetails) -> Path:
    """The place of an error; pydantic puts the protocol between an acceptor's name and its keys."""
    path = error["loc"]
    if path[0] == "acceptors" and len(path) > 2:
        return path[:2] + path[3:]
    return path


def format_value(value: object) -> str:
    """A value as written in the file, cut to SHOWN_CHARS_MAX; tables are not shown."""
    if value is None or isinstance(value, dict | list | tuple):
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."


#: By section, Artemis's settings that are refused with their own reason.
_REFUSED: Final = {"address-settings": REFUSED_SETTINGS, "security-settings": REFUSED_PERMISSIONS}


def problem(error: ErrorDetails, raw: Mapping[str, object], source_of: SourceOf) -> Problem:
    """The problem for an error."""
    path = place(error)
    if error["type"] == "union_tag_invalid":
        path = (*path, "protocol")
    key = dotted(path, raw)
    # A wrong value of a user may be a misplaced password.
    hidden = path[0] == "users" or error["type"] in ("missing", "union_tag_not_found")
    value = "" if hidden else format_value(value_at(raw, path))
    return Problem(source_of(key), key, value, _fix(error, path))


def unknown(path: Path) -> str:
    """The fix for an unknown key: why it is refused, or a key with a similar spelling."""
    *parent, last = path
    if path[0] == "users":
        return "users are in their own file, with hashed passwords: bartleby user add NAME --role ROLE"
    why = refused(path)
    if why is not None:
        return why
    known = sorted(model_fields(annotation_at(parent)))
    alike = difflib.get_close_matches(str(last).lower().replace("_", "-"), known, n=1)
    kind = "section" if len(path) == 1 else "setting"
    return f"unknown {kind}: " + (f"did you mean {alike[0]}?" if alike else f"known are {', '.join(known)}")


def refused(path: Path) -> str | None:
    """Why a setting of Artemis is not accepted, and what to do; None if it is not Artemis's either."""
    return _REFUSED.get(str(path[0]), {}).get(str(path[-1]))


def _fix(error: ErrorDetails, path: Path) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown(path)
    if kind == "value_error":
        return str(context["error"])
    if kind == "union_tag_invalid":
        return _protocol(str(context["tag"]))
    if kind == "tuple_type" and annotation_at((*path, 0)) is not None and is_table(annotation_at((*path, 0))):
        return f"write [[{path[-1]}]], with double brackets, before each entry"
    if kind in _FIXES:
        return _FIXES[kind].format_map(context)
    # No model raises another type today; pydantic's own words are better than none.
    return error["msg"]


def _protocol(name: str) -> str:
    if name.lower() in PROTOCOLS_NOT_YET:
        return f"this version does not speak {name.lower()}: remove the acceptor"
    return 'give "stomp", "amqp", "mqtt" or "http"'


def value_at(raw: object, path: Sequence[str | int]) -> object:
    """The value at a place in the tables as read, or None."""
    for key in path:
        if isinstance(raw, dict):
            raw = raw.get(key)
        elif isinstance(raw, list) and isinstance(key, int) and key < len(raw):
            raw = raw[key]
        else:
            return None
    return raw


def table_expected(path: Path) -> bool:
    """Whether a place is a table and cannot have a single value."""
    annotation = annotation_at(path)
    return annotation is not None and is_table(annotation)
