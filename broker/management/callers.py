"""Who calls, and what that user may do: asked once for every call, in one place, before its handler runs.

    Authorization: Bearer TOKEN     the broker's own token, from its data directory: its owner, who may do everything;
                                    else one of the issuer of tokens, if the configuration names one
    Authorization: Basic ...        a user of the broker, as in every protocol: the same gate, slowed and audited alike
    a client certificate            its user, if nothing else is given

Nobody is anonymous here.  A user needs `manage` for whatever a call names: a queue by its full name, then its address;
the broker as a whole is the address `activemq.management`, as in ActiveMQ Artemis.  What a user may not manage is as
unknown to him as what there is not.

A connection remembers who its last call came from, so that a page of calls is one login; it is asked anew when users
or rules have changed since.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final

from starlette.requests import Request

from broker.engine import Engine
from broker.engine.model.access import UNRESTRICTED, Access, Identity
from broker.engine.model.errors import NotFound
from broker.engine.model.names import split_fqqn
from broker.engine.model.permissions import Permission
from broker.engine.model.task import Task
from broker.management.ports import Broker
from broker.sessions.login import Peer

#: The address that stands for the broker as a whole.
WHOLE_BROKER: Final = "activemq.management"

#: Where a request's scope has its caller, and what was found out about it.
CALLER: Final = "caller"
ACCESS: Final = "access"

#: What somebody unknown is told about how to come in (RFC 7617, 6750).
CHALLENGE: Final = 'Bearer, Basic realm="bartleby", charset="UTF-8"'


class Unknown(Exception):
    """Nobody who may come in."""


@dataclass(slots=True, eq=False)
class Caller:
    """One connection: the peer, and who its last call was from."""

    peer: Peer
    authorization: str | None = field(init=False, default=None)
    access: Access | None = field(init=False, default=None)
    version: int = field(init=False, default=-1)  # of the users and rules by which it was let in
    in_session: bool = field(init=False, default=False)  # it has asked for a page of the console after a login


class Callers:
    """Who calls a broker, whose own token this is."""

    def __init__(self, broker: Broker, token: str) -> None:
        self._broker = broker
        self._token = token.encode()

    async def access(self, request: Request) -> Access:
        """What the caller may do.  Raises Unknown, maybe after a while."""
        caller: Caller = getattr(request.state, CALLER)
        given = request.headers.get("authorization", "")
        gate, version = self._broker.gate, self._broker.gate.version
        over = gate.gone(caller.peer) or gate.expired(caller.peer, self._broker.engine.now)
        if caller.access is not None and (caller.authorization, caller.version) == (given, version) and not over:
            return caller.access
        scheme, _, text = given.partition(" ")
        if scheme.lower() == "bearer" and compare_digest(text.strip().encode(), self._token):
            access = UNRESTRICTED
        else:
            identity = await self._login(caller.peer, scheme.lower(), text.strip())
            if identity is None or not identity.user:
                raise Unknown
            access = self._broker.engine.security.access(identity, "")
        caller.authorization, caller.version, caller.access = given, version, access
        return access

    async def _login(self, peer: Peer, scheme: str, text: str) -> Identity | None:
        gate = self._broker.gate
        self._broker.tick.enter()
        if not scheme:
            return gate.external(peer, "") if peer.subject else None
        told: asyncio.Future[Identity | None] = asyncio.get_running_loop().create_future()

        def then(identity: Identity | None) -> None:
            if not told.done():  # the caller may have gone
                told.set_result(identity)

        if scheme == "bearer":
            gate.bearer(peer, "", text.encode(), then)
        else:
            gate.named(peer, *(_credentials(text) if scheme == "basic" else ("", b"")), then)
        return await told


def _credentials(text: str) -> tuple[str, bytes]:
    """Name and password (RFC 7617); both empty if it cannot be read."""
    try:
        name, separator, password = base64.b64decode(text, validate=True).partition(b":")
        return (name.decode(), password) if separator else ("", b"")
    except (binascii.Error, ValueError):
        return "", b""


# -- what calls name ---------------------------------------------------------------------------------------------------


def require_whole(access: Access) -> None:
    """For the broker as a whole.  Raises Denied."""
    access.require(Permission.MANAGE, WHOLE_BROKER)


def require_address(access: Access, address: str) -> None:
    """Raises Denied."""
    access.require(Permission.MANAGE, address)


def require_queue(access: Access, engine: Engine, name: str) -> None:
    """For a queue by its name or full name.  Raises Denied; NotFound for one that is hidden from the caller."""
    address, queue_name = split_fqqn(name)
    try:
        queue = engine.queue(name)
    except NotFound:
        access.require(Permission.MANAGE, address, queue_name or "")
        return
    if not access.allows(Permission.MANAGE, queue.address.name, queue.name):
        access.require(Permission.MANAGE, address, queue_name or "")
        raise NotFound(f"queue {name} does not exist")


def require_target(access: Access, engine: Engine, name: str) -> None:
    """For what messages are moved to: an address, or else a queue by its name or full name.  As `require_queue`."""
    if name in engine.addresses:
        require_address(access, name)
    else:
        require_queue(access, engine, name)


def require_new_task(access: Access, engine: Engine, queue: str, target: str, *, edits: bool) -> None:
    """For a task on a queue, which moves messages to a target, or (empty) back to where they came from.

    Where they came from may be anywhere, so who edits them on the way there has to manage all.  Raises as the others.
    """
    require_queue(access, engine, queue)
    if target:
        require_target(access, engine, target)
    elif edits and not access.everywhere(Permission.MANAGE):
        require_whole(access)


def require_task(access: Access, task: Task) -> None:
    """For a task, also one whose queue is gone, or that has none.  Raises Denied."""
    access.require(Permission.MANAGE, task.address or WHOLE_BROKER, task.request.queue, named=f"task {task.id}")


def knows_task(access: Access, task: Task) -> bool:
    """The same for a list."""
    return access.might(Permission.MANAGE, task.address or WHOLE_BROKER, task.request.queue)


async def managed(access: Access, names: list[str], place: Callable[[str], tuple[str, str]]) -> list[str]:
    """Of names those that the caller manages; `place` is the address and the queue (empty for an address as such).

    It may take a while, in which some of them can go.
    """
    if access.everywhere(Permission.MANAGE):
        return names
    chosen = await asyncio.to_thread(access.chosen, Permission.MANAGE, [place(name) for name in names])
    return [name for name, manages in zip(names, chosen, strict=True) if manages]
