"""Writing TOML that can be appended to a broker.toml."""

from __future__ import annotations

from collections.abc import Mapping

import tomli_w


def toml_text(tables: Mapping[str, object]) -> str:
    """The text of a file; lists of tables are `[[tables]]`.

    An inline array (tomli_w prints short lists so) would become a key of the last table of the file that it is appended
    to.
    """
    plain = {name: value for name, value in tables.items() if not _is_list_of_tables(value)}
    parts = [tomli_w.dumps(plain)] if plain else []
    for name, entries in tables.items():
        if name not in plain:
            assert isinstance(entries, list)
            parts += [f"[[{name}]]\n{tomli_w.dumps(entry)}" for entry in entries]
    return "\n".join(parts)


def _is_list_of_tables(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(entry, dict) for entry in value)
