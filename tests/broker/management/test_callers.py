"""Who may call: users, the token, what each call needs; what a browser may not be made to do."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Final, TypeGuard
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from broker.cli import remote
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.names import WHOLE_BROKER
from broker.engine.model.permissions import Permission, PermissionTable
from broker.engine.model.task import Task, TaskKind, TaskRequest, TaskState
from broker.log_events import EVENTS
from broker.management.api import Api
from broker.management.ports import Replicated
from broker.security.login_policy import Policy
from tests.broker.management.harness import TOKEN, Answer, Client, TestBroker, basic, managing
from tests.broker.management.linked import PARIS, ROME, Session, linked
from tests.support.sim_gate import cheap_user

#: The id of the message that `prepare` sends, and of the tasks, one of which is paused, and one a client's.
SECRET: Final = 3
TASK: Final = 1_001
PAUSED: Final = 1_002
EXPORTING: Final = 1_003

#: Every guarded call: method, path, and the addresses (or full names) that `manage` is needed for.
CALLS: dict[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/api/v1/status"): (WHOLE_BROKER,),
    ("GET", "/api/v1/users"): (WHOLE_BROKER,),
    ("GET", "/api/v1/balance"): (WHOLE_BROKER,),
    ("POST", "/api/v1/failover"): (WHOLE_BROKER,),
    ("GET", "/api/v1/definitions"): (WHOLE_BROKER,),
    ("POST", "/api/v1/definitions"): (WHOLE_BROKER,),
    ("POST", "/api/v1/messages:replay"): (WHOLE_BROKER,),
    ("POST", "/api/v1/messages:import"): (WHOLE_BROKER,),
    ("PUT", "/api/v1/uploads/new"): (WHOLE_BROKER,),
    ("DELETE", "/api/v1/uploads/there"): (WHOLE_BROKER,),
    ("GET", f"/api/v1/messages/{SECRET}/trail"): (WHOLE_BROKER,),
    ("GET", "/api/v1/dead-letters/groups?queue=orders"): ("orders",),
    ("GET", "/api/v1/queues/orders"): ("orders",),
    ("GET", "/api/v1/queues/orders::orders"): ("orders",),
    ("GET", "/api/v1/queues/orders/messages"): ("orders",),
    ("GET", f"/api/v1/queues/orders/messages/{SECRET}"): ("orders",),
    ("GET", f"/api/v1/queues/orders/messages/{SECRET}/body"): ("orders",),
    ("GET", f"/api/v1/queues/orders/messages/{SECRET}/stored-body"): ("orders",),
    ("GET", "/api/v1/queues/orders/messages:export"): ("orders",),
    ("POST", "/api/v1/queues/orders/dead-letter-rules:try"): ("orders",),
    ("GET", "/api/v1/dead-letter-rules"): (WHOLE_BROKER,),
    ("POST", "/api/v1/tasks"): ("orders", "other"),
    ("GET", f"/api/v1/tasks/{TASK}"): ("orders",),
    ("POST", f"/api/v1/tasks/{TASK}:pause"): ("orders",),
    ("POST", f"/api/v1/tasks/{PAUSED}:resume"): ("orders",),
    ("POST", f"/api/v1/tasks/{TASK}:cancel"): ("orders",),
    ("POST", f"/api/v1/tasks/{EXPORTING}:remove"): ("orders",),
    ("POST", f"/api/v1/tasks/{EXPORTING}:end"): ("orders",),
    ("PATCH", "/api/v1/queues/orders"): ("orders",),
    ("PATCH", "/api/v1/addresses/orders"): ("orders",),
    ("PUT", "/api/v1/queues/new"): ("orders",),
    ("DELETE", "/api/v1/queues/orders?force=true"): ("orders",),
    ("GET", "/api/v1/addresses/orders"): ("orders",),
    ("GET", "/api/v1/addresses/orders/settings"): ("orders",),
    ("PUT", "/api/v1/addresses/new"): ("new",),
    ("DELETE", "/api/v1/addresses/orders?force=true"): ("orders",),
    ("POST", "/api/v1/addresses/orders/messages"): ("orders",),
    ("POST", "/api/v1/addresses/orders::orders/messages"): ("orders",),
    ("GET", "/api/v1/connections"): (WHOLE_BROKER,),
    ("DELETE", "/api/v1/connections/there"): (WHOLE_BROKER,),
    ("DELETE", "/api/v1/consumers/1"): ("other",),
    ("PUT", "/api/v1/diverts/new"): ("orders", "other"),
    ("DELETE", "/api/v1/diverts/there"): ("orders", "other"),
    ("GET", "/api/v1/links"): (WHOLE_BROKER,),
    ("GET", "/api/v1/links/there"): (WHOLE_BROKER,),
    ("POST", "/api/v1/links/1:start"): (WHOLE_BROKER,),
    ("POST", "/api/v1/links/there:stop"): (WHOLE_BROKER,),
    ("POST", "/api/v1/links/there:pause"): (WHOLE_BROKER,),
    ("POST", "/api/v1/links/there/routes/orders:resolve"): (WHOLE_BROKER,),
}

#: What some calls have to say.
BODIES: dict[tuple[str, str], object] = {
    ("POST", "/api/v1/messages:replay"): {"name": "again", "messages": []},
    ("PUT", "/api/v1/uploads/new"): {"base64": "eA=="},
    ("POST", "/api/v1/messages:import"): {
        "name": "again",
        "target": "orders",
        "messages": [
            {
                "queues": [{"name": "orders"}],
                "address": "orders",
                "protocol": "stomp",
                "timestamp": 1,
                "priority": 4,
                "head": "",
            }
        ],
    },
    ("POST", "/api/v1/definitions"): {
        "version": 1,
        "queues": [{"name": "new", "address": "orders", "routing_type": "ANYCAST"}],
    },
    ("POST", "/api/v1/queues/orders/dead-letter-rules:try"): {},
    ("POST", "/api/v1/tasks"): {"kind": "move", "queue": "orders", "target": "other::other", "rate": 1},
    ("POST", f"/api/v1/tasks/{EXPORTING}:remove"): {"ids": [SECRET]},
    ("POST", f"/api/v1/tasks/{EXPORTING}:end"): {},
    ("PATCH", "/api/v1/queues/orders"): {"attributes": {"max-consumers": 5}},
    ("PATCH", "/api/v1/addresses/orders"): {"paused": True},
    ("PUT", "/api/v1/queues/new"): {"address": "orders"},
    ("POST", "/api/v1/addresses/orders/messages"): {"text": "x"},
    ("POST", "/api/v1/addresses/orders::orders/messages"): {"text": "x"},
    ("POST", "/api/v1/links/there/routes/orders:resolve"): {"discard": False},
    ("PUT", "/api/v1/diverts/new"): {"address": "orders", "forwarding_addresses": ["other"]},
}

#: Calls that change nothing by themselves.
LOOKING = {
    ("POST", "/api/v1/queues/orders/dead-letter-rules:try"),
    ("PUT", "/api/v1/uploads/new"),
    ("DELETE", "/api/v1/uploads/there"),
}

#: Steps of a task, which is told when it starts, with who started it, and when it ends.
STEPS = {("POST", f"/api/v1/tasks/{EXPORTING}:remove"), ("POST", f"/api/v1/tasks/{EXPORTING}:end")}

#: Calls that everybody may make who is known, and that show what he manages.
LISTS = tuple(
    ("GET", f"/api/v1/{what}")
    for what in (
        "queues",
        "addresses",
        "consumers",
        "diverts",
        "dead-letters/groups",
        "reasons",
        "reasons/{word}",
        "tasks",
    )
)

#: Calls that tell everybody who is known the same, and nothing of the broker.
SAME_FOR_ALL = (("GET", "/api/v1/reasons"), ("GET", "/api/v1/reasons/{word}"))

ALICE = basic("alice", "s3cret")


async def call(client: Client, method: str, path: str, headers: dict[str, str]) -> Answer:
    """A call without the token."""
    return await client.call(method, path, token=None, headers=headers, json=BODIES.get((method, path)))


async def prepare(broker: TestBroker, client: Client) -> None:
    """Two queues, one of them with two messages and the other with a consumer, a divert between them, a connection.

    And two links: one of them is connected and has a route in doubt, the other is stopped.
    """
    linked(broker, replace(PARIS, name="there"), replace(ROME, name="1"))
    Session(broker, "there").open().doubt(SECRET)
    broker.send("orders", [b"secret", b"what a task leaves for its next step"])
    broker.read("other")
    broker.engine.connections.opened("there", "STOMP", "10.0.0.7:4711", UNRESTRICTED, lambda reason: None)
    wanted = {"address": "orders", "forwarding_addresses": ["other"]}
    made = await client.call("PUT", "/api/v1/diverts/there", json=wanted)
    assert made.status == 201
    purge = TaskRequest(kind=TaskKind.PURGE, queue="orders", rate=1)
    export = TaskRequest(kind=TaskKind.EXPORT, queue="orders", remove=True)
    tasks = ((TASK, TaskState.RUNNING, purge), (PAUSED, TaskState.PAUSED, purge))
    queue = broker.engine.queue("orders")
    for id, state, request in (*tasks, (EXPORTING, TaskState.RUNNING, export)):
        broker.engine.tasks.restore({id: Task(id, request, 1, state, queue_id=queue.id, address="orders")})
    broker.replication = Replicated("owner", 7)
    await broker.settled()


def state(broker: TestBroker) -> object:
    """What a call could change."""
    state = broker.engine._state
    queues = {name: (q.message_count, q.paused, q.attributes) for name, q in state.queues.items()}
    tasks = {task.id: task.state for task in broker.engine.tasks.all()}
    links = [[link.state, *(route.state for route in link.routes.values())] for link in broker.links.by_name.values()]
    paused = {address.paused for address in state.addresses.values()}
    return queues, sorted(state.diverts.by_name), paused, tasks, links, broker.handed_over


async def test_every_call_is_in_the_table(broker: TestBroker) -> None:
    """A call that is added has to say here what it needs."""
    known = {(method, path.partition("?")[0]) for method, path in (*CALLS, *LISTS, *SAME_FOR_ALL)}
    calls = [route for route in Api(broker, TOKEN, metrics_open=True, hosts=None)._app.routes if is_call(route)]
    assert len(calls) > 25
    for route in calls:
        for method in route.methods or ():
            path = route.path_format.replace("messages/{id}", f"messages/{SECRET}")
            path = path.replace("{route}", "orders")
            id = {":resume": PAUSED, ":remove": EXPORTING, ":end": EXPORTING}.get(path[path.rfind(":") :], TASK)
            path = path.replace("{task}", str(id))
            shapes = [path.replace("{name}", name).replace("{id}", name) for name in ("orders", "there", "new", "1")]
            assert any((method, shape) in known for shape in shapes), f"{method} {route.path}"


def is_call(route: BaseRoute) -> TypeGuard[APIRoute]:
    return isinstance(route, APIRoute)


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_a_call_needs_manage_for_what_it_names_and_nothing_else(
    broker: TestBroker, client: Client, method: str, path: str
) -> None:
    needs = CALLS[method, path]
    await prepare(broker, client)
    before = state(broker)
    for missing in needs:
        managing(broker, *(name for name in needs if name != missing))
        answer = await call(client, method, path, ALICE)
        assert (answer.status, answer.json["code"]) == (403, "denied"), answer.body
        assert state(broker) == before
    managing(broker, *needs)
    assert (await call(client, method, path, ALICE)).status in (200, 201)


@pytest.mark.parametrize(("method", "path"), [*CALLS, *LISTS])
async def test_nobody_calls_without_a_login(broker: TestBroker, client: Client, method: str, path: str) -> None:
    await prepare(broker, client)
    managing(broker, "#")
    before = state(broker)
    for headers in ({}, basic("alice", "wrong"), basic("nobody", "s3cret"), basic("alice", ""), basic("", "")):
        answer = await call(client, method, path, headers)
        assert (answer.status, answer.json["code"]) == (401, "not-logged-in")
    for text in (
        "Basic",
        "Basic !",
        "Basic YWxpY2U=",
        "Basic " + base64.b64encode(b"\xff:x").decode(),
        "Digest x",
        "Bearer x",
    ):
        assert (await call(client, method, path, {"Authorization": text})).status == 401
    assert state(broker) == before


async def test_lists_show_what_the_caller_manages(broker: TestBroker, client: Client) -> None:
    await prepare(broker, client)

    async def seen() -> tuple[list[str], int, int, int]:
        queues, addresses, consumers, diverts = [
            (await call(client, "GET", f"/api/v1/{what}", ALICE)).json
            for what in ("queues", "addresses", "consumers", "diverts")
        ]
        names = [queue["name"] for queue in queues["queues"]]
        assert [address["name"] for address in addresses["addresses"]] == names
        return names, queues["total"], consumers["total"], len(diverts["diverts"])

    assert await seen() == ([], 0, 0, 0)
    managing(broker, "orders")
    assert await seen() == (["orders"], 1, 0, 0)
    managing(broker, "orders", "other")
    assert await seen() == (["orders", "other"], 2, 1, 1)
    managing(broker, "#")
    assert await seen() == (["orders", "other"], 2, 1, 1)


async def test_a_queue_that_is_not_the_callers_is_as_unknown_as_one_that_is_not_there(
    broker: TestBroker, client: Client
) -> None:
    """Also by the name of an address that he manages, on which it is not."""
    broker.queue("secret")
    managing(broker, "mine")
    for name in ("secret", "missing", "secret::secret", "missing::missing"):
        answer = await call(client, "GET", f"/api/v1/queues/{quote(name, safe='')}", ALICE)
        assert answer.status == 403
        assert answer.json["detail"].replace(name, "X") == "permission denied: not allowed to manage X (manage)"
    managing(broker, "mine", "missing")
    there = await call(client, "GET", "/api/v1/queues/missing", ALICE)
    assert (there.status, there.json["code"]) == (404, "not-found")
    broker.tick.enter()
    broker.engine.secure(
        PermissionTable([("#", {Permission.MANAGE: frozenset({"team"})}), ("secret", {Permission.MANAGE: frozenset()})])
    )
    hidden = await call(client, "GET", "/api/v1/queues/secret", ALICE)
    assert hidden.status == 403


async def test_a_wildcard_address_is_managed_by_callers_who_manage_all_that_it_matches(
    broker: TestBroker, client: Client
) -> None:
    """A queue or a divert there would show the caller what an entry of its own keeps secret."""
    team, chiefs = (frozenset({role}) for role in ("team", "chiefs"))
    entries = [("orders.#", {Permission.MANAGE: team}), ("orders.secret", {Permission.MANAGE: chiefs})]
    broker.tick.enter()
    broker.engine.secure(PermissionTable(entries))
    queue = {"address": "orders.#", "routing_type": "MULTICAST", "make_address": True}
    made = await client.call("PUT", "/api/v1/queues/all", json=queue)
    assert made.status == 201
    divert = {"address": "orders.*", "forwarding_addresses": ["orders.mine"]}
    for path, body in (("queues/spy", queue), ("diverts/spy", divert)):
        answer = await client.call("PUT", f"/api/v1/{path}", token=None, headers=ALICE, json=body)
        assert (answer.status, answer.json["code"]) == (403, "denied"), path
    assert (await call(client, "GET", "/api/v1/queues/all/messages", ALICE)).status == 403
    assert (await call(client, "GET", "/api/v1/queues", ALICE)).json["queues"] == []
    queue["address"] = "orders.open.#"
    answer = await client.call("PUT", "/api/v1/queues/open", token=None, headers=ALICE, json=queue)
    assert answer.status == 201, "nothing below it is another's"


async def test_a_queue_by_its_name_alone_is_no_address_to_send_to(broker: TestBroker, client: Client) -> None:
    """Without ADDRESS:: the name is an address's, which another queue of that name does not open."""
    queue = {"address": "mine", "routing_type": "ANYCAST", "make_address": True}
    assert (await client.call("PUT", "/api/v1/queues/orders", json=queue)).status == 201
    managing(broker, "mine")
    path = "/api/v1/addresses/orders/messages"
    for routing_type in (None, "MULTICAST"):
        body = {"text": "x", "routing_type": routing_type}
        answer = await client.call("POST", path, token=None, headers=ALICE, json=body)
        assert (answer.status, answer.json["code"]) == (403, "denied"), answer.body
    path = "/api/v1/addresses/mine::orders/messages"
    answer = await client.call("POST", path, token=None, headers=ALICE, json={"text": "x"})
    assert (answer.status, answer.json["taken"]) == (201, True)


async def test_a_call_that_is_wrong_is_not_in_the_audit_log(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    for method, path, body in (
        ("PATCH", "/api/v1/queues/orders", {"paused": "yes"}),
        ("DELETE", "/api/v1/queues/orders?force=perhaps", None),
        ("POST", "/api/v1/tasks", {"kind": "wrong"}),
    ):
        assert (await client.call(method, path, json=body)).status == 400
    assert not broker.reported("management.called")


async def test_a_password_with_a_colon_and_the_token_of_the_owner(broker: TestBroker, client: Client) -> None:
    managing(broker, "#", role="chiefs")
    assert (await call(client, "GET", "/api/v1/status", basic("carl", "pass:word"))).status == 200
    assert (await call(client, "GET", "/api/v1/status", ALICE)).status == 403
    managing(broker)
    assert (await client.call("GET", "/api/v1/status")).status == 200, "the owner needs no permission"


async def test_one_login_a_connection_and_it_is_counted_while_it_lasts(broker: TestBroker, client: Client) -> None:
    managing(broker, "#")
    head = f"GET /api/v1/status HTTP/1.1\r\nHost: b\r\nAuthorization: {ALICE['Authorization']}\r\n"
    await client.raw((f"{head}\r\n{head}\r\n{head}Connection: close\r\n\r\n").encode())
    assert [code for code, _ in broker.reports] == ["login.accepted"]
    while broker.gate.peers._per_user:
        await broker.settled()


async def test_a_caller_without_roles_or_removed_makes_no_more_calls(broker: TestBroker, client: Client) -> None:
    managing(broker, "#")
    assert (await call(client, "GET", "/api/v1/status", ALICE)).status == 200
    broker.gate.change(type(broker.gate.peers.policy)({}))
    broker.tick.enter()
    broker.engine.secure(None)
    assert (await call(client, "GET", "/api/v1/status", ALICE)).status == 401


async def test_a_password_from_before_a_change_calls_no_more_on_the_same_connection(
    broker: TestBroker, client: Client
) -> None:
    managing(broker, "#")
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)

    async def status() -> int:
        head = f"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ALICE['Authorization']}\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        return int(answer.split()[1])

    assert await status() == 200
    broker.gate.change(Policy({"alice": cheap_user("other", "team")}))
    assert await status() == 401
    broker.gate.change(Policy({"alice": cheap_user("s3cret", "team")}))
    assert await status() == 200
    writer.close()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://b:1", 200),
        ("https://B:1", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://b", 403),
    ],
)
async def test_a_page_of_another_site_changes_nothing(
    broker: TestBroker, client: Client, origin: str | None, status: int
) -> None:
    """A browser would send the user's password along."""
    broker.queue("orders")
    headers = {"Host": "b:1"} | ({} if origin is None else {"Origin": origin})
    answer = await client.call("PATCH", "/api/v1/queues/orders", headers=headers, json={"paused": True})
    assert answer.status == status
    assert broker.queue("orders").paused is (status == 200)


#: What is told of each call that changes something: the code, and how many of what it was.
DEEDS: dict[tuple[str, str], tuple[str, dict[str, object]]] = {
    ("POST", "/api/v1/messages:replay"): ("journal.replayed", {"messages": 0, "replay": "again"}),
    ("POST", "/api/v1/failover"): ("replication.handing_over", {}),
    ("POST", "/api/v1/definitions"): ("queue.created", {"queue": "new", "address": "orders"}),
    ("POST", "/api/v1/messages:import"): ("queue.imported", {"target": "orders", "messages": 1}),
    ("POST", "/api/v1/tasks"): ("task.started", {"kind": "move", "target": "other::other", "rate": 1}),
    ("POST", f"/api/v1/tasks/{TASK}:pause"): ("task.paused", {"task": TASK, "queue": "orders"}),
    ("POST", f"/api/v1/tasks/{PAUSED}:resume"): ("task.resumed", {"task": PAUSED, "kind": "purge"}),
    ("POST", f"/api/v1/tasks/{TASK}:cancel"): ("task.cancelled", {"task": TASK}),
    ("PATCH", "/api/v1/queues/orders"): ("queue.changed", {"attributes": "max-consumers=5"}),
    ("PATCH", "/api/v1/addresses/orders"): ("address.paused", {"address": "orders"}),
    ("PUT", "/api/v1/queues/new"): ("queue.created", {"queue": "new", "address": "orders"}),
    ("DELETE", "/api/v1/queues/orders?force=true"): ("queue.deleted", {"queue": "orders", "messages": 2}),
    ("PUT", "/api/v1/addresses/new"): ("address.created", {"address": "new"}),
    ("DELETE", "/api/v1/addresses/orders?force=true"): ("address.deleted", {"address": "orders", "queues": 1}),
    ("POST", "/api/v1/addresses/orders/messages"): ("address.sent", {"address": "orders", "messages": 1}),
    ("POST", "/api/v1/addresses/orders::orders/messages"): ("address.sent", {"messages": 1}),
    ("DELETE", "/api/v1/connections/there"): ("connection.dismissed", {"connection": "there"}),
    ("DELETE", "/api/v1/consumers/1"): ("consumer.dismissed", {"queue": "other"}),
    ("PUT", "/api/v1/diverts/new"): ("divert.created", {"forwarding": "other"}),
    ("DELETE", "/api/v1/diverts/there"): ("divert.deleted", {"divert": "there"}),
    ("POST", "/api/v1/links/1:start"): ("link.operated", {"link": "1", "verb": "start"}),
    ("POST", "/api/v1/links/there:stop"): ("link.operated", {"link": "there", "verb": "stop"}),
    ("POST", "/api/v1/links/there:pause"): ("link.operated", {"link": "there", "verb": "pause"}),
    ("POST", "/api/v1/links/there/routes/orders:resolve"): ("link.operated", {"route": "orders", "verb": "resend"}),
}


def test_every_deed_has_its_line() -> None:
    assert DEEDS.keys() == {call for call in CALLS if call[0] != "GET"} - LOOKING - STEPS


@pytest.mark.parametrize(("method", "path"), DEEDS)
async def test_a_deed_is_told_once_it_is_done_with_who_did_it(
    broker: TestBroker, client: Client, method: str, path: str
) -> None:
    """And it is in the audit log."""
    await prepare(broker, client)
    managing(broker, "#")
    broker.reports.clear()
    answer = await client.call(method, path, token=None, headers=ALICE, json=BODIES.get((method, path)))
    assert answer.status in (200, 201), answer.body
    reported = [each for each in broker.reports if not each[0].startswith("login.")]
    code, fields = DEEDS[method, path]
    assert [each for each, _ in reported] == ["management.called", code]
    assert EVENTS[code].audited
    assert EVENTS["management.called"].audited
    for _, told in reported:
        assert told["user"] == "alice"
        assert str(told["remote"]).startswith("127.0.0.1:")
        assert "token" not in told
    assert fields.items() <= reported[1][1].items()


async def test_the_owners_token_is_named_and_what_was_chosen(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    asked = {"kind": "purge", "queue": "orders", "filter": "a = 1", "group": {"reason": "rejected"}}
    headers = {"Bartleby-Operator": "carl%20as%20b%C3%A4rtleby"}
    assert (await client.call("POST", "/api/v1/tasks", headers=headers, json=asked)).status == 201
    [fields] = [told for code, told in broker.reports if code == "task.started"]
    assert "user" not in fields
    assert fields["token"] == "management.token"
    assert fields["operator"] == "carl as bärtleby"
    assert (fields["filter"], fields["reason"]) == ("a = 1", "rejected")


@pytest.mark.parametrize("sudo", ["", "alice"])
def test_the_command_line_says_whose_account_it_was(monkeypatch: pytest.MonkeyPatch, sudo: str) -> None:
    monkeypatch.setenv("LOGNAME", "bob")
    monkeypatch.setenv("SUDO_USER", sudo)
    assert remote._account() == ("alice as bob" if sudo else "bob")


#: What no browser shows as a page.
NO_PAGES = ("application/json", "application/problem+json", "text/plain")


@pytest.mark.parametrize("path", ["/livez", "/api/v1/queues/<script>x</script>", "/<script>", "/api/v1/status"])
async def test_cve_2021_32718_no_browser_takes_an_answer_for_a_page(client: Client, path: str) -> None:
    """And CVE-2022-35278, of RabbitMQ and Artemis: the names of queues and users ran as scripts."""
    for token in (TOKEN, None):
        answer = await client.call("GET", quote(path, safe="/"), token=token)
        assert answer.headers["content-type"].partition(";")[0] in NO_PAGES
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
