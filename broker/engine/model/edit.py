"""An operator's changes to messages that are moved: properties and the body."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy as copied
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.errors import InvalidEdit
from broker.engine.model.message import RESERVED_PREFIXES, Message

#: The most properties that one edit sets or removes: as many as a divert.
PROPERTIES_MAX: Final = 100

#: The most bytes of a new body: it fits into one journal entry with room to spare.
BODY_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Edit:
    """Properties to remove, then properties to set, and the body's new content (None: unchanged)."""

    remove: tuple[str, ...] = ()
    add: Mapping[str, str | int] = field(default_factory=dict)
    body: bytes | None = None

    def __bool__(self) -> bool:
        return bool(self.remove or self.add or self.body is not None)

    @property
    def extra_bytes(self) -> int:
        """The most bytes by which the edit makes a message larger."""
        added = sum(4 * len(name) + 4 * len(str(value)) + 24 for name, value in self.add.items())
        return added + (0 if self.body is None else len(self.body) + 16)

    def check(self) -> None:
        """Raises InvalidEdit if the edit exceeds a limit or changes the broker's own properties."""
        if len(self.remove) + len(self.add) > PROPERTIES_MAX:
            raise InvalidEdit(f"an edit sets and removes at most {PROPERTIES_MAX} properties")
        for name in (*self.remove, *self.add):
            if not name or name.startswith(RESERVED_PREFIXES):
                raise InvalidEdit(f"property {name!r} is the broker's own")
        if self.body is not None and len(self.body) > BODY_BYTES_MAX:
            raise InvalidEdit(f"a body of {len(self.body)} bytes exceeds {BODY_BYTES_MAX}")

    def applied(self, copy: Message) -> Message:
        """The edited copy.  The copy must be on no queue yet and not share its header."""
        header, head, body = copied(copy.header), copy.head, copy.body
        if self.remove or self.add:
            head = header.format.edited(head, self.remove, self.add)
        if self.body is not None:
            head, body = header.format.refilled(head, body, self.body)
        edited = Message.of(header, head, body)
        edited.regroup()
        return edited


#: The edit that changes nothing.
UNCHANGED: Final = Edit()
