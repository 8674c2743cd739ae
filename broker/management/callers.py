"""Authentication and permissions of HTTP calls: checked once for every call, in one place, before its handler runs.

    Authorization: Bearer TOKEN     the broker's own token, from its data directory: may do everything;
                                    else a token of the configured issuer, if there is one
    Authorization: Basic ...        a user of the broker, as in every protocol: the same gate, throttling and audit log
    a client certificate            its user, if no Authorization is given

There is no anonymous access.  A user needs `manage` on everything that a call names: a queue by its full name, then its
address; the broker as a whole is the address `activemq.management`, as in ActiveMQ Artemis.  What a user may not manage
is answered like what does not exist.

A connection remembers the login of its last call, so that a page of calls is one login.  It logs in again after users
or rules have changed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hmac import compare_digest
from typing import Final

from starlette.requests import Request

from broker.engine import Consumer, Divert, Engine
from broker.engine.model.access import UNRESTRICTED, Access, Identity
from broker.engine.model.errors import NotFound
from broker.engine.model.names import WHOLE_BROKER, split_fqqn
from broker.engine.model.permissions import Permission
from broker.engine.model.task import Task
from broker.management.ports import Broker
from broker.management.turns import in_turns
from broker.sessions.login import Peer

#: Where the state of a request holds its caller, and the caller's permissions.
CALLER: Final = "caller"
ACCESS: Final = "access"

#: The challenge of a 401: how to log in (RFC 7617, 6750).
CHALLENGE: Final = 'Bearer, Basic realm="bartleby", charset="UTF-8"'

#: What an unknown caller is told.
LOG_IN: Final = "log in as a user of the broker, or with the token of management.token in the data directory"


class Unknown(Exception):
    """The caller could not be authenticated."""


@dataclass(slots=True, eq=False)
class Caller:
    """One connection: the peer, and the login of its last call."""

    peer: Peer
    authorization: str | None = field(init=False, default=None)
    access: Access | None = field(init=False, default=None)
    version: int = field(init=False, default=-1)  # of the users and rules at its login
    manages: bool = field(init=False, default=False)  # it has called as somebody with the permission `manage`


class Callers:
    """Authenticates the callers of one broker; `token` is the broker's own."""

    def __init__(self, broker: Broker, token: str) -> None:
        self._broker = broker
        self._token = token.encode()

    async def access(self, request: Request) -> Access:
        """The caller's permissions.  Raises Unknown, perhaps after a delay."""
        caller: Caller = getattr(request.state, CALLER)
        given = request.headers.get("authorization", "")
        gate, version = self._broker.gate, self._broker.gate.version
        over = gate.peers.gone(caller.peer) or gate.peers.expired(caller.peer, self._broker.engine.now)
        if caller.access is not None and (caller.authorization, caller.version) == (given, version) and not over:
            return caller.access
        scheme, _, text = given.partition(" ")
        if is_token(given, self._token):
            access = UNRESTRICTED
        else:
            found = await log_in(self._broker, partial(self._ask, caller.peer, scheme.lower(), text.strip()))
            if found is None:
                raise Unknown
            access = found
        caller.authorization, caller.version, caller.access = given, version, access
        caller.manages = access.anywhere(Permission.MANAGE)
        return access

    def _ask(self, peer: Peer, scheme: str, text: str, then: Then) -> None:
        gate = self._broker.gate
        if not scheme:
            then(gate.external(peer, "") if peer.subject else None)
        elif scheme == "bearer":
            gate.bearer(peer, "", text.encode(), then)
        else:
            gate.named(peer, *(_credentials(text) if scheme == "basic" else ("", b"")), then)


def is_token(authorization: str, token: bytes) -> bool:
    """Whether a caller presents the broker's own token."""
    scheme, _, text = authorization.partition(" ")
    return scheme.lower() == "bearer" and compare_digest(text.strip().encode(), token)


#: Takes the identity of a caller; None: its login is refused.
Then = Callable[[Identity | None], None]


async def log_in(broker: Broker, ask: Callable[[Then], None]) -> Access | None:
    """The permissions of the user whom `ask` identifies, perhaps after a delay; None: the login is refused."""
    answer: asyncio.Future[Identity | None] = asyncio.get_running_loop().create_future()

    def then(identity: Identity | None) -> None:
        if not answer.done():  # the caller may have disconnected
            answer.set_result(identity)

    broker.tick.enter()
    ask(then)
    identity = await answer
    if identity is None or not identity.user:
        return None
    return broker.engine.security.access(identity, "")


def _credentials(text: str) -> tuple[str, bytes]:
    """Name and password (RFC 7617); both empty if it cannot be read."""
    try:
        name, separator, password = base64.b64decode(text, validate=True).partition(b":")
        return (name.decode(), password) if separator else ("", b"")
    except (binascii.Error, ValueError):
        return "", b""


# -- what calls name ---------------------------------------------------------------------------------------------------


def require_whole(access: Access) -> None:
    """Require `manage` on the broker as a whole.  Raises Denied."""
    access.require(Permission.MANAGE, WHOLE_BROKER)


def require_address(access: Access, address: str) -> None:
    """Require `manage` on an address.  Raises Denied."""
    access.require(Permission.MANAGE, address)


async def require_all_queues(access: Access, engine: Engine, address: str) -> None:
    """Require `manage` on an address and each of its queues, which an entry of their own may deny.  Raises Denied."""
    require_address(access, address)
    found = engine.addresses.get(address)
    names = [] if found is None else [queue.name for queue in engine.queues_of(found)]
    allowed = set(await managed(access, names, lambda name: (address, name)))
    for name in names:
        if name not in allowed:
            access.require(Permission.MANAGE, address, name, named=f"all queues of {address}")


def require_new_queue(access: Access, address: str, name: str) -> None:
    """Require `manage` on the address of a new queue, and on its full name, if an entry of its own denies that."""
    require_address(access, address)
    access.require(Permission.MANAGE, address, name)


def require_queue(access: Access, engine: Engine, name: str) -> None:
    """Require `manage` on a queue, by name or full name.  Raises Denied; NotFound if it is hidden from the caller."""
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
    """Require `manage` on the target of a move: an address, else a queue as in `require_queue`."""
    if name in engine.addresses:
        require_address(access, name)
    else:
        require_queue(access, engine, name)


def require_destination(access: Access, engine: Engine, name: str) -> None:
    """Require `manage` on the destination of a message: an address, or a queue as ADDRESS::QUEUE.

    Unlike the target of a move, it is never only a queue's name.  Raises the same exceptions as `require_queue`.
    """
    if split_fqqn(name)[1] is None:
        require_address(access, name)
    else:
        require_queue(access, engine, name)


def manages_divert(access: Access, divert: Divert) -> bool:
    """Whether the caller manages all addresses of a divert."""
    return all(access.might(Permission.MANAGE, address) for address in (divert.address, *divert.forwarding))


def require_divert(access: Access, engine: Engine, name: str) -> None:
    """Require `manage` on all addresses of a divert.  Raises Denied; NotFound if it is hidden from the caller."""
    divert = engine.diverts.get(name)
    if divert is None or not manages_divert(access, divert):
        require_whole(access)
        raise NotFound(f"divert {name} does not exist")


async def consumer_of(access: Access, engine: Engine, id: str) -> Consumer | None:
    """A consumer of a queue that the caller manages.  Raises Denied if there is none for a caller with fewer rights."""

    def having() -> Iterator[Consumer | None]:
        for part in engine.statistics.parts():
            for queue in part:
                yield from (each for each in queue.holders() if str(each.id) == id)
            yield None

    for each in await in_turns(having()):
        if not each.closed and access.might(Permission.MANAGE, each.queue.address.name, each.queue.name):
            return each
    require_whole(access)
    return None


def require_new_task(access: Access, engine: Engine, queue: str, target: str, *, edits: bool) -> None:
    """Require what a new task needs: `manage` on its queue and on its target; empty: back to where messages came from.

    Messages may have come from anywhere, so editing them needs `manage` on everything, also on a move: they still name
    their sender and where they first died, and a later retry or rule takes them there.  Raises as the others.
    """
    require_queue(access, engine, queue)
    _require_effects(access, engine, target, edits=edits)


def require_step(engine: Engine, task: Task) -> None:
    """Require, of the user who started a task, what it needed then.  Raises as the others."""
    identity = task.request.identity
    if identity is not None:
        access = engine.security.access(identity, "")
        access.require(Permission.MANAGE, task.address, task.request.queue)
        _require_effects(access, engine, task.request.target, edits=bool(task.request.edit))


def _require_effects(access: Access, engine: Engine, target: str, *, edits: bool) -> None:
    if target:
        require_target(access, engine, target)
    if edits and not access.everywhere(Permission.MANAGE):
        require_whole(access)


def require_task(access: Access, task: Task) -> None:
    """Require `manage` on a task's queue, which may be gone, or on the broker if it has none.  Raises Denied."""
    access.require(Permission.MANAGE, task.address or WHOLE_BROKER, task.request.queue, named=f"task {task.id}")


def knows_task(access: Access, task: Task) -> bool:
    """Whether the caller may see a task in a list."""
    return access.might(Permission.MANAGE, task.address or WHOLE_BROKER, task.request.queue)


async def managed(access: Access, names: list[str], place: Callable[[str], tuple[str, str]]) -> list[str]:
    """The names that the caller manages; `place` gives a name's address and queue (empty for an address as such), or
    raises KeyError.

    This may take a while, in which some of them may be deleted.
    """
    if access.everywhere(Permission.MANAGE):
        return names

    def placed() -> Iterator[tuple[str, tuple[str, str]] | None]:
        for name in names:
            try:
                yield name, place(name)
            except KeyError:
                yield None  # it is deleted

    places = await in_turns(placed())
    chosen = await asyncio.to_thread(access.chosen, Permission.MANAGE, [where for _, where in places])
    return [name for (name, _), manages in zip(places, chosen, strict=True) if manages]
