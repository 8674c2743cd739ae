"""The base of all sections: frozen, kebab-case names, no unknown keys, no silent conversions."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from broker.engine.model.row import kebab


class Section(BaseModel):
    """A table of the file.  The docstring of each field is its one-line description, in etc/broker.toml too."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=kebab,
        hide_input_in_errors=True,
    )
