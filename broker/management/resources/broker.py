"""The calls on the broker as a whole: status, failover, users, the journal's balance, and replay."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from broker.engine import Queue
from broker.engine import Replayed as Done
from broker.engine.model.errors import EngineError
from broker.engine.model.task import Task, TaskKind
from broker.management import replaying
from broker.management.calls import Calls, authorize_whole
from broker.management.client_tasks import turn
from broker.management.cursors import after_name
from broker.management.durable import durable
from broker.management.lines import documented
from broker.management.models import broker as models
from broker.management.models.base import LIMIT_DEFAULT, After, Limit
from broker.management.models.broker import Balance, Replayed, Status, UserList, UserShown
from broker.management.operator_log import log_action
from broker.management.ports import Broker
from broker.management.problems import Refused
from broker.management.turns import in_turns


class BrokerCalls:
    """The calls on one broker as a whole."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add("GET", "/status", self.status, authorize=authorize_whole)
        calls.add("POST", "/failover", self.failover, authorize=authorize_whole, problems=(409,))
        calls.add("GET", "/users", self.users, authorize=authorize_whole)
        calls.add("GET", "/balance", self.balance, authorize=authorize_whole, response_model=Balance)
        calls.add(
            "POST",
            "/messages:replay",
            self.replay,
            authorize=authorize_whole,
            problems=(404, 409),
            body_bytes_max=replaying.BODY_BYTES_MAX,
            openapi_extra=documented(replaying.SCHEMA),
        )

    async def status(self) -> Status:
        """The broker as a whole."""
        [figures] = await in_turns(self._engine.statistics.figures())
        self._broker.tick.enter()
        return models.status(self._broker, figures)

    async def failover(self, request: Request) -> Status:
        """Hand the journal over to the other broker of the pair: confirm what is in flight, then become the standby."""
        if self._broker.replicated() is None:
            raise Refused(
                "not-replicated", "the journal of this broker is in files, so no other broker can take it over"
            )
        self._broker.hand_over()
        log_action(request, "replication.handing_over")
        return await self.status()

    async def users(self, limit: Limit = LIMIT_DEFAULT, after: After = "") -> UserList:
        """The users of the broker and their roles, by name; never their credentials."""
        users = self._broker.gate.users() or {}
        names = sorted(users)
        chosen, next = after_name(names, "users", after, limit)
        shown = [UserShown(name=name, roles=sorted(users[name])) for name in chosen]
        return UserList(users=shown, next=next, total=len(names))

    async def balance(self) -> Response:
        """How many messages of each queue the journal holds below a position; answered once all below it is on disk."""
        self._broker.tick.enter()
        balance: asyncio.Future[tuple[int, list[Queue], list[int]]] = asyncio.get_running_loop().create_future()

        def take() -> None:
            if not balance.done():  # the caller may be gone
                balance.set_result(self._engine.balance())

        self._engine.transactions.between(take)
        position, queues, counts = await balance
        await durable(self._engine)
        # Off the event loop: for 100,000 queues this takes a third of a second.
        broker_id = self._engine.journal.broker_id
        counted = zip(queues, counts, strict=True)
        text = await asyncio.to_thread(lambda: models.balance(broker_id, position, counted).model_dump_json())
        return Response(text, media_type="application/json")

    async def replay(self, request: Request) -> Replayed:
        """Bring messages back from the journal, in order; answered once they are on disk."""
        wanted = await replaying.read_replay(self._engine, await request.body())
        task = await turn(self._broker, wanted.task, TaskKind.REPLAY)
        done, stopped = Done(), ""
        try:
            await in_turns(self._bring_back(wanted, task, done))
        except EngineError as refusal:  # what came before it is replayed
            stopped = str(refusal)
        finally:  # also if the caller is gone
            self._broker.tick.enter()
            if task is None:
                log_action(request, "journal.replayed", replay=wanted.name, messages=done.replayed, stopped=stopped)
            else:
                looked_at = done.replayed + sum(done.refused.values())
                self._engine.tasks.stepped(task, looked_at=looked_at, moved=done.replayed, refused=done.refused)
        await durable(self._engine)
        return Replayed(replayed=done.replayed, refused=done.refused, stopped=stopped)

    def _bring_back(self, wanted: replaying.ReplayRequest, task: Task | None, done: Done) -> Iterator[None]:
        """Work (`in_turns`) that brings messages back until its task ends.  Raises as the engine's verb; TaskEnded."""
        for each in wanted.messages:
            self._broker.tick.enter()
            if task is not None:
                self._engine.tasks.may_step(task, TaskKind.REPLAY)
            self._engine.messages.replay(wanted.name, [each], done)
            yield
