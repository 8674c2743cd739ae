"""An import of definitions: finds what differs, and applies what can be applied; it never deletes anything.

Each definition is planned first, which is all that a dry run does; then it is applied, some at a time, so that others
are served in between.  What comes from the configuration must be changed there: the next reload would undo any other
change.  What is in files (address settings, permissions, users) is only compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from broker.engine import Engine, NewQueue, Queue, parse_selector
from broker.engine.model.attributes import ATTRIBUTES
from broker.engine.model.errors import EngineError
from broker.engine.model.message import RoutingType
from broker.engine.model.names import check_name, check_not_shared, check_public, check_queue_name
from broker.engine.model.row import kebab
from broker.management.definitions.exporting import PAUSE, permissions_by_match, settings_by_match, users_of
from broker.management.models.definitions import (
    AddressDefinition,
    Change,
    Definitions,
    Difference,
    DivertDefinition,
    Kind,
    Outcome,
    QueueDefinition,
    divert_fields,
    queue_fields,
)
from broker.management.models.diverts import new_divert
from broker.management.models.settings import requested
from broker.management.ports import Broker

#: Definitions imported at a time: some ms of a tick.
STEP: Final = 25

_CONFIGURED: Final = "it comes from this broker's configuration: change it in broker.toml, and reload"
_SETTINGS: Final = "put it into [[address-settings]] of broker.toml, and reload"
_PERMISSIONS: Final = "put it into [[security-settings]] of broker.toml, and reload"

#: Logs what was done: the event's code and its fields.
LogAction = Callable[..., None]


@dataclass(slots=True)
class _Plan:
    """The plan for one definition; `apply` makes the change, and may raise EngineError."""

    kind: Kind
    name: str
    changes: list[Difference] = field(default_factory=list)
    outcome: Outcome = "same"
    why: str = ""
    apply: Callable[[LogAction], None] | None = None

    def refuse(self, why: str) -> _Plan:
        self.outcome, self.why, self.apply = "refused", why, None
        return self

    def change(self) -> Change:
        return Change(kind=self.kind, name=self.name, outcome=self.outcome, changes=self.changes, why=self.why)


class Importing:
    """One import; `log_action` logs each change once it is done."""

    def __init__(self, broker: Broker, log_action: LogAction, *, dry_run: bool) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._log_action = log_action
        self._dry_run = dry_run

    async def run(self, definitions: Definitions) -> list[Change]:
        """Import, and return what became of each definition.  The changes are not on disk yet."""
        plans = list(self._plans(definitions))
        done: list[Change] = []
        for at in range(0, len(plans), STEP):
            self._broker.tick.enter()
            done += [self._done(plan).change() for plan in plans[at : at + STEP]]
            await asyncio.sleep(PAUSE)
        return done + self._compared(definitions)

    def _plans(self, definitions: Definitions) -> Iterator[Callable[[], _Plan]]:
        """A function per definition that plans it; called after the definitions before it were applied."""
        engine = self._engine
        for address in definitions.addresses:
            yield partial(plan_address, engine, address)
        for queue in definitions.queues:
            yield partial(plan_queue, engine, queue)
        for divert in definitions.diverts:
            yield partial(plan_divert, engine, divert)

    def _done(self, planned: Callable[[], _Plan]) -> _Plan:
        plan = planned()
        if plan.apply is not None and not self._dry_run:
            try:
                plan.apply(self._log_action)
            except EngineError as error:
                return plan.refuse(str(error))
        return plan

    # -- what is in files ------------------------------------------------------------------------------------------

    def _compared(self, definitions: Definitions) -> list[Change]:
        settings, table = settings_by_match(self._engine), self._engine.security.table
        users = users_of(self._broker) if definitions.users else {}
        changes = [
            by_hand("address-setting", match, settings.get(match, {}), values, _SETTINGS)
            for match, values in definitions.address_settings.items()
        ]
        permissions = permissions_by_match(table) if definitions.permissions else {}
        for match, granted in definitions.permissions.items():
            before, after = (_sorted_roles(each) for each in (permissions.get(match, {}), granted))
            changes.append(by_hand("permission", match, before, after, _PERMISSIONS))
        for user in definitions.users:
            known = users.get(user.name)
            verb = f"bartleby user {'add' if known is None else 'roles'} {user.name}"
            before = {} if known is None else {"roles": known.roles}
            changes.append(by_hand("user", user.name, before, {"roles": sorted(user.roles)}, f"use `{verb}`"))
        return changes


def _sorted_roles(granted: Mapping[Any, list[str]]) -> dict[str, Any]:
    return {str(permission): sorted(roles) for permission, roles in granted.items() if roles}


def by_hand(kind: Kind, name: str, before: Mapping[str, Any], after: Mapping[str, Any], why: str) -> Change:
    """How a definition that is in a file differs from the document's."""
    changes = _differences(before, after)
    if not changes:
        return Change(kind=kind, name=name, outcome="same", changes=[], why="")
    return Change(kind=kind, name=name, outcome="by-hand", changes=changes, why=why)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The fields of `after` that differ from `before`; fields missing in `after` stay as they are."""
    return [
        Difference(field=name, before=before.get(name), after=value)
        for name, value in after.items()
        if before.get(name) != value or type(before.get(name)) is not type(value)
    ]


# -- what can be done --------------------------------------------------------------------------------------------------


def plan_address(engine: Engine, wanted: AddressDefinition) -> _Plan:
    """The plan for an address."""
    operators, name = engine.operators, wanted.name
    plan = _Plan("address", name)
    types = {RoutingType[each] for each in wanted.routing_types}
    present = engine.addresses.get(name)
    try:
        check_name(name)
        check_public(name, engine.syntax)
    except EngineError as error:
        return plan.refuse(str(error))
    before = {} if present is None else {"paused": present.paused, "routing_types": _names(present.routing_types)}
    after = _names(types | (present.routing_types if present else set()))
    plan.changes = _differences(before, {"routing_types": after, "paused": wanted.paused})
    if present is not None and operators.is_own(present):
        return plan.refuse(f"address {name} is the broker's own")

    def do(log_action: LogAction) -> None:
        address = present or operators.make_address(name, types)
        if present is None:
            log_action("address.created", address=name)
        elif types - address.routing_types:
            operators.add_routing_types(address, types)
            log_action("address.changed", address=name, routing_types=", ".join(after))
        if operators.pause_address(address, paused=wanted.paused):
            log_action("address.paused" if wanted.paused else "address.resumed", address=name)

    return _decided(plan, do, new=present is None)


def _names(types: Iterable[RoutingType]) -> list[str]:
    return sorted(each.name for each in types)


def _decided(plan: _Plan, do: Callable[[LogAction], None], *, new: bool) -> _Plan:
    if new:
        plan.changes.clear()  # everything is new
    if new or plan.changes:
        plan.outcome, plan.apply = "created" if new else "changed", do
    return plan


def plan_queue(engine: Engine, wanted: QueueDefinition) -> _Plan:
    """The plan for a queue; its address is created if it is missing."""
    plan = _Plan("queue", wanted.name)
    present = engine.queues.get(wanted.name)
    try:
        check_queue_name(wanted.name)
        if present is None:
            check_not_shared(wanted.name)
        check_public(wanted.name, engine.syntax)
        check_name(wanted.address)
        check_public(wanted.address, engine.syntax)
        filter = parse_selector(wanted.filter)
    except EngineError as error:
        return plan.refuse(str(error))
    if present is not None:
        return _plan_present(engine, plan, present, wanted)
    made = NewQueue(
        wanted.name,
        wanted.address,
        RoutingType[wanted.routing_type],
        durable=wanted.durable,
        filter=filter,
        requested=requested(wanted.attributes),
        make_address=True,
    )

    def do(log_action: LogAction) -> None:
        new = wanted.address not in engine.addresses
        queue = engine.operators.make_queue(made)
        if new:
            log_action("address.created", address=wanted.address)
        log_action("queue.created", queue=queue.name, address=queue.address.name)
        if wanted.paused and engine.operators.pause(queue, paused=True):
            log_action("queue.paused", queue=queue.name)

    return _decided(plan, do, new=True)


def _queue_fields(wanted: QueueDefinition) -> dict[str, Any]:
    fields = wanted.model_dump(by_alias=True, exclude={"name", "attributes"})
    return fields | {kebab(name): value for name, value in requested(wanted.attributes).items()}


def _plan_present(engine: Engine, plan: _Plan, queue: Queue, wanted: QueueDefinition) -> _Plan:
    before = queue_fields(queue)
    plan.changes = _differences(before | before["attributes"], _queue_fields(wanted))
    changed = {each.field for each in plan.changes}
    attributes = {name: value for name, value in requested(wanted.attributes).items() if kebab(name) in changed}
    if queue.internal or engine.operators.is_own(queue.address):
        return plan.refuse(f"queue {queue.name} is the broker's own")
    fixed = sorted(changed - {"paused", *map(kebab, ATTRIBUTES)})
    if fixed:
        differing = ", ".join(name.replace("_", " ") for name in fixed)
        return plan.refuse(
            f"the queue exists with another {differing}: delete it first (`bartleby queue export` its messages)"
        )
    if queue.configured and attributes.keys() - {"enabled"}:
        return plan.refuse(_CONFIGURED)
    try:
        engine.operators.check_changeable(queue, attributes)
    except EngineError as error:
        return plan.refuse(str(error))

    def do(log_action: LogAction) -> None:
        if attributes and engine.operators.change(queue, attributes):
            shown = ", ".join(f"{kebab(field)}={value}" for field, value in attributes.items())
            log_action("queue.changed", queue=queue.name, attributes=shown)
        if engine.operators.pause(queue, paused=wanted.paused):
            log_action("queue.paused" if wanted.paused else "queue.resumed", queue=queue.name)

    return _decided(plan, do, new=False)


def plan_divert(engine: Engine, wanted: DivertDefinition) -> _Plan:
    """The plan for a divert: a different one is replaced."""
    plan = _Plan("divert", wanted.name)
    present = engine.diverts.get(wanted.name)
    try:
        divert = new_divert(wanted.name, wanted, engine.syntax)
        divert.check()
    except EngineError as error:
        return plan.refuse(str(error))
    before = {} if present is None else divert_fields(present)
    plan.changes = _differences(before, wanted.model_dump(exclude={"name"}))
    if present is not None and plan.changes and (present.configured or present.internal):
        return plan.refuse(_CONFIGURED if present.configured else f"divert {wanted.name} is the broker's own")

    def do(log_action: LogAction) -> None:
        if present is None:
            engine.operators.add_divert(divert)
        else:
            engine.operators.replace_divert(divert)
            log_action("divert.deleted", divert=divert.name)
        log_action(
            "divert.created", divert=divert.name, address=divert.address, forwarding=", ".join(divert.forwarding)
        )

    return _decided(plan, do, new=present is None)
