"""Settings from the environment: BARTLEBY_BROKER__NAME is broker.name.

1. Two underscores separate the levels, one is a hyphen; names that users chose (acceptors, users, addresses)
   are found regardless of case, and a new one is in lower case.
2. A variable with _FILE at its end gives the path of a file that holds the value, less one newline at the end.
3. Entries of lists (address-settings, security-settings, certificate-users, resource-limit-settings) cannot be given.
4. Variables of the command line are ignored, and so are those that container platforms set for a service of this name
   (BARTLEBY_PORT, BARTLEBY_BROKER_SERVICE_HOST, ...): these have no double underscore.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final, Literal, get_args, get_origin

from broker.config.explain import format_value, table_expected, unknown
from broker.config.model import Config
from broker.config.problems import Problem
from broker.config.schema import Path as Place
from broker.config.schema import annotation_at, arms, dotted, model_fields

PREFIX: Final = "BARTLEBY_"
LEVELS: Final = "__"
FROM_FILE: Final = "_FILE"
SECRET_BYTES_MAX: Final = 64 << 10
"""Bytes of a file named by a variable: secrets are short, and /dev/zero is not read for ever."""

#: Sections that are lists.
LISTS: Final = ("address-settings", "certificate-users", "resource-limit-settings", "security-settings")

#: The command line's own variables.
COMMAND_VARIABLES: Final = frozenset(
    f"BARTLEBY_{name}" for name in ("CA_FILE", "CONFIG", "PASSWORD", "TOKEN_FILE", "URL", "USER")
)


class Overlay:
    """Overlays the values of a file with variables.  `origins`: the variable that set each key."""

    def __init__(self, raw: dict[str, object]) -> None:
        self._raw = raw
        self.origins: dict[str, str] = {}
        self.problems: list[Problem] = []

    def apply(self, environment: Mapping[str, str]) -> None:
        """Apply all variables that are settings, in the order of their names."""
        for name in sorted(environment):
            if name.startswith(PREFIX) and name not in COMMAND_VARIABLES:
                self._take(name, environment[name])

    def _take(self, name: str, text: str) -> None:
        words = name.removeprefix(PREFIX).split(LEVELS)
        if len(words) == 1:
            self._single(name)
            return
        path, from_file = self._place(words)
        key = dotted(path, self._raw)
        fix = self._refusal(path, key)
        if fix:
            self._refuse(name, path, text, fix)
            return
        if from_file:
            try:
                text = _read(text)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                self._refuse(name, path, text, f"the file cannot be read ({reason}): name a readable file")
                return
        self.origins[key] = name
        _put(self._raw, path, _value(annotation_at(path), text))

    def _refuse(self, name: str, path: Place, text: str, fix: str) -> None:
        # The value may be the password itself where the path of its file belongs.
        value = "" if path[0] == "users" else format_value(text)
        self.problems.append(Problem(name, dotted(path, self._raw), value, fix))

    def _single(self, name: str) -> None:
        """Report a variable that has one underscore where two belong; it would otherwise go unnoticed."""
        word = name.removeprefix(PREFIX)
        for section in model_fields(Config):
            start = section.upper().replace("-", "_") + "_"
            if word.startswith(start) and _could_be_in(section, word.removeprefix(start)):
                better = f"{PREFIX}{start[:-1]}{LEVELS}{word.removeprefix(start)}"
                fix = f"two underscores separate the levels: rename it to {better}"
                self.problems.append(Problem(name, section, "", fix))

    def _place(self, words: list[str]) -> tuple[Place, bool]:
        """The path that a variable's words name, and whether its value is in a file."""
        path: Place = ()
        raw: object = self._raw
        for word in words:
            known = model_fields(annotation_at(path))
            key = word.lower().replace("_", "-")
            if not known:
                key = _chosen_name(word, raw)
            elif key not in known and word.endswith(FROM_FILE):
                bare = key[: -len(FROM_FILE)]
                return (*path, bare), True
            path = (*path, key)
            raw = raw.get(key) if isinstance(raw, dict) else None
        return path, False

    def _refusal(self, path: Place, key: str) -> str:
        """Why the place cannot be set; empty if it can."""
        if path[0] in LISTS:
            return "entries of lists cannot be set in the environment: write them into the file"
        if annotation_at(path) is None:
            known = next(path[:end] for end in range(len(path), -1, -1) if annotation_at(path[:end]) is not None)
            return unknown(path[: len(known) + 1])
        if table_expected(path):
            return "this is a table: name the setting in it, after two more underscores"
        if key in self.origins:
            return f"{self.origins[key]} sets it too: keep one of them"
        return ""


def _could_be_in(section: str, word: str) -> bool:
    """Whether a variable could mean a setting of the section: BARTLEBY_BROKER_PORT is Kubernetes's."""
    known = model_fields(annotation_at((section,)))
    key = word.lower().replace("_", "-")
    return not known or any(f"{key}-".startswith(f"{name}-") for name in known)


def _chosen_name(word: str, raw: object) -> str:
    plain = word.lower().replace("_", "-")
    for name in raw if isinstance(raw, dict) else ():
        if name == word or str(name).lower().replace("_", "-") == plain:
            return str(name)
    return plain if word.isupper() else word


def _read(path: str) -> str:
    """The text of a file, less one newline at its end.  Raises OSError, ValueError."""
    with Path(path).open("rb") as file:
        content = file.read(SECRET_BYTES_MAX + 1)
    if len(content) > SECRET_BYTES_MAX:
        raise ValueError(f"more than {SECRET_BYTES_MAX} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


def _put(raw: dict[str, object], path: Place, value: object) -> None:
    for key in path[:-1]:
        inner = raw.setdefault(str(key), {})
        if not isinstance(inner, dict):
            return  # the file is wrong there, which is reported elsewhere
        raw = inner
    raw[str(path[-1])] = value


def _value(annotation: object, text: str) -> object:
    """The text converted to the type of its setting; if that fails, it stays text and is refused later."""
    kinds = list(arms(annotation))
    if any(get_origin(kind) is tuple for kind in kinds):
        return [part.strip() for part in text.split(",") if part.strip()]
    if any(_is_text(kind) for kind in kinds):
        return text
    if bool in kinds:
        return {"true": True, "false": False}.get(text.lower(), text)
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                continue
    return text


def _is_text(kind: object) -> bool:
    if get_origin(kind) is Literal:
        return all(isinstance(choice, str) for choice in get_args(kind))
    return isinstance(kind, type) and issubclass(kind, str | Path | Enum)
