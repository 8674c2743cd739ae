"""Lists the attributes of objects whose classes have no `__dict__` and, if compiled, not even `__slots__`."""

from __future__ import annotations


def attributes_of(value: object) -> dict[str, object]:
    """Return name and value of each data attribute that does not begin with an underscore."""
    names = [name for name in dir(value) if not name.startswith("_")]
    return {name: held for name in names if not callable(held := getattr(value, name))}
