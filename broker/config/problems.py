"""Problems of a configuration: each names its file, key and value, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem to fix.

    file: the file, environment variable or option that the value came from; value: as written, empty if there is none,
    never a secret.
    """

    file: str
    key: str
    value: str
    fix: str

    def __str__(self) -> str:
        given = f"{self.key} = {self.value}" if self.value else self.key
        return f"{self.file}: {given}: {self.fix}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` are all that was found, in the order of the sections."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
