"""The calls to list, create and delete diverts.

A divert created here stays until it is deleted; one of the configuration is created again at each start.
"""

from __future__ import annotations

from starlette.requests import Request

from broker.management.callers import manages_divert, require_address, require_divert
from broker.management.calls import CallerAccess, Calls, anybody
from broker.management.cursors import after_name
from broker.management.durable import durable
from broker.management.models.base import LIMIT_DEFAULT, After, Limit, Name
from broker.management.models.diverts import (
    DivertDeleted,
    DivertList,
    DivertMade,
    NewDivert,
    divert_made,
    divert_shown,
    new_divert,
)
from broker.management.operator_log import log_action
from broker.management.ports import Broker


class DivertCalls:
    """The calls on one broker's diverts."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add("GET", "/diverts", self.list, authorize=anybody)
        calls.add("PUT", "/diverts/{name}", self.create, authorize=_authorize_new, status=201, problems=(409, 507))
        calls.add("DELETE", "/diverts/{name}", self.delete, authorize=self._authorize)

    async def _authorize(self, name: Name, access: CallerAccess) -> None:
        require_divert(access, self._engine, name)

    async def list(self, access: CallerAccess, limit: Limit = LIMIT_DEFAULT, after: After = "") -> DivertList:
        """The diverts that the caller manages, by name."""
        diverts = self._engine.diverts
        names = [name for name in sorted(diverts) if manages_divert(access, diverts[name])]
        chosen, next = after_name(names, "diverts", after, limit)
        return DivertList(diverts=[divert_shown(diverts[name]) for name in chosen], next=next, total=len(names))

    async def create(self, request: Request, name: Name, body: NewDivert) -> DivertMade:
        """Create a divert; answered once that is on disk."""
        divert = new_divert(name, body, self._engine.syntax)
        self._broker.tick.enter()
        operators = self._engine.operators
        operators.add_divert(divert)
        forwarding = ", ".join(divert.forwarding)
        log_action(request, "divert.created", divert=divert.name, address=divert.address, forwarding=forwarding)
        await durable(self._engine)
        return divert_made(divert, operators.lacking_queues(divert))

    async def delete(self, request: Request, name: Name) -> DivertDeleted:
        """Delete a divert; answered once that is on disk."""
        self._broker.tick.enter()
        self._engine.operators.remove_divert(name)
        log_action(request, "divert.deleted", divert=name)
        await durable(self._engine)
        return DivertDeleted(divert=name)


async def _authorize_new(body: NewDivert, access: CallerAccess) -> None:
    for address in (body.address, *body.forwarding_addresses):
        require_address(access, address)
