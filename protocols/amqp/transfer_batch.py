"""Reads runs of TRANSFER frames on the links of one session in one loop.

A producer with several links sends on them in turns, so the deliveries of one link are seldom adjacent.  Here each
frame is recognised by its first bytes (`transfers.key`) and added to the lane of its link: whatever the turns, a read
yields one Transfers event for each link.  The order within a link is kept.  The specification promises no order between
links (part 2, 2.6), but JMS does for the messages of a session to one destination, and a message to a coordinator
applies to the transfers before it: a link joins a run only if its order relative to the links in it does not matter
(`Receiver.order`).

All deliveries of a run are settled, or none is, and those of one link have the same state.  The run ends at a frame
where that changes or that has no known shape, and at `RUN_MAX`.  It also ends before the session's window, its room for
unsettled deliveries, or the credit of a link might be used up: frames beyond that are fully checked one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from protocols.amqp.link import Channel, Event
from protocols.amqp.receiver import Transfers
from protocols.amqp.serial import MASK
from protocols.amqp.transfers import FrameTemplate, key_end

if TYPE_CHECKING:
    from protocols.amqp.receiver import Receiver


#: The most deliveries of a run: a read may bring 8,000, and each takes a broker some microseconds.
RUN_MAX: Final = 1_024

#: The parts of a frame: size, head, delivery id, the head of its tag, tag, tail.
_Parts = tuple[int, bytes, int, bytes, bytes, bytes]


class _Lane:
    """Deliveries of one link; `template` is that of the first."""

    __slots__ = ("ids", "payloads", "tags", "template")

    def __init__(self, template: FrameTemplate) -> None:
        self.template = template
        self.ids: list[int] = []
        self.tags: list[bytes] = []
        self.payloads: list[bytes] = []


class _Track:
    """Frames of one shape, and their lane; `bytes_max`: how large they may be."""

    __slots__ = ("bytes_max", "lane", "template")

    def __init__(self, template: FrameTemplate, lane: _Lane, bytes_max: int) -> None:
        self.template = template
        self.lane = lane
        self.bytes_max = bytes_max


def read_lanes(shapes: Mapping[bytes, FrameTemplate], buffer: bytes, at: int, events: list[Event]) -> int:
    """Append the deliveries from `at` on, one event for each link; returns where the first other frame begins."""
    width = key_end(buffer, at)
    template = shapes.get(buffer[at + 4 : at + width])
    if template is None or not template.link.session.reads:
        return at
    session, settled = template.link.session, template.settled
    limit = min(session.delivery_room(settled=settled), RUN_MAX)
    lanes: dict[Receiver, _Lane] = {}
    orders: set[object] = set()
    tracks: dict[bytes, _Track] = {}
    owners: list[Receiver] = []
    all_tags: list[bytes] = []
    delivery_id, end, count = session.next_incoming_delivery, len(buffer), 0
    while count < limit:
        key = buffer[at + 4 : at + width]
        track = tracks.get(key)
        if track is None:
            template = shapes.get(key)
            if template is None or template.settled is not settled:
                break
            if template.link not in lanes:
                limit = min(limit, count + template.link.run_room)
            track = _track(template, session, lanes, orders)
            if track is None or count >= limit:
                break
            tracks[key] = track
        template, lane = track.template, track.lane
        nbytes = template.nbytes
        if at + nbytes > end:
            break
        parts: _Parts = template.unpack(buffer, at)
        size, head, id, tag_head, tag, tail = parts
        stop = at + size
        if (
            id != delivery_id
            or head != template.head
            or tail != template.tail
            or tag_head != template.tag_head
            or not nbytes <= size <= track.bytes_max
            or stop > end
        ):
            break
        if not settled:
            tags = template.link.tags
            if tag in tags:
                break
            tags.add(tag)
            owners.append(template.link)
            all_tags.append(tag)
        lane.ids.append(id)
        lane.tags.append(tag)
        lane.payloads.append(buffer[at + nbytes : stop])
        delivery_id = (delivery_id + 1) & MASK
        count += 1
        at = stop
    if count:
        session.received_deliveries(owners, all_tags, count)
        _tell(lanes, events)
    return at


def _track(
    template: FrameTemplate, session: Channel, lanes: dict[Receiver, _Lane], orders: set[object]
) -> _Track | None:
    """The track for frames of a shape; None if they cannot join the run of these lanes, whose links have `orders`."""
    link = template.link
    if link.session is not session:
        return None
    lane = lanes.get(link)
    if lane is None:
        order = link.order
        if lanes and (order is None or order in orders or None in orders):
            return None
        orders.add(order)
        lane = lanes[link] = _Lane(template)
    elif lane.template.state != template.state:
        return None
    limits = session.limits
    bytes_max = min(limits.frame_bytes_max, limits.message_bytes_max + template.nbytes)
    return _Track(template, lane, bytes_max)


def _tell(lanes: dict[Receiver, _Lane], events: list[Event]) -> None:
    for link, lane in lanes.items():
        if lane.ids:
            settled, state = lane.template.settled, lane.template.state
            link.count(len(lane.ids))
            events.append(Transfers(link, lane.ids, lane.tags, lane.payloads, settled, state, link.second))
