"""What an address does with its messages beside putting them on its queues.

Most addresses do nothing else: their `extras` is None, and a send checks nothing more (`sending.publish`).  The others
have one small object, replaced whenever settings or diverts change.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.engine.model.settings import AddressSettings
    from broker.engine.queues.diverts import Divert, Diverts


class AddressExtras:
    """The diverts of an address, and its settings for ingress timestamps and unrouted messages.

    `reach` are the addresses that its diverts lead to, directly or through others; `copies` is the most copies of a
    message that this can make.
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
    """The extras of an address; None: it has none."""
    watching = diverts.of(name)
    if not (watching or settings.enable_ingress_timestamp or settings.send_to_dla_on_no_route):
        return None
    reach, copies = _reach(watching, diverts)
    return AddressExtras(settings, watching, reach, copies)


def _reach(watching: list[Divert], diverts: Diverts) -> tuple[tuple[str, ...], int]:
    """The addresses that diverts lead to, and the number of forwardings; a copy passes each divert once."""
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
