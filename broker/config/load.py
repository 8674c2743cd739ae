"""Loads the configuration: a file, overridden by the environment, overridden by the options; then checks everything.

All problems are reported at once.  Invalid values are left out, and the relations are checked on the rest.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from broker.config.environment import Overlay
from broker.config.explain import SourceOf, place, problem, value_at
from broker.config.listen import OPTION, overridden
from broker.config.model import SHIPPED, Config, with_shipped_entries
from broker.config.problems import ConfigError, Problem
from broker.config.relations import clashes
from broker.config.schema import Path as Place
from broker.config.schema import dotted

AS_SHIPPED: Final = "the configuration as shipped"

#: Levels of tables and arrays in a file: no setting is deeper than five.
DEPTH_MAX: Final = 16

Raw = dict[str, object]
_NO_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType({})
_PLACE: Final = re.compile(r"(.*) \(at (line [0-9]+, column [0-9]+|end of document)\)", re.DOTALL)


def load(
    path: Path | None,
    environment: Mapping[str, str] = _NO_ENVIRONMENT,
    *,
    data: Path | None = None,
    listen: Sequence[str] = (),
) -> Config:
    """The configuration of a file (None: as shipped), the environment and the options `--data` and `--listen`.

    Raises ConfigError with all problems.
    """
    file = AS_SHIPPED if path is None else str(path)
    given = {} if path is None else _read(path)
    raw = copy.deepcopy(SHIPPED) | given
    overlay = Overlay(raw)
    written = _acceptors(raw)
    overlay.apply(environment)
    raw = with_shipped_entries(raw, given)
    made = _acceptors(raw) - written
    origins = overlay.origins

    def source_of(key: str) -> str:
        if key in made:  # by a variable, which is blamed for missing settings
            return next(origins[known] for known in origins if known.startswith(f"{key}."))
        return next((origins[known] for known in origins if key == known or key.startswith(f"{known}.")), file)

    config, problems, broken = validated(raw, source_of)
    problems = overlay.problems + problems
    broken |= {found.key for found in overlay.problems}
    if data is not None:
        config = config.model_copy(update={"broker": config.broker.model_copy(update={"data_directory": data})})
    config, more, keys = overridden(config, listen)
    origins |= dict.fromkeys(keys, OPTION)
    problems += more
    problems += _clashes(config, source_of, broken - keys)
    if problems:
        raise ConfigError(problems)
    return config


def _read(path: Path) -> Raw:
    """The tables of a file.  Raises ConfigError."""
    deep = Problem(str(path), "the file", "", f"tables and arrays are nested more than {DEPTH_MAX} deep")
    try:
        raw = tomllib.loads(path.read_bytes().decode())
        found = deep
        if not _deeper(raw, DEPTH_MAX):
            if not _holds_nul(raw):
                return raw
            found = Problem(str(path), "the file", "", "a text contains U+0000: remove it")
    except RecursionError:
        found = deep
    except OSError as error:
        found = Problem(str(path), "the file", "", f"{error.strerror}: name a readable file")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = Problem(str(path), f"line {line}", "", "not UTF-8: save the file as UTF-8")
    except tomllib.TOMLDecodeError as error:
        parts = _PLACE.fullmatch(str(error))
        where, what = (parts[2], parts[1]) if parts else ("the file", str(error))
        hint = "; a text needs quotes" if what == "Invalid value" else ""
        found = Problem(str(path), where, "", f"{what}: correct the TOML there{hint}")
    except ValueError:  # Python's limit for digits of an integer
        found = Problem(str(path), "the file", "", "a number has thousands of digits: give a smaller one")
    raise ConfigError([found])


def _deeper(value: object, levels: int) -> bool:
    """Whether tables and arrays are nested deeper than this."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(each, levels - 1) for each in inner)


def _holds_nul(value: object) -> bool:
    """Whether a text has U+0000, which would end file and host names in system calls."""
    if isinstance(value, dict):
        return any(_holds_nul(name) or _holds_nul(each) for name, each in value.items())
    return any(map(_holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _acceptors(raw: Raw) -> set[str]:
    """The keys of the acceptors in the tables as read."""
    acceptors = raw.get("acceptors")
    return {f"acceptors.{name}" for name in acceptors} if isinstance(acceptors, dict) else set()


def validated(raw: Raw, source_of: SourceOf) -> tuple[Config, list[Problem], set[str]]:
    """The configuration without invalid values, the problems, and the keys that were left out."""
    problems: list[Problem] = []
    broken: set[str] = set()
    rest = raw
    while True:
        try:
            return Config.model_validate(rest), problems, broken
        except ValidationError as error:
            errors = error.errors(include_url=False)
        if not problems:
            problems = [problem(error, raw, source_of) for error in errors]
        broken |= {dotted(place(error), rest) for error in errors}
        smaller = _without(rest, [_left_out(error) for error in errors])
        assert smaller != rest, f"nothing to leave out for {errors}"
        rest = smaller


def _left_out(error: ErrorDetails) -> Place:
    """What to leave out to remove an error: the value, or the table that lacks one."""
    path = place(error)
    return path[:-1] if error["type"] == "missing" else path


def _without(raw: Raw, paths: Iterable[Place]) -> Raw:
    """A copy without these places; removed from the end, so that indexes stay valid."""
    rest = copy.deepcopy(raw)
    for path in sorted(set(paths), key=lambda path: [(isinstance(key, int), key) for key in path], reverse=True):
        inner = value_at(rest, path[:-1])
        if isinstance(inner, dict):
            inner.pop(path[-1], None)
        elif isinstance(inner, list):
            del inner[int(path[-1])]
    return rest


def _clashes(config: Config, source_of: SourceOf, broken: set[str]) -> list[Problem]:
    """The clashes that involve only valid settings."""
    return [
        Problem(source_of(clash.keys[0]), clash.keys[0], clash.value, clash.fix)
        for clash in clashes(config)
        if not any(_overlap(key, bad) for key in clash.keys for bad in broken)
    ]


def _overlap(one: str, other: str) -> bool:
    """Whether two keys are the same, or one is within the other."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and long[len(short) : len(short) + 1] in ("", ".", "[")
