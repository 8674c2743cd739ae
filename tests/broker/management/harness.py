"""A broker as management sees it: the real engine, turn and journal on the test's event loop, and no other daemon."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import http.client
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from broker.config import AddressSetting
from broker.engine.delivery.redelivery import CLOSED
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.limits import Limits
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.model.permissions import Permission, PermissionTable
from broker.engine.model.settings_match import SettingsTable
from broker.engine.publish.send import Send
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.routing import destinations
from broker.management.callers import require_step
from broker.management.http import HttpServer
from broker.management.limits import Limits as CallLimits
from broker.management.ports import AcceptorState, Replicated
from broker.security.login import UserGate
from broker.security.login_policy import Policy
from broker.security.throttle import Throttle
from broker.sessions.links.links import Links
from broker.sessions.stomp.format import encode_head
from store.files import OsFiles
from store.journal import Journal
from store.log import Counters
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_gate import InlineRunner, cheap_user

NOW = 1_700_000_000_000
TOKEN = "a-token-for-tests"

#: Users of the broker: their passwords and roles.
USERS = {"alice": ("s3cret", "team"), "carl": ("pass:word", "chiefs")}

SETTINGS: list[tuple[str, dict[str, object]]] = [
    ("#", {"dead_letter_address": "DLQ", "management_browse_page_size": 5})
]

#: As shipped, but for these settings, no addresses, and a journal of small segments.
SHIPPED = configured()
CONFIG = SHIPPED.model_copy(
    update={
        "address_settings": tuple(
            AddressSetting.model_validate({"match": match} | {name.replace("_", "-"): values[name] for name in values})
            for match, values in SETTINGS
        ),
        "addresses": {},
        "journal": SHIPPED.journal.model_copy(update={"segment_size": 1 << 20, "reserve": 4096}),
    }
)


class TestBroker(SimBroker):
    """Satisfies `Broker`: a simulated broker whose ticks end on the test's event loop; `limits` are its engine's.

    `disk_works` set to False keeps everything from becoming durable.
    """

    __test__ = False

    def __init__(self, directory: Path, limits: Limits | None = None) -> None:
        self.name = "test"
        self.version = "1.2.3"
        self.started = NOW - 5_000
        self.data_directory = directory
        self.reasons: list[str] = []
        self.disk_works = True
        self.waiting = asyncio.Event()  # somebody waits for the disk, which does not work
        self.events = {"login.refused": 3}
        self.replication: Replicated | None = None  # its journal is in files
        self.handed_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        config = CONFIG.model_copy(
            update={"broker": CONFIG.broker.model_copy(update={"data_directory": str(directory)})}
        )
        super().__init__(config, disk=OsFiles(), now=NOW, engine_limits=dataclasses.asdict(limits or Limits()))
        users = {name: cheap_user(password, role) for name, (password, role) in USERS.items()}
        self.gate = UserGate(
            Policy(users),
            runner=InlineRunner(),
            throttle=Throttle(lambda: self.now, 0),
            report=self._report,
            secret=b"x" * 32,
        )
        self.links = Links(self.engine, ())
        self.engine.security.roles_of = self.gate.peers.roles_of
        self.engine.tasks.go_on(partial(require_step, self.engine))
        self._loop = asyncio.get_running_loop()

    def _wake(self) -> None:
        super()._wake()
        if self._loop is not None:
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        self._woken = False
        self.tick.end()
        if self.disk_works:
            self.write()
        elif any(work.waiters for work in self.engine._state.pending.waiting):
            self.waiting.set()

    def set_settings(self, matches: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        """Change the address settings, as a reload does."""
        self.tick.enter()
        defaults = self.engine._state.registry.settings_table._defaults
        self.engine.configuration.change_settings(SettingsTable(matches, defaults))

    @property
    def journal(self) -> Journal:
        """The journal."""
        return self.parts.journal

    @property
    def counters(self) -> Counters:
        """See Broker."""
        return self.parts.log.counters

    def unready(self) -> list[str]:
        """What the test says."""
        return self.reasons

    def replicated(self) -> Replicated | None:
        """What the test says."""
        return self.replication

    def hand_over(self) -> None:
        """See Broker."""
        self.handed_over = True

    def acceptors(self) -> list[AcceptorState]:
        """Two that are no more than their numbers."""
        return [
            AcceptorState("stomp", "stomp", ("127.0.0.1:61613",), 3, 7, 1),
            AcceptorState("http", "http", ("[::1]:8161",), 1, 2, 0, NOW + 1_000),
        ]

    def close(self) -> None:
        """Give up the journal."""
        self.journal.close()

    # -- what clients would have done ------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The anycast queue of that name, made if it is missing."""
        self.tick.enter()
        found = destinations.queue_to_consume(self.engine._state, name, RoutingType.ANYCAST)
        assert isinstance(found, Queue)
        return found

    def send(
        self,
        name: str,
        bodies: list[bytes],
        *,
        headers: list[tuple[bytes, bytes]] | None = None,
        durable: bool = True,
        scheduled: int = 0,
    ) -> None:
        """Send messages to an anycast queue."""
        queue = self.queue(name)
        header = MessageHeader(
            queue.address.name,
            self.engine.formats[1],
            durable=durable,
            timestamp=self.now,
            scheduled=scheduled,
            user="sender",
            origin="client-1",
        )
        messages = [Message(header, encode_head(headers or []), body) for body in bodies]
        if messages:
            self.engine.producers.publish([Send.at(queue.address, None, RoutingType.ANYCAST, messages)]).check()

    async def settled(self) -> None:
        """Return when what was done is durable and has landed."""
        for _ in range(6):
            await asyncio.sleep(0)

    async def sent(self, name: str, bodies: list[bytes], **options: Any) -> None:
        """Send messages, and return when they have landed."""
        self.send(name, bodies, **options)
        await self.settled()

    def held(self, name: str) -> list[Message]:
        """The messages on a queue, in the order of delivery."""
        return [message for message, _ in self.engine.messages.browse(self.engine.queue(name))]

    def read(self, name: str, inbox: Inbox | None = None, **asked: Any) -> Consumer:
        """A consumer of an anycast queue, which acknowledges message by message."""
        self.tick.enter()
        request = SubscribeRequest(name, RoutingType.ANYCAST, ack_mode=AckMode.INDIVIDUAL, **asked)
        return self.engine.consumers.subscribe(inbox or Inbox(), request)


class Inbox:
    """A sink that keeps what it gets, and why it lost its queue."""

    transport = None

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reasons: list[str] = []

    def journals_deliveries(self, consumer: Consumer) -> bool:
        """Deliveries leave without a record of their own."""
        return False

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        """Keep them."""
        self.messages += messages

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """Note why."""
        self.reasons.append(reason)


async def taken(broker: TestBroker, name: str, *, reject: bool = False, **asked: Any) -> list[Message]:
    """Everything on a queue, acknowledged, or rejected for good; `asked`: of the consumer."""
    inbox = Inbox()
    consumer = broker.read(name, inbox, **asked)
    await broker.settled()
    broker.tick.enter()
    settle = broker.engine.consumers.reject if reject else broker.engine.consumers.acknowledge
    for message in inbox.messages:
        settle(consumer, message.id)
    await broker.settled()
    broker.tick.enter()
    broker.engine.consumers.close(consumer, CLOSED)
    await broker.settled()
    return inbox.messages


async def die(broker: TestBroker, name: str, *bodies: bytes, **asked: Any) -> None:
    """Messages that are sent and rejected for good; `asked`: of the consumer that rejects them."""
    broker.send(name, list(bodies))
    await taken(broker, name, reject=True, **asked)


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def basic(name: str, password: str) -> dict[str, str]:
    """The header of a login."""
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def encode(value: object) -> bytes:
    """A body of a call."""
    return json.dumps(value).encode()


class Client:
    """Calls the server from a thread, as a real client would."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = TOKEN,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        json: object = None,
    ) -> Answer:
        """One request on a connection of its own; `json`: the body, which has yet to be encoded."""
        sent = dict(headers or {})
        if json is not None:
            body = encode(json)
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        return await asyncio.to_thread(self._call, method, path, sent, body)

    def _call(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            got = [(name.lower(), value) for name, value in response.getheaders()]
            assert len(dict(got)) == len(got), "each header once"
            return Answer(response.status, dict(got), response.read())
        finally:
            connection.close()

    async def get(self, path: str) -> Any:
        """A GET that must succeed."""
        answer = await self.call("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    async def raw(self, data: bytes) -> bytes:
        """Bytes as they are; everything that comes back until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


def managing(broker: TestBroker, *addresses: str, role: str = "team", denied: Sequence[str] = ()) -> None:
    """The role, as it is alice's, may manage these, and nothing else; `denied`: nor these, which they cover."""
    broker.tick.enter()
    given = {Permission.MANAGE: frozenset({role})}
    broker.engine.secure(PermissionTable([*((each, given) for each in addresses), *((each, {}) for each in denied)]))


async def upload(broker: TestBroker, name: str, body: bytes, format: int = 1) -> None:
    """Send a message whose body is in a file of its own."""
    engine, queue = broker.engine, broker.queue(name)
    coming = engine.uploads.begin(lambda: None, durable=True)
    engine.uploads.write(coming, body, last=True)
    await broker.settled()
    broker.tick.enter()
    header = MessageHeader(name, engine.formats[format], durable=True, timestamp=broker.now)
    message = Message.of(header, b"", engine.uploads.finished(coming))
    engine.producers.publish([Send.at(queue.address, None, RoutingType.ANYCAST, [message])]).check()
    await broker.settled()


@asynccontextmanager
async def listening(
    broker: TestBroker, host: str = "127.0.0.1", **options: Any
) -> AsyncIterator[tuple[HttpServer, Client]]:
    """An HTTP server of a broker on a free port, with these options, and a client of it."""
    server = HttpServer(broker, TOKEN, **options)
    bound = await server.start(host, 0)
    try:
        yield server, Client(bound[0][1])
    finally:
        await server.stop()


@asynccontextmanager
async def serving(
    directory: Path, engine: Limits | None = None, calls: CallLimits | None = None
) -> AsyncIterator[tuple[TestBroker, Client]]:
    """A broker with its HTTP server on a free port, with these limits of the engine and of calls."""
    broker = TestBroker(directory, engine)
    try:
        async with listening(broker, limits=calls) as (_, client):
            yield broker, client
    finally:
        broker.disk_works = True
        await broker.settled()
        broker.close()


def serve(directory: Path, fill: Callable[[TestBroker, Client], Awaitable[None]]) -> None:
    """Run a broker on the directory until this is done; it ends in good order."""

    async def run() -> None:
        async with serving(directory) as (broker, client):
            await fill(broker, client)

    asyncio.run(run())
