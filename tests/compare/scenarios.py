"""What is asked of both brokers.  A scenario is a function from a client to what it saw: names and plain values.

Each uses addresses of its own (configuration.py).  They say nothing of right and wrong: what Artemis and Bartleby
answer is recorded in recorded.json, and docs/artemis-differences.md gives the reason for every difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.compare.clients import Got, Peer, Reader, Reading, Refused
from tests.compare.configuration import DELAY_MS, SCAN_MS

Seen = dict[str, object]
Scenario = Callable[[Peer], Seen]

SCENARIOS: Final[dict[str, Scenario]] = {}

#: Seconds until something that takes a delay or a scan has happened, also on a busy machine.
LATER_S: Final = 6.0


def scenario(function: Scenario) -> Scenario:
    """Enter a scenario under its name."""
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


@contextmanager
def reading(peer: Peer, source: str, how: Reading | None = None) -> Iterator[Reader]:
    """A reader that is gone afterwards."""
    reader = peer.read(source, how)
    try:
        yield reader
    finally:
        reader.close()


def drained(peer: Peer, source: str, seconds: float = 0) -> list[str]:
    """The bodies of all messages of a queue, which are gone then."""
    with reading(peer, source) as reader:
        return accepted(reader.take(seconds))


def accepted(messages: list[Got]) -> list[str]:
    """Answer for all of them; their bodies."""
    for message in messages:
        message.accept()
    return [message.body for message in messages]


def bodies(messages: list[Got]) -> list[str]:
    """Their bodies."""
    return [message.body for message in messages]


# -- routing -----------------------------------------------------------------------------------------------------------


@scenario
def several_queues_on_an_anycast_address(peer: Peer) -> Seen:
    """4.2: messages are shared out evenly; one is in one queue."""
    a = f"{peer.name}.two"
    for number in range(6):
        peer.send(a, f"m{number}")
    return {name: len(drained(peer, f"{a}::{a}.{name}")) for name in "ab"}


@scenario
def fqqn(peer: Peer) -> Seen:
    """A message to a queue's full name is in that queue alone."""
    a = f"{peer.name}.two"
    said = peer.send(f"{a}::{a}.b", "m")
    return {"said": said, "a": drained(peer, f"{a}::{a}.a"), "b": drained(peer, f"{a}::{a}.b")}


@scenario
def fqqn_obeys_the_filter(peer: Peer) -> Seen:
    """The filter of a queue also holds for messages to its full name."""
    a = f"{peer.name}.filtered"
    peer.send(f"{a}::{a}", "red", properties={"color": "red"})
    peer.send(f"{a}::{a}", "blue", properties={"color": "blue"})
    return {"queue": drained(peer, f"{a}::{a}")}


@scenario
def anycast_and_multicast_on_one_address(peer: Peer) -> Seen:
    """Without a routing type both kinds get a message, with one only that kind."""
    a = f"{peer.name}.mixed"
    seen: Seen = {}
    for routing in ("", "ANYCAST", "MULTICAST"):
        peer.send(a, "m", routing=routing)
        seen[routing or "none"] = {kind: len(drained(peer, f"{a}::{a}.{kind}")) for kind in ("any", "multi")}
    return seen


@scenario
def a_full_name_with_the_other_routing_type(peer: Peer) -> Seen:
    """A client asks for an anycast queue, and the one that it names is multicast."""
    a = f"{peer.name}.mixed"
    try:
        with reading(peer, f"{a}::{a}.multi", Reading(routing="ANYCAST")):
            return {"consumer": True}
    except Refused:
        return {"consumer": False}


@scenario
def wildcard_queues(peer: Peer) -> Seen:
    """4.17: `#` is any number of words, `*` one."""
    a = f"{peer.name}.news"
    for address in (a, f"{a}.eu", f"{a}.eu.west"):
        peer.send(address, address.removeprefix(f"{peer.name}."))
    return {
        "#": drained(peer, f"{a}.#::{a}.all"),
        "*": drained(peer, f"{a}.*::{a}.one"),
        "eu": drained(peer, f"{a}.eu::{a}.eu.queue"),
    }


@scenario
def wildcard_subscribers(peer: Peer) -> Seen:
    """A subscriber of a pattern gets what is sent to addresses that it fits."""
    with reading(peer, f"{peer.name}.weather.*", Reading(routing="MULTICAST")) as reader:
        for address in ("weather.rain", "weather.rain.hard", "weather"):
            peer.send(f"{peer.name}.{address}", address, routing="MULTICAST")
        return {"got": accepted(reader.take(1))}


@scenario
def nobody_takes_it(peer: Peer) -> Seen:
    """What no queue takes is dropped, or goes to the dead-letter address."""
    said = peer.send(f"{peer.name}.nowhere", "lost")
    kept = peer.send(f"{peer.name}.rescued", "rescued")
    return {"said": said, "kept": kept, "dead": drained(peer, f"{peer.name}.DLQ")}


@scenario
def sending_to_a_pattern(peer: Peer) -> Seen:
    """A pattern is no address to send to."""
    return {"said": peer.send(f"{peer.name}.pattern.#", "m")}


@scenario
def a_disabled_queue(peer: Peer) -> Seen:
    """Nothing comes into it."""
    return {"said": peer.send(f"{peer.name}.disabled", "m"), "queue": drained(peer, f"{peer.name}.disabled")}


@scenario
def diverts(peer: Peer) -> Seen:
    """A copy for the one, the message itself for the other, by filters."""
    a = f"{peer.name}.diverted"
    for color in ("red", "blue", "green"):
        peer.send(a, color, properties={"color": color})
    with reading(peer, f"{peer.name}.copies") as reader:
        copies = reader.take(1)
        origin = sorted(_origins(copies[0])) if copies else []
        accepted(copies)
    return {
        "address": drained(peer, a),
        "copies": bodies(copies),
        "stolen": drained(peer, f"{peer.name}.stolen"),
        "headers of a copy": origin,
    }


@scenario
def retroactive_addresses(peer: Peer) -> Seen:
    """A new queue gets the last messages of its address."""
    a = f"{peer.name}.retro"
    for number in range(4):
        peer.send(a, f"m{number}", routing="MULTICAST")
    with reading(peer, f"{a}::{a}.late", Reading(routing="MULTICAST")) as reader:
        return {"late": accepted(reader.take(1))}


# -- kinds of queues ---------------------------------------------------------------------------------------------------


@scenario
def last_value_queues(peer: Peer) -> Seen:
    """4.12.2: the newest of each key stays, and all without a key."""
    a = f"{peer.name}.lvq"
    for key, body in (("x", "x1"), ("x", "x2"), ("y", "y1"), ("", "none1"), ("", "none2"), ("x", "x3")):
        peer.send(a, body, properties={"stock": key} if key else {})
    return {"queue": drained(peer, a)}


@scenario
def the_key_of_last_values_without_one(peer: Peer) -> Seen:
    """`_AMQ_LVQ_NAME` is the key of a queue that names none."""
    a = f"{peer.name}.lvq.default"
    for body in ("1", "2"):
        peer.send(a, body, properties={"_AMQ_LVQ_NAME": "k"})
    return {"queue": drained(peer, a)}


@scenario
def a_last_value_in_delivery(peer: Peer) -> Seen:
    """What a consumer holds is not replaced; if it comes back, only the newer stays."""
    a = f"{peer.name}.lvq"
    peer.send(a, "old", properties={"stock": "z"})
    with reading(peer, a, Reading(credit=1)) as reader:
        held = bodies(reader.take(1))
        peer.send(a, "new", properties={"stock": "z"})
    return {"held": held, "queue": drained(peer, a)}


@scenario
def ring_queues(peer: Peer) -> Seen:
    """The oldest make room."""
    a = f"{peer.name}.ring"
    for number in range(5):
        peer.send(a, f"m{number}")
    return {"queue": drained(peer, a)}


@scenario
def a_ring_with_a_message_in_delivery(peer: Peer) -> Seen:
    """What a consumer holds does not count; if it comes back to a full ring, it goes."""
    a = f"{peer.name}.ring"
    peer.send(a, "held")
    with reading(peer, a, Reading(credit=1)) as reader:
        held = bodies(reader.take(1))
        # Only AMQP can leave the rest to others; a STOMP subscription takes all that fits its window.
        for number in range(4):
            peer.send(f"{a}::{a}", f"m{number}")
    return {"held": held, "queue": drained(peer, a) if peer.name == "amqp" else len(drained(peer, a))}


@scenario
def exclusive_queues(peer: Peer) -> Seen:
    """All to the first consumer."""
    a = f"{peer.name}.exclusive"
    with reading(peer, a) as first, reading(peer, a) as second:
        for number in range(4):
            peer.send(a, f"m{number}")
        return {"first": len(accepted(first.take(1))), "second": len(accepted(second.take()))}


@scenario
def message_groups(peer: Peer) -> Seen:
    """The messages of a group go to one consumer, in order."""
    a = f"{peer.name}.groups"
    for number in range(6):
        peer.send(a, f"{'ab'[number % 2]}{number}", group="ab"[number % 2])
    with reading(peer, a, Reading(credit=1)) as first, reading(peer, a, Reading(credit=1)) as second:
        got: list[list[str]] = [[], []]
        while any(new := [accepted(reader.take()) for reader in (first, second)]):
            got = [before + more for before, more in zip(got, new, strict=True)]
    owners = {group: sum(any(body[0] == group for body in one) for one in got) for group in "ab"}
    order = {group: [body for one in got for body in one if body[0] == group] for group in "ab"}
    return {"consumers of a group": owners, "order": order}


@scenario
def non_destructive_queues(peer: Peer) -> Seen:
    """Acknowledged messages stay."""
    a = f"{peer.name}.lasting"
    peer.send(a, "1")
    peer.send(a, "2")
    return {"first": drained(peer, a), "second": drained(peer, a)}


@scenario
def browsing(peer: Peer) -> Seen:
    """Who looks takes nothing."""
    a = f"{peer.name}.browsed"
    peer.send(a, "1", routing="ANYCAST")
    peer.send(a, "2", routing="ANYCAST")
    with reading(peer, a, Reading(browse=True)) as reader:
        looked = bodies(reader.take(1))
    return {"looked": looked, "queue": drained(peer, a)}


@scenario
def max_consumers(peer: Peer) -> Seen:
    """One more is refused, until one leaves."""
    a = f"{peer.name}.single"
    with reading(peer, a):
        second = _may_read(peer, a)
    return {"second": second, "after the first left": _may_read(peer, a)}


@scenario
def purge_on_no_consumers(peer: Peer) -> Seen:
    """Without a consumer nothing stays."""
    a = f"{peer.name}.purged"
    peer.send(a, "early")
    with reading(peer, a) as reader:
        early = bodies(reader.take())
        peer.send(a, "held")
        held = bodies(reader.take(1))
    return {"early": early, "held": held, "after": drained(peer, a)}


@scenario
def consumers_before_dispatch(peer: Peer) -> Seen:
    """Nothing is handed out before enough consumers are there."""
    a = f"{peer.name}.gate"
    peer.send(a, "1")
    with reading(peer, a) as first:
        alone = bodies(first.take())
        with reading(peer, a) as second:
            together = sorted(accepted(first.take()) + accepted(second.take()))
    return {"alone": alone, "together": together}


@scenario
def priorities(peer: Peer) -> Seen:
    """The highest first, in each the oldest first."""
    a = f"{peer.name}.priorities"
    for priority in (1, 9, 4, 9):
        peer.send(a, f"p{priority}", priority=priority, routing="ANYCAST")
    return {"queue": drained(peer, a)}


@scenario
def automatic_deletion(peer: Peer) -> Seen:
    """A queue that had a consumer goes, here with its messages."""
    a = f"{peer.name}.brief.q"
    peer.send(a, "1", routing="ANYCAST")
    with reading(peer, a) as reader:
        before = bodies(reader.take(1))
    # Another address does the waiting: something that takes as long as some scans.
    peer.send(f"{peer.name}.waited", "w", delay_ms=SCAN_MS * 5, routing="ANYCAST")
    drained(peer, f"{peer.name}.waited", LATER_S)
    return {"before": before, "after": drained(peer, a)}


# -- selectors ---------------------------------------------------------------------------------------------------------


@scenario
def selectors(peer: Peer) -> Seen:
    """Which messages they fit."""
    a = f"{peer.name}.selected"
    seen: Seen = {}
    for selector in (
        "color = 'red'",
        "color <> 'red'",
        "size > 5",
        "size = '7'",
        "size IS NULL",
        "NOT color = 'red'",
        "color LIKE 'r%'",
        "color IN ('red', 'blue') AND size BETWEEN 5 AND 9",
        "JMSPriority > 4",
        "AMQPriority > 4",
    ):
        peer.send(a, "red 7", properties={"color": "red", "size": 7}, priority=5, routing="ANYCAST")
        peer.send(a, "blue 3", properties={"color": "blue", "size": 3}, routing="ANYCAST")
        peer.send(a, "plain", routing="ANYCAST")
        try:
            with reading(peer, a, Reading(selector=selector)) as reader:
                seen[selector] = accepted(reader.take())
        except Refused:
            seen[selector] = "refused"
        drained(peer, a)
    return seen


# -- redelivery, dead letters, expiry ----------------------------------------------------------------------------------


@scenario
def redelivery_with_a_delay(peer: Peer) -> Seen:
    """What failed comes back after its delay, and not before; others go on meanwhile."""
    a = f"{peer.name}.delayed"
    peer.send(a, "poison", routing="ANYCAST")
    with reading(peer, a) as reader:
        (first,) = reader.take(1)
        first.fail()
        at_once = bodies(reader.take())
        peer.send(a, "other", routing="ANYCAST")
        later = reader.take(LATER_S)
        while later and len(later) < 2 and (more := reader.take(LATER_S)):
            later += more
        accepted(later)
    return {
        "first redelivered": first.redelivered,
        "at once": at_once,
        "later": [[message.body, message.redelivered] for message in later],
    }


@scenario
def dead_letters(peer: Peer) -> Seen:
    """After three failures a message is in the dead-letter address, and says where it came from."""
    a = f"{peer.name}.poison"
    peer.send(a, "poison", properties={"mine": "kept"}, ttl_ms=3_600_000, routing="ANYCAST")
    deliveries = 0
    with reading(peer, a) as reader:
        while found := reader.take(0.5):
            deliveries += 1
            found[0].fail()
            assert deliveries < 10, "a message that never dies"
    with reading(peer, f"{peer.name}.DLQ") as reader:
        dead = reader.take()
        seen: Seen = {"deliveries": deliveries, "dead": bodies(dead)}
        if dead:
            seen |= {"headers": _origins(dead[0]), "mine": dead[0].properties.get("mine")}
        accepted(dead)
    return seen


@scenario
def refused_for_good(peer: Peer) -> Seen:
    """AMQP's rejected is a dead letter at once."""
    a = f"{peer.name}.hopeless"
    peer.send(a, "m", routing="ANYCAST")
    with reading(peer, a) as reader:
        (message,) = reader.take(1)
        if message.refuse is None:
            message.accept()
            return {"said": "no such word"}
        message.refuse()
        again = bodies(reader.take())
    return {"again": again, "dead": drained(peer, f"{peer.name}.DLQ")}


@scenario
def left_behind(peer: Peer) -> Seen:
    """A consumer that leaves in order: what it held comes back."""
    a = f"{peer.name}.left"
    peer.send(a, "1", routing="ANYCAST")
    peer.send(a, "2", routing="ANYCAST")
    with reading(peer, a) as reader:
        held = bodies(reader.take(1))
    with reading(peer, a) as reader:
        again = reader.take(1)
        seen: Seen = {"held": held, "again": bodies(again), "redelivered": [each.redelivered for each in again]}
        accepted(again)
    return seen


@scenario
def expiry(peer: Peer) -> Seen:
    """What is too old is in the expiry address, and says where it came from."""
    a = f"{peer.name}.aging"
    peer.send(a, "old", ttl_ms=SCAN_MS // 3, routing="ANYCAST")
    with reading(peer, f"{peer.name}.Expired") as reader:
        expired = reader.take(LATER_S)
        seen: Seen = {"expired": bodies(expired), "queue": drained(peer, a)}
        if expired:
            seen |= {"headers": _origins(expired[0])}
        accepted(expired)
    return seen


@scenario
def expiry_by_setting(peer: Peer) -> Seen:
    """`expiry-delay` gives a time to live to what has none."""
    a = f"{peer.name}.old"
    peer.send(a, "delayed", routing="ANYCAST")
    peer.send(a, "own", ttl_ms=3_600_000, routing="ANYCAST")
    return {"expired": drained(peer, f"{peer.name}.Expired", LATER_S), "queue": drained(peer, a)}


@scenario
def scheduled_delivery(peer: Peer) -> Seen:
    """It is not there before its time."""
    a = f"{peer.name}.scheduled"
    peer.send(a, "later", delay_ms=DELAY_MS * 2, routing="ANYCAST")
    peer.send(a, "now", routing="ANYCAST")
    with reading(peer, a) as reader:
        return {"now": accepted(reader.take()), "later": accepted(reader.take(LATER_S))}


@scenario
def duplicates(peer: Peer) -> Seen:
    """The second of one duplicate id does not come in."""
    a = f"{peer.name}.once"
    said = [peer.send(a, body, duplicate=key, routing="ANYCAST") for body, key in (("1", "k"), ("2", "k"), ("3", "l"))]
    return {"said": said, "queue": drained(peer, a)}


def _may_read(peer: Peer, address: str) -> bool:
    try:
        with reading(peer, address):
            return True
    except Refused:
        return False


def _origins(message: Got) -> dict[str, str]:
    """What a message says of where it came from, without ids and times."""
    found = {}
    for name, value in message.properties.items():
        if name.startswith(("_AMQ_", "x-opt-")) and ("ORIG" in name or "ACTUAL" in name):
            changing = any(word in name for word in ("ID", "ACTUAL", "EXPIRATION", "TIMESTAMP", "CLIENT"))
            found[name] = "..." if changing else value
    return dict(sorted(found.items()))
