"""ActiveMQ Classic's destination policies, dead-letter strategies and redelivery policies, as address settings.

Classic has separate policies for queues and topics, Bartleby has addresses: if policies for a queue and for a topic
match the same names, the first applies where they differ, and the report says so.
"""

from __future__ import annotations

from typing import Final

from broker.importing.classic_tables import NOT_KNOWN, POLICY, POLICY_ELEMENTS, TIME_STAMPS
from broker.importing.draft import Draft
from broker.importing.report import Outcome, place
from broker.importing.rules import apply
from broker.importing.xml import Element

_SETTINGS: Final = "address-settings"
_DEAD_LETTERS: Final = "ActiveMQ.DLQ"


def match_of(destination: str) -> str:
    """A Classic wildcard as a match: `>` stands for any words at the end."""
    if destination == ">":
        return "#"
    return f"{destination[:-1]}#" if destination.endswith(".>") else destination


def policies(element: Element, draft: Draft) -> None:
    """Translate all entries of the policy map."""
    for policy_map in element.all("policyMap"):
        for group in policy_map.children:
            if group.name in ("policyEntries", "defaultEntry"):
                for entry in group.all("policyEntry"):
                    _entry(entry, draft, default=group.name == "defaultEntry")


def _entry(entry: Element, draft: Draft, *, default: bool) -> None:
    destination = ">" if default else entry.get("queue") or entry.get("topic") or ""
    label = f'policyEntry "{destination}"'
    if not destination:
        why = "it is for temporary destinations, or for none: only matches of names are supported"
        draft.report.left(place(entry, "policyEntry", ""), why)
        return
    key = (_SETTINGS, match_of(destination))
    for attribute, text in entry.attributes.items():
        found = place(entry, f"{label}: {attribute}", text)
        setting, why = POLICY.get(attribute, ("", NOT_KNOWN.why))
        if attribute in ("queue", "topic", *_BY_HAND):
            continue
        if setting:
            draft.put_text(found, (*key, setting), text, change=why)
        else:
            draft.report.left(found, why)
    _flow_control(entry, draft, label, key)
    _collection(entry, draft, label, key)
    for child in entry.children:
        strategy = next(iter(child.children), child)
        if child.name == "deadLetterStrategy":
            _dead_letters(strategy, draft, label, key)
        elif child.name == "subscriptionRecoveryPolicy":
            _recovery(strategy, draft, label, key)
        else:
            rule = POLICY_ELEMENTS.get(child.name, NOT_KNOWN)
            apply(draft, rule, place(strategy, f"{label}: {strategy.name}", ""), "")


#: Attributes that _flow_control and _collection read.
_BY_HAND: Final = ("producerFlowControl", "gcInactiveDestinations", "inactiveTimoutBeforeGC", "inactiveTimeoutBeforeGC")


def _flow_control(entry: Element, draft: Draft, label: str, key: tuple[str, str]) -> None:
    text = entry.attributes.get("producerFlowControl")
    if text is None:
        return
    found = place(entry, f"{label}: producerFlowControl", text)
    if text.lower() == "true":
        draft.put(found, (*key, "address-full-policy"), "BLOCK")
    else:
        draft.report.left(found, "producers of a full address wait: to avoid that, set no limit")


def _collection(entry: Element, draft: Draft, label: str, key: tuple[str, str]) -> None:
    if entry.attributes.get("gcInactiveDestinations", "false").lower() != "true":
        return
    found = place(entry, f"{label}: gcInactiveDestinations", "true")
    change = "it deletes only what clients created, and only if broker.address-queue-scan-period is on"
    draft.put(found, (*key, "auto-delete-queues"), True, change=change)
    draft.put(found, (*key, "auto-delete-addresses"), True, change=change)
    after = entry.attributes.get("inactiveTimeoutBeforeGC", entry.attributes.get("inactiveTimoutBeforeGC"))
    if after is not None:
        found = place(entry, f"{label}: inactiveTimeoutBeforeGC", after)
        draft.put_text(found, (*key, "auto-delete-queues-delay"), after)


def _dead_letters(strategy: Element, draft: Draft, label: str, key: tuple[str, str]) -> None:
    what = f"{label}: {strategy.name}"
    target: str | None = None
    if strategy.name == "individualDeadLetterStrategy":
        target = _DEAD_LETTERS
        prefix = strategy.attributes.get("queuePrefix", "ActiveMQ.DLQ.Queue.")
        change = f"each address has its own queue, reached as {_DEAD_LETTERS}::{prefix}ADDRESS"
        draft.put(place(strategy, what, prefix), (*key, "dead-letter-address"), target, change=change)
        for name, value in (
            ("auto-create-dead-letter-resources", True),
            ("dead-letter-queue-prefix", prefix),
            ("dead-letter-queue-suffix", strategy.attributes.get("queueSuffix", "")),
        ):
            draft.put(place(strategy, what, ""), (*key, name), value, quiet=True)
    elif strategy.name == "sharedDeadLetterStrategy":
        target = _shared(strategy)
        draft.put(place(strategy, what, target), (*key, "dead-letter-address"), target)
    elif strategy.name == "discarding":
        draft.put(place(strategy, what, ""), (*key, "dead-letter-address"), "", change="it is logged and counted")
    else:
        draft.report.left(place(strategy, what, ""), NOT_KNOWN.why)
        return
    if strategy.name != "discarding":
        expired = strategy.attributes.get("processExpired", "true").lower() == "true"
        draft.put(place(strategy, what, ""), (*key, "expiry-address"), target if expired else "", quiet=True)
    for attribute in ("processNonPersistent", "useQueueForQueueMessages", "useQueueForTopicMessages", "topicPrefix"):
        if attribute in strategy.attributes:
            found = place(strategy, f"{what}: {attribute}", strategy.attributes[attribute])
            if (attribute, found.value.lower()) in _AS_HERE:
                draft.report.add(found, Outcome.TAKEN, why="Bartleby always does this")
            else:
                draft.report.left(found, "all dead messages go to the dead-letter queue, durable or not")


_AS_HERE: Final = frozenset(
    {("processNonPersistent", "true"), ("useQueueForQueueMessages", "true"), ("useQueueForTopicMessages", "true")}
)


def _shared(strategy: Element) -> str:
    """The name of a shared strategy's queue, from an attribute or an inner bean."""
    given = strategy.attributes.get("deadLetterQueue")
    if given:
        return given.removeprefix("queue://")
    return next(
        (each.attributes["physicalName"] for each in strategy.below() if "physicalName" in each.attributes),
        _DEAD_LETTERS,
    )


def _recovery(strategy: Element, draft: Draft, label: str, key: tuple[str, str]) -> None:
    found = place(strategy, f"{label}: {strategy.name}", strategy.attributes.get("maximumSize", ""))
    change = "every new queue of the address gets them, not only subscribers that ask"
    if strategy.name == "fixedCountSubscriptionRecoveryPolicy":
        count = strategy.attributes.get("maximumSize", "100")
        draft.put_text(found, (*key, "retroactive-message-count"), count, change=change)
    elif strategy.name == "lastImageSubscriptionRecoveryPolicy":
        draft.put(found, (*key, "retroactive-message-count"), 1, change=change)
    elif strategy.name == "noSubscriptionRecoveryPolicy":
        draft.report.add(found, Outcome.TAKEN, why="this is the default, unless retroactive-message-count is set")
    else:
        draft.report.left(found, "only a number of last messages can be kept: retroactive-message-count on a match")


def time_stamps(plugin: Element, draft: Draft) -> None:
    """Translate the plugin that changes times to live."""
    for attribute, text in plugin.attributes.items():
        found = place(plugin, f"{plugin.name} {attribute}", text)
        if attribute == "ttlCeiling" and "zeroExpirationOverride" in plugin.attributes:
            why = (
                "expiry-delay, the counterpart of zeroExpirationOverride, has no maximum: give only ttlCeiling instead"
            )
            draft.report.left(found, why)
        elif attribute == "ttlCeiling":
            change = "it also applies to messages without a time to live"
            draft.put_text(found, (_SETTINGS, "#", "max-expiry-delay"), text, change=change)
        elif attribute == "zeroExpirationOverride":
            draft.put_text(found, (_SETTINGS, "#", "expiry-delay"), text)
        else:
            draft.report.left(found, TIME_STAMPS.get(attribute, NOT_KNOWN.why))
    if not plugin.attributes:
        draft.report.left(place(plugin, plugin.name, ""), "messages keep their sender's timestamp")


def redelivery(plugin: Element, draft: Draft) -> None:
    """Translate the redelivery policies of the broker."""
    for attribute, text in plugin.attributes.items():
        found = place(plugin, f"{plugin.name} {attribute}", text)
        if text.lower() == "true":
            draft.report.add(found, Outcome.TAKEN, why="Bartleby always does this")
        else:
            draft.report.left(found, 'dead-letter-address = "" on a match drops dead messages')
    for each in plugin.below():
        if each.name == "redeliveryPolicy":
            destination = each.get("queue") or each.get("topic") or ">"
            _redelivery(each, draft, f'redeliveryPolicy "{destination}"', (_SETTINGS, match_of(destination)))


def _redelivery(policy: Element, draft: Draft, label: str, key: tuple[str, str]) -> None:
    given = policy.attributes
    redeliveries = given.get("maximumRedeliveries", "6")
    attempts = int(redeliveries) + 1 if redeliveries.isdigit() else -1
    draft.put(
        place(policy, f"{label}: maximumRedeliveries", redeliveries),
        (*key, "max-delivery-attempts"),
        attempts,
        change="" if attempts < 0 else "the first delivery counts too",
    )
    first, then = given.get("initialRedeliveryDelay", "1000"), given.get("redeliveryDelay", "1000")
    backs_off = given.get("useExponentialBackOff", "false").lower() == "true"
    change = "" if backs_off or first == then else f"{first} ms first and {then} ms then is one delay here"
    draft.put_text(
        place(policy, f"{label}: delay", first if backs_off else then),
        (*key, "redelivery-delay"),
        first if backs_off else then,
        change=change,
    )
    if backs_off:
        multiplier = given.get("backOffMultiplier", "5.0")
        what = place(policy, f"{label}: backOffMultiplier", multiplier)
        draft.put_text(what, (*key, "redelivery-delay-multiplier"), multiplier)
    longest = given.get("maximumRedeliveryDelay")
    if longest is not None and longest != "-1":
        draft.put_text(
            place(policy, f"{label}: maximumRedeliveryDelay", longest), (*key, "max-redelivery-delay"), longest
        )
    elif backs_off:
        why = "there is always a longest delay, by default ten times redelivery-delay: max-redelivery-delay sets it"
        draft.report.left(place(policy, f"{label}: no maximumRedeliveryDelay", ""), why)
    if given.get("useCollisionAvoidance", "false").lower() == "true":
        percent = given.get("collisionAvoidancePercent", "15")
        what = place(policy, f"{label}: collisionAvoidancePercent", percent)
        if percent.isdigit():
            draft.put(what, (*key, "redelivery-collision-avoidance-factor"), int(percent) / 100)
        else:
            draft.report.left(what, "this is not a percentage")
