"""Clients that have sessions, their subscriptions, the names of the subscriptions' queues, and the sessions' end."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import Final

from broker.engine.client_sessions.endings import IN_FLIGHT_OUTCOMES, Ending, Outcome, SubscriptionKind
from broker.engine.client_sessions.stored_session import Definition
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.errors import Denied
from broker.engine.model.names import NAME_BYTES_MAX, SHARED_PREFIX, WHOLE_BROKER, digest_of
from broker.engine.model.permissions import Permission
from broker.engine.model.report import Report
from broker.engine.queues.alarms import Call
from broker.engine.queues.queue import Consumer
from broker.engine.queues.state import State

#: The expiry of a session that does not end.
NEVER_EXPIRES: Final = 0xFFFF_FFFF

#: What it costs to end a session or to publish a will, in microseconds (`queues.steps`).
DUE_COST: Final = 150

_SECOND_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class Client:
    """A client and the properties of its session.

    It is, or was, connected from `remote`; `disconnected`: since when it is away, in ms since the epoch, 0: it is not.
    `expiry`: how long its session outlives the connection, in seconds.  `queued_max`: messages that may wait on a
    subscription, -1: no limit, and `drop_oldest`: whether the oldest make room for more.  `filtered`: whether a
    wildcard subscription is granted without the messages that the client may not read, instead of refused.
    """

    id: str
    access: Access = UNRESTRICTED  # until the client has logged in
    remote: str = ""
    disconnected: int = 0
    expiry: int = 0
    queued_max: int = -1
    drop_oldest: bool = False
    filtered: bool = False

    @property
    def connected(self) -> bool:
        """Whether it is connected."""
        return not self.disconnected

    @property
    def lasting(self) -> bool:
        """Whether its session outlives its connection."""
        return self.expiry > 0

    def admit(self, asked: Client, report: Report) -> None:
        """Let a connecting client have this session, clean start or not.  Raises Denied if it belongs to another user.

        A session belongs to the user who made it.  A user with `manageSessions` may take those of others, which are
        that user's from then on.
        """
        access, owner = asked.access, self.access.user
        if access.owns(owner):
            return
        granted = access.might(Permission.MANAGE_SESSIONS, WHOLE_BROKER)
        report(
            "session.taken_over" if granted else "session.refused",
            client=self.id,
            user=access.user,
            owner=owner,
            remote=asked.remote,
        )
        if not granted:
            raise Denied("permission denied: the session of this client identifier belongs to another user")

    def renew(self, asked: Client) -> None:
        """Take over the properties of a new connection of the client."""
        for each in fields(self):
            setattr(self, each.name, getattr(asked, each.name))

    def definition(self) -> Definition:
        """The part that is stored with its session."""
        roles = self.access.identity and self.access.identity.lasting_roles
        return {
            "user": self.access.user,
            **({} if roles is None else {"roles": roles}),
            "expiry": self.expiry,
            "disconnected": self.disconnected,
            "queued_max": self.queued_max,
            "drop_oldest": self.drop_oldest,
            **({"filtered": True} if self.filtered else {}),
        }

    @classmethod
    def restored(cls, id: str, access: Access, stored: Definition, now: int) -> Client:
        """Restore a stored client; one that was connected then is away since now."""
        disconnected = int(str(stored["disconnected"])) or now
        return cls(
            id,
            access,
            disconnected=disconnected,
            expiry=int(str(stored["expiry"])),
            queued_max=int(str(stored["queued_max"])),
            drop_oldest=bool(stored["drop_oldest"]),
            filtered=bool(stored.get("filtered")),
        )


@dataclass(slots=True, eq=False)
class ClientSubscription:
    """A subscription, and the consumer of its queue while there is one.

    `pattern` matches addresses, `share` is the group of clients that share it, `qos` 0: at most once.  `borrowed`: its
    queue is one that others consume too, and has another name.  `queue_id`: the durable queue of its own that its last
    consumer had, 0: none; a queue of its name with another id is another subscriber's.  `filtered_for`: the user to
    whom it was granted without the messages that this user may not read (`Client.filtered`); None: to nobody.
    """

    client: Client
    pattern: str
    wildcard: bool
    share: str | None
    name: str = field(init=False)
    consumer: Consumer | None = field(init=False, default=None)
    borrowed: bool = field(init=False, default=False)
    queue_id: int = field(init=False, default=0)
    qos: int = field(init=False, default=0)
    no_local: bool = field(init=False, default=False)
    filtered_for: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.name = queue_name(self.client.id, self.share, self.pattern)

    @property
    def shared(self) -> bool:
        """Whether several clients share it."""
        return self.share is not None

    @property
    def filtered(self) -> bool:
        """Whether its queue takes only what its client may read: because of how it is connected now, or was before."""
        granted = self.client.filtered or self.filtered_for == self.client.access.user
        return granted and self.wildcard and not self.shared

    @property
    def attached(self) -> Consumer | None:
        """Its consumer, unless closed."""
        return None if self.consumer is None or self.consumer.closed else self.consumer

    @property
    def reliable(self) -> bool:
        """Whether messages that it has are sent until they are acknowledged."""
        return self.qos > 0

    @property
    def kind(self) -> SubscriptionKind:
        """Whose its queue is."""
        if self.borrowed:
            return SubscriptionKind.BORROWED
        return SubscriptionKind.SHARED if self.shared else SubscriptionKind.OWN

    @property
    def stays(self) -> bool:
        """Whether its consumer stays while the client is away, so that nothing is lost."""
        return self.reliable and IN_FLIGHT_OUTCOMES[self.kind, Ending.DISCONNECTED].exactly_once is Outcome.STAYS

    def completes(self, ending: Ending) -> bool:
        """Whether messages in flight stay with the client after such an ending, and their queue with them."""
        outcomes = IN_FLIGHT_OUTCOMES[self.kind, ending]
        consumer = self.attached
        durable = consumer is not None and consumer.queue.durable
        return durable and Outcome.STAYS in outcomes[:2] and (self.reliable or self.shared)

    @property
    def origin(self) -> str:
        """The origin whose messages it does not want; empty: it wants all."""
        return self.client.id if self.no_local else ""


class SessionExpiry:
    """Times the end of the sessions of clients that are away, and their wills."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def begin(self, client: Client, expired: Call, will_delay: int | None, will_due: Call) -> None:
        """Begin for a client that has disconnected: call `expired` when its session ends, `will_due` before that.

        `will_delay` in seconds, None: it has no will.  A will that would be due later goes with the session.
        """
        alarms, expiry = self._state.schedule.session_alarms, client.expiry
        since = min(client.disconnected, self._state.now)  # the clock may have been set back meanwhile
        if expiry != NEVER_EXPIRES:
            alarms.at(("session", client.id), since + expiry * _SECOND_MS, partial(self._call, expired))
        if will_delay is not None and (expiry == NEVER_EXPIRES or will_delay < expiry):
            alarms.at(("will", client.id), since + will_delay * _SECOND_MS, partial(self._call, will_due))

    def _call(self, call: Call) -> None:
        self._state.steps.spend(DUE_COST)
        call()

    def stop(self, client: Client) -> None:
        """Stop for a client that has returned or whose session has ended; no effect if it was not away."""
        self._state.schedule.session_alarms.cancel(("session", client.id))
        self._state.schedule.session_alarms.cancel(("will", client.id))


def queue_name(client_id: str, share: str | None, pattern: str) -> str:
    r"""The name of a subscription's queue: `client.a.b`, or `$share.group.a.b`; unique to each subscription.

    Characters that would end the client's part too early, or make it look like a shared subscription, are escaped:
    client `a.b` has `a\.b.c`, as topics are.  A pattern that is too long is replaced by its digest.
    """
    owner = _escaped(client_id) if share is None else SHARED_PREFIX + _escaped(share)
    name = f"{owner}.{pattern}"
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    return f"{owner}.{digest_of(pattern)}"


def client_of(name: str) -> str:
    """The id of the client of a subscription's queue, by the queue's name; for a shared one, no client's id."""
    owner: list[str] = []
    characters = iter(name)
    for character in characters:
        if character == ".":
            break
        owner.append(next(characters, "") if character == "\\" else character)
    return "".join(owner)


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace(".", "\\.")
    while "::" in text:
        text = text.replace("::", ":\\:")
    return "\\" + text if text.startswith("$") else text
