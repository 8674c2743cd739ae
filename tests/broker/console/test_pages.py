"""The other pages: dead letters, addresses, who is connected, diverts, users, health, reports, words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from broker.engine import MessageRange
from broker.engine.model.access import Identity
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission, PermissionTable
from broker.engine.moves.dead_letter_rules import Action, DeadLetterRule
from broker.management.models.base import WORD_CHARS_MAX
from broker.management.ports import Replicated
from broker.sessions.links.model import LinkSettings, State
from tests.broker.console.harness import Browser
from tests.broker.management.harness import Inbox, TestBroker, die, managing
from tests.broker.management.linked import Session, linked

MARKUP = "<script>window.hacked=1</script>\"'"


async def test_dead_letters_are_brought_back_by_group(broker: TestBroker, owner: Browser) -> None:
    assert "There are no queues of dead letters" in (await owner.get("/dead-letters")).seen
    await die(broker, "orders", b"1", b"2")
    await die(broker, "bills", b"3")
    page = await owner.get("/dead-letters")
    assert "2 DLQ rejected orders" in page.seen
    assert "1 DLQ rejected bills" in page.seen
    assert "3 in all" in page.seen
    groups = page.forms("/messages")
    assert [group["group-origin"] for group in groups] == ["orders", "bills"]
    look = await owner.get("/queue?name=DLQ&group-reason=rejected&group-origin=orders")
    assert "Of one group of dead letters: reason rejected , died on orders" in look.seen
    assert look.text.count('name="id"') == 2
    sent = await owner.post("/messages", {**groups[0], "do": "retry"})
    assert sent.to == "/dead-letters"
    page = await owner.follow(sent)
    assert "2 messages went back to where they came from." in page.seen
    assert "1 in all" in page.seen
    assert [broker.engine.queue(name).message_count for name in ("orders", "bills", "DLQ")] == [2, 0, 1]
    page = await owner.get("/dead-letters?queue=DLQ&by=hour&by=words")
    assert "2023-11-14 22:00:00" in page.seen
    assert (await owner.get("/dead-letters?queue=nowhere")).status == 404
    [fields] = broker.reported("task.started")
    assert (fields["origin"], fields["token"]) == ("orders", "management.token")


async def test_messages_sent_to_a_dead_letter_queue_are_a_group_too(broker: TestBroker, owner: Browser) -> None:
    await die(broker, "orders", b"1")
    await broker.sent("DLQ", [b"2", b"3"])
    page = await owner.get("/dead-letters?by=reason")
    assert "2 DLQ it did not die" in page.seen
    [group] = [each for each in page.forms("/messages") if not each["group-reason"]]
    look = await owner.get(f"/queue?name=DLQ&group-reason={group['group-reason']}")
    assert look.text.count('name="id"') == 2
    page = await owner.follow(await owner.post("/messages", {**group, "do": "retry"}))
    assert "2 stayed: Their origin is unknown" in page.seen


async def test_a_dead_letter_says_why_it_died_and_what_to_do(broker: TestBroker, owner: Browser) -> None:
    await die(broker, "orders", b"1")
    [message] = broker.held("DLQ")
    page = await owner.get(f"/message?queue=DLQ&id={message.id}")
    assert "A consumer refused it for good" in page.seen
    assert "What to do:" in page.seen
    assert "On queue orders" in page.seen
    assert "dead-letter reason" in (await owner.get("/explain?q=rejected")).seen
    assert "Did you mean" in (await owner.get("/explain?q=max-deliverys")).seen
    assert (await owner.get("/explain")).status == 200
    assert (await owner.get(f"/explain?q={'a' * WORD_CHARS_MAX}")).status == 200
    assert (await owner.get(f"/explain?q={'a' * (WORD_CHARS_MAX + 1)}")).status == 400


async def test_an_address_shows_its_settings_and_where_each_is_from(broker: TestBroker, owner: Browser) -> None:
    broker.queue("orders")
    page = await owner.get("/addresses?sort=queues&down=1&q=ord")
    assert "orders" in page.text
    page = await owner.get("/address?name=orders")
    assert 'dead-letter-address DLQ match = "#"' in page.seen
    assert "max-delivery-attempts 10 default" in page.seen
    await owner.send(page, "/address/pause")
    assert broker.engine.queue("orders").stopped
    await owner.send(await owner.get("/address?name=orders"), "/address/resume")
    assert not broker.engine.queue("orders").stopped
    assert (await owner.send(page, "/address/delete")).status == 409
    assert (await owner.send(page, "/address/delete", force="1")).to == "/addresses"
    assert "orders" not in broker.engine.addresses
    kinds: dict[str, str | list[str]] = {"routing-type": ["ANYCAST", "MULTICAST"]}
    made = await owner.send(await owner.get("/addresses"), "/addresses/make", name=MARKUP, **kinds)
    page = await owner.follow(made)
    assert "anycast multicast" in page.seen
    assert "<script>w" not in page.text


async def test_clients_are_seen_and_closed(broker: TestBroker, owner: Browser) -> None:
    goodbyes: list[str] = []
    broker.tick.enter()
    access = broker.engine.security.access(Identity("guest", frozenset()), MARKUP)
    broker.engine.connections.opened("c-1", "STOMP", "127.0.0.1:5", access, goodbyes.append)
    inbox = Inbox()
    broker.read("orders", inbox)
    page = await owner.get("/connections")
    assert "127.0.0.1:5" in page.seen
    assert "<script>w" not in page.text
    assert "127.0.0.1:5" in (await owner.get(f"/connections?q={quote(MARKUP)}")).seen
    assert "No connection matches" in (await owner.get("/connections?q=nobody")).seen
    assert (await owner.send(page, "/connections/close", reason="maintenance")).to == "/connections"
    assert goodbyes == ["closed by an operator: maintenance"]
    assert (await owner.send(page, "/connections/close", id="c-2")).status == 404
    page = await owner.get("/consumers?sort=unacknowledged&down=1&q=orders")
    assert (await owner.send(page, "/consumers/close")).to == "/consumers"
    assert inbox.reasons == ["closed by an operator"]
    assert (await owner.send(page, "/consumers/close")).status == 404
    assert broker.reported("consumer.dismissed")
    assert broker.reported("connection.dismissed")


async def test_a_link_is_seen_and_steered(broker: TestBroker, owner: Browser) -> None:
    linked(broker)
    session = Session(broker)
    await broker.sent("orders.out", [b"1"])
    session.lose(f"connection refused: {MARKUP}")
    page = await owner.get("/links?q=par")
    assert "paris retrying 2023-11-14 22:13:20 amqp://paris:5672 0 of 2 0 0 0 connection refused" in page.seen
    assert "rome" not in page.seen
    assert "There are no links" not in page.seen
    assert "No link has “oslo” in its name" in (await owner.get("/links?q=oslo")).seen
    overview = await owner.get("/")
    assert "Link paris is retrying: connection refused" in overview.seen
    assert "Link rome is stopped" in overview.seen
    page = await owner.get("/link?name=paris")
    assert "Connect now" in page.seen
    assert "orders send stopped orders.out orders 1" in page.seen
    assert "<script>w" not in page.text
    page = await owner.follow(await owner.send(page, "/link/start"))
    assert "Started: it connects or continues." in page.seen
    page = await owner.follow(await owner.send(page, "/link/pause"))
    assert "will pause once connected" in page.seen
    page = await owner.follow(await owner.send(page, "/link/start"))
    assert "will pause once connected" not in page.seen
    session.open()
    assert "Link paris" not in (await owner.get("/")).seen
    page = await owner.get("/link?name=paris")
    assert "Bartleby 1.0, container paris" in page.seen
    stale = await owner.post("/link/stop", {"name": "paris", "csrf": "guessed"})
    assert (stale.status, broker.links.find("paris").state) == (403, State.RUNNING)
    page = await owner.follow(await owner.send(page, "/link/pause"))
    assert broker.links.find("paris").state is State.PAUSED
    page = await owner.follow(await owner.send(page, "/link/stop"))
    assert "Stopped: its messages wait on this broker" in page.seen
    refused = await owner.post("/link/stop", {"name": "paris", "csrf": page.forms("/link/start")[0]["csrf"]})
    assert (refused.status, "link paris is stopped" in refused.seen) == (409, True)
    assert (await owner.get("/link?name=oslo")).status == 404
    assert [deed["verb"] for deed in broker.reported("link.operated")] == ["start", "pause", "start", "pause", "stop"]


async def test_the_overview_names_the_first_links_that_do_not_run(broker: TestBroker, owner: Browser) -> None:
    stopped = [LinkSettings(f"link-{number}", ("amqp://h:5672",), (), enabled=False) for number in range(7)]
    linked(broker, *stopped)
    page = await owner.get("/")
    assert "Link link-4 is stopped" in page.seen
    assert "link-5" not in page.seen
    assert "2 other links are not running." in page.seen


async def test_a_doubt_is_resolved(broker: TestBroker, owner: Browser) -> None:
    linked(broker)
    await broker.sent("orders.out", [b"1", b"2"])
    queue = broker.engine.queue("orders.out")
    first, second = [message.id for message, _ in broker.engine.messages.browse(queue)]
    session = Session(broker).open()
    session.doubt(first)
    assert "Link paris is in doubt" in (await owner.get("/")).seen
    page = await owner.get("/link?name=paris")
    assert "before the other broker answered about 1 message." in page.seen
    assert (await owner.send(page, "/link/resolve", do="perhaps")).status == 400
    done = await owner.follow(await owner.send(page, "/link/resolve", do="resend"))
    assert "1 message is sent again." in done.seen
    assert queue.message_count == 2
    session.doubt(second)
    done = await owner.follow(await owner.send(page, "/link/resolve", do="discard"))
    assert "1 message was removed from this broker: the other one has it." in done.seen
    assert [message.id for message, _ in broker.engine.messages.browse(queue)] == [first]
    assert "in doubt" not in done.seen
    verbs = [(deed["verb"], deed["route"], deed["messages"]) for deed in broker.reported("link.operated")]
    assert verbs == [("resend", "orders", 1), ("discard", "orders", 1)]


async def test_diverts_are_made_and_deleted(broker: TestBroker, owner: Browser) -> None:
    made = await owner.send(
        await owner.get("/diverts"),
        "/diverts/make",
        name="copy",
        address="orders",
        forwarding="archive, audit",
        filter="country = 'DE'",
    )
    page = await owner.follow(made)
    assert "Divert copy was created." in page.seen
    assert "copy orders archive, audit no country = 'DE'" in page.seen
    assert (await owner.send(page, "/diverts/make", name="copy", address="a", forwarding="b")).status == 409
    assert (await owner.send(page, "/diverts/make", name="x", address="a", forwarding="b", filter="a=")).status == 400
    assert (await owner.send(page, "/diverts/delete")).to == "/diverts"
    assert not broker.engine.diverts
    assert (await owner.send(page, "/diverts/delete")).status == 404


async def test_users_and_what_they_may_do(broker: TestBroker, owner: Browser) -> None:
    broker.tick.enter()
    broker.engine.secure(PermissionTable([("orders.%u", {Permission.SEND: frozenset({"team", "chiefs"})})]))
    page = await owner.get("/users")
    assert "alice team" in page.seen
    assert "orders.%u chiefs, team - -" in page.seen


async def test_health_says_why_it_is_not_ready(broker: TestBroker, owner: Browser) -> None:
    assert "The broker is ready." in (await owner.get("/health")).seen
    broker.reasons = ["the disk is full"]
    broker.events["disk.full"] = 0
    page = await owner.get("/health")
    assert "Not ready: the disk is full" in page.seen
    assert "login.refused 3 A client's login was refused" in page.seen
    assert "disk.full" not in page.seen


@pytest.mark.parametrize("path", ["/", "/health"])
async def test_the_owner_of_a_pair_shows_which_server_confirms(broker: TestBroker, owner: Browser, path: str) -> None:
    broker.replication = Replicated("owner", 3, trouble=f"asked for {MARKUP}", confirmed_by=f"two, {MARKUP}")
    page = await owner.get(path)
    assert f"Confirmed by two, {MARKUP}" in page.seen
    assert f"The journal's database: asked for {MARKUP}" in page.seen


@pytest.mark.parametrize("path", ["/", "/health"])
async def test_a_broker_without_a_pair_has_nothing_that_confirms(owner: Browser, path: str) -> None:
    seen = (await owner.get(path)).seen
    assert "Confirmed by" not in seen
    assert "Role" not in seen


async def test_pages_hear_whether_the_broker_is_ready(broker: TestBroker, owner: Browser) -> None:
    assert json.loads((await owner.get("/state")).text) == {"unready": ""}
    broker.reasons = ["the disk is full", "and more"]
    assert json.loads((await owner.get("/state")).text) == {"unready": "the disk is full"}
    assert (await Browser(owner.port).get("/state")).status != 200


async def test_health_says_where_dead_messages_are_removed(broker: TestBroker, owner: Browser) -> None:
    assert "Messages that die are removed" not in (await owner.get("/health")).seen
    broker.set_settings([("#", {"dead_letter_address": "DLQ"}), (f"{MARKUP}.#", {"dead_letter_address": ""})])
    page = await owner.get("/health")
    assert "Messages that die are removed, not kept: dead-letter-address is empty for" in page.seen
    assert MARKUP in page.seen


async def test_reports_of_audits_are_shown_without_any_rights(
    broker: TestBroker, owner: Browser, reports: Path
) -> None:
    assert "There are none yet" in (await owner.get("/reports")).seen
    night = reports / "2026-11-25T02-30-00Z"
    night.mkdir(parents=True)
    (night / "ledger.html").write_text("<script>hack()</script>balanced")
    (reports / "secret").mkdir()
    page = await owner.get("/reports")
    assert "2026-11-25T02-30-00Z" in page.seen
    assert "secret" not in page.seen
    report = await owner.get("/report?night=2026-11-25T02-30-00Z&name=ledger")
    assert "balanced" in report.text
    assert "; sandbox" in report.headers["content-security-policy"]
    assert "script-src" not in report.headers["content-security-policy"]
    for query in ("night=..&name=ledger", "night=2026-11-25T02-30-00Z&name=..%2F..%2Fx", "night=&name="):
        assert (await owner.get(f"/report?{query}")).status == 404
    os.mkfifo(night / "dlq.html")
    assert (await owner.get(f"/report?night={night.name}&name=dlq")).status == 404, "and nobody waits for a writer"
    (reports.parent / "private.html").write_text("private")
    (night / "expiry.html").symlink_to(reports.parent / "private.html")
    assert (await owner.get(f"/report?night={night.name}&name=expiry")).status == 404, "whoever may write there"
    os.rename(reports, reports.with_name("elsewhere"))
    assert "No reports can be shown" in (await owner.get("/reports")).seen


async def test_pages_about_the_broker_need_all_of_it(broker: TestBroker, browser: Browser) -> None:
    broker.queue("orders")
    broker.read("secret")
    managing(broker, "orders")
    await browser.log_in("alice", "s3cret")
    for path in (
        "/users",
        "/health",
        "/reports",
        "/report?night=x&name=y",
        "/connections",
        "/links",
        "/link?name=paris",
        "/address?name=secret",
    ):
        assert (await browser.get(path)).status == 403, path
    for path in ("/addresses", "/consumers", "/dead-letters", "/diverts", "/explain"):
        page = await browser.get(path)
        assert page.status == 200, path
        assert "secret" not in page.seen
    csrf = (await browser.get("/queue?name=orders")).forms("/logout")[0]["csrf"]
    for path, given in (
        ("/connections/close", {"id": "1"}),
        ("/link/stop", {"name": "paris"}),
        ("/link/resolve", {"name": "paris", "route": "orders", "do": "discard"}),
        ("/consumers/close", {"id": "1"}),
        ("/diverts/make", {"name": "x", "address": "orders", "forwarding": "secret"}),
        ("/diverts/delete", {"name": "x"}),
        ("/addresses/make", {"name": "new"}),
        ("/address/delete", {"name": "secret", "force": "1"}),
        ("/messages", {"queue": "secret", "do": "remove", "all": "1"}),
    ):
        assert (await browser.post(path, {**given, "csrf": csrf})).status == 403, path


async def test_a_message_that_was_brought_back_did_not_die_where_it_lay_dead(
    broker: TestBroker, owner: Browser
) -> None:
    await die(broker, "orders", b"1")
    broker.tick.enter()
    broker.engine.messages.retry(broker.engine.queue("DLQ"), MessageRange())
    await broker.settled()
    [message] = broker.held("orders")
    page = await owner.get(f"/message?queue=orders&id={message.id}")
    assert "On queue orders" in page.seen
    assert "Deaths 1" in page.seen


async def test_a_trail_tells_what_became_of_a_message(broker: TestBroker, owner: Browser) -> None:
    await die(broker, "orders", b"1")
    [message] = broker.held("DLQ")
    page = await owner.get(f"/message?queue=DLQ&id={message.id}")
    assert f"/trail?id={message.id}&amp;queue=DLQ" in page.text
    page = await owner.get(f"/trail?id={message.id}")
    assert f"Now on DLQ, as message {message.id}" in page.seen
    assert "stored on orders, 1 byte by stomp; from sender" in page.seen
    assert "died after 1 delivery: rejected" in page.seen
    never = (await owner.get(f"/trail?id={2**64 - 1}")).seen
    assert f"There never was a message {2**64 - 1}: ids count from 1, and this broker's have come to " in never
    assert "The journal knows nothing of message 1: it was not durable, or " in (await owner.get("/trail?id=1")).seen
    assert "id must be a whole number of at most 100 digits" in (await owner.get("/trail?id=x")).seen
    assert (await owner.get("/trail")).status == 200


async def test_an_address_is_managed_by_its_very_name(broker: TestBroker, browser: Browser) -> None:
    """Spaces at the ends are part of a name, though a form that makes an address leaves them out."""
    broker.tick.enter()
    for name in ("orders", "orders "):
        broker.engine.operators.make_address(name, {RoutingType.ANYCAST})
    managing(broker, "orders")
    await browser.log_in("alice", "s3cret")
    page = await browser.get("/address?name=orders")
    assert (await browser.get("/address?name=orders%20")).status == 403
    assert (await browser.send(page, "/address/pause", name="orders ")).status == 403
    assert (await browser.send(page, "/address/delete", name="orders ")).status == 403
    assert "orders " in broker.engine.addresses


async def test_an_address_with_a_queue_of_others_is_theirs_too(broker: TestBroker, browser: Browser) -> None:
    broker.queue("orders")
    managing(broker, "orders", denied=["orders::orders"])
    await browser.log_in("alice", "s3cret")
    page = await browser.get("/address?name=orders")
    assert page.status == 200
    assert (await browser.send(await browser.get("/queues"), "/queues/make", name="orders")).status == 403
    for action in ("pause", "delete"):
        assert (await browser.send(page, f"/address/{action}", name="orders", force="1")).status == 403
    assert "orders" in broker.engine.addresses


async def test_a_trail_is_for_who_manages_all_that_its_message_was_on(broker: TestBroker, browser: Browser) -> None:
    await die(broker, "orders", b"1")
    [message] = broker.held("DLQ")
    await browser.log_in("alice", "s3cret")
    managing(broker, "orders")
    assert (await browser.get(f"/trail?id={message.id}")).status == 403
    assert (await browser.get(f"/trail?id={message.id}&queue=DLQ")).status == 403
    assert (await browser.get(f"/trail?id={message.id}&queue=orders")).status == 404
    managing(broker, "DLQ")
    page = await browser.get(f"/trail?id={message.id}&queue=DLQ")
    assert page.status == 404
    assert "sender" not in page.seen
    managing(broker, "DLQ", "orders")
    assert "died after 1 delivery" in (await browser.get(f"/trail?id={message.id}&queue=DLQ")).seen


async def test_rules_for_dead_letters_and_what_they_did(broker: TestBroker, owner: Browser) -> None:
    rules = [
        DeadLetterRule(name="again", action=Action.RETRY, reasons=frozenset({"expired"}), every=120_000, at_most=4),
        DeadLetterRule(name="aside", action=Action.MOVE, to="aside"),
    ]
    broker.tick.enter()
    broker.engine.dead_letter_rules.use(rules)
    await die(broker, "orders", b"1", b"2")
    await broker.settled()
    page = await owner.get("/dead-letters")
    assert "again retry every 2 min, at most 4 times, if expired 0 0 0 0" in page.seen
    assert "aside move to aside 0 2 0 0" in page.seen
