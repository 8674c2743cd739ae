"""What else happens to messages sent to an address, beside being put onto its queues.

Most addresses have none of it: their `extras` is None, and a send looks at nothing else (`sending.publish`).  The
others have one small object, made anew whenever settings or diverts change.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.engine.model.settings import AddressSettings
    from broker.engine.queues.diverts import Divert, Diverts


class AddressExtras:
    """The diverts of an address, and what its settings ask for.

    `reach` are the addresses that its diverts lead to, also over several; `copies` how many copies of a message that
    can make.
    """

    __slots__ = ("copies", "exclusive", "ingress", "no_route", "others", "reach")

    def __init__(self, settings: AddressSettings, diverts: list[Divert], reach: tuple[str, ...], copies: int) -> None:
        self.exclusive = [divert for divert in diverts if divert.exclusive]
        self.others = [divert for divert in diverts if not divert.exclusive]
        self.ingress = settings.enable_ingress_timestamp
        self.no_route = settings.send_to_dla_on_no_route
        self.reach = reach
        self.copies = copies + self.no_route


def extras_of(name: str, settings: AddressSettings, diverts: Diverts) -> AddressExtras | None:
    """What else is to be done with messages sent to an address; None: nothing."""
    watching = diverts.of(name)
    if not (watching or settings.enable_ingress_timestamp or settings.send_to_dla_on_no_route):
        return None
    reach, copies = _reach(watching, diverts)
    return AddressExtras(settings, watching, reach, copies)


def _reach(watching: list[Divert], diverts: Diverts) -> tuple[tuple[str, ...], int]:
    """Where messages may get, and over how many forwardings: each divert counts once, as a copy passes it once."""
    reached: dict[str, None] = {}
    passed = set(watching)
    following = deque(watching)
    copies = 0
    while following:
        divert = following.popleft()
        for forward in divert.forwarding:
            reached[forward] = None
            copies += 1
            more = [each for each in diverts.of(forward) if each not in passed]
            passed.update(more)
            following.extend(more)
    return tuple(reached), copies
