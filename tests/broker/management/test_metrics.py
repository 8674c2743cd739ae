"""The metrics: names that dashboards rely on, and totals that never go back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from broker.engine import Action, DeadLetterRule
from broker.engine.model.task import TaskKind, TaskRequest, TaskState, TaskVerb
from broker.engine.moves.transfer import MessageRange
from broker.engine.operators.statistics import PART
from broker.engine.routing import deletion
from broker.management.limits import Limits as CallLimits
from broker.management.metrics import BrokerCollector, Metrics
from tests.broker.management.harness import NOW, Client, Inbox, TestBroker
from tests.broker.management.linked import Session, linked
from tests.broker.management.samples import scrape, value

ROOT = Path(__file__).parents[3]


async def test_every_promised_name_is_there(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    broker.engine.dead_letter_rules.use([DeadLetterRule(name="once", action=Action.LEAVE)])
    linked(broker)
    Session(broker).open().refuse("no such queue")
    Session(broker).lose("connection refused")
    names = {name for name, _ in await scrape(client)}
    messages = "received delivered acknowledged redelivered expired dead_lettered unroutable dropped killed purged"
    messages += " replaced evicted displaced forwarded moved discarded"
    promised = {f"broker_messages_{name}_total" for name in messages.split()}
    promised |= {
        "broker_connections",
        "broker_connections_opened_total",
        "broker_connections_refused_total",
        "broker_certificate_end_seconds",
        "broker_queue_messages",
        "broker_queue_consumers",
        "broker_queue_offline_sessions",
        "broker_queue_oldest_message_age_seconds",
        "broker_memory_bytes",
        "broker_transactions",
        "broker_transactions_bytes",
        "broker_build_info",
        "broker_start_time_seconds",
        "broker_ready",
        "broker_messages",
        "broker_paged_messages",
        "broker_paged_bytes",
        "broker_messages_duplicate_total",
        "broker_dead_letter_rule_messages_total",
        "broker_tasks",
        "broker_queues",
        "broker_addresses",
        "broker_disk_free_bytes",
        "broker_disk_full",
        "broker_events_total",
        "broker_link_up",
        "broker_link_state",
        "broker_link_last_error_seconds",
        "broker_link_route_state",
        "broker_link_route_last_error_seconds",
        "broker_link_route_messages",
        "broker_link_route_oldest_message_age_seconds",
        "broker_link_route_passed_total",
        "broker_link_route_refused_total",
        "broker_link_route_unsettled",
        "broker_link_route_in_doubt",
        "broker_journal_fsync_seconds_count",
        "broker_journal_fsync_seconds_sum",
        "broker_journal_slow_fsyncs_total",
        "broker_journal_bytes_total",
        "broker_journal_entries_total",
        "broker_journal_records_total",
        "broker_journal_segments",
        "broker_journal_large_bodies",
        "broker_journal_large_body_bytes",
        "broker_journal_segments_trimmed_total",
        "broker_journal_copied_messages_total",
        "broker_journal_pending_bytes",
        "broker_journal_full",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
    }
    assert promised <= names
    assert {name for name in names if name.startswith("broker_")} <= promised
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    documented = set(re.findall(r"`(broker_\w+)(?:\{[^}]*\})?`", page)) - {"broker_memory_limit_bytes"}
    families = {re.sub(r"_(count|sum)$", "", name) for name in promised if name.startswith("broker_")}
    assert documented == families


async def test_messages_are_counted_on_their_way(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"2", b"3"])
    consumer = broker.read("orders", inbox := Inbox(), window=0)
    await broker.settled()
    broker.tick.enter()
    broker.engine.consumers.acknowledge(consumer, inbox.messages[0].id)
    await broker.settled()
    broker.now += 2_500
    samples = await scrape(client)
    assert value(samples, "broker_messages_received_total") == 3
    assert value(samples, "broker_messages_delivered_total") == 2
    assert value(samples, "broker_messages_acknowledged_total") == 1
    assert value(samples, "broker_queue_messages", queue="orders", state="ready") == 1
    assert value(samples, "broker_queue_messages", queue="orders", state="delivering") == 1
    assert value(samples, "broker_queue_consumers", queue="orders") == 1
    assert value(samples, "broker_queue_oldest_message_age_seconds", queue="orders") == 2.5
    assert value(samples, "broker_memory_bytes", kind="messages") == broker.engine.usage.bytes
    assert value(samples, "broker_messages") == 2
    assert value(samples, "broker_connections", acceptor="stomp", protocol="stomp") == 3
    assert value(samples, "broker_connections_opened_total", acceptor="stomp", protocol="stomp") == 7
    assert value(samples, "broker_certificate_end_seconds", acceptor="http") == NOW / 1000 + 1
    assert ("broker_certificate_end_seconds", frozenset({("acceptor", "stomp")})) not in samples
    assert value(samples, "broker_build_info", version="1.2.3", name="test") == 1
    assert value(samples, "broker_journal_bytes_total") == broker.counters.bytes
    assert value(samples, "broker_journal_full") == 0
    assert value(samples, "broker_events_total", code="login.refused") == 3
    assert value(samples, "broker_ready") == 1


async def test_tasks_under_way(broker: TestBroker, client: Client) -> None:
    await broker.sent("a", [b"1", b"2", b"3"])
    broker.tick.enter()
    asked = TaskRequest(kind=TaskKind.PURGE, queue="a", rate=1)
    first, second = (broker.engine.tasks.start(asked) for _ in range(2))
    broker.engine.tasks.steer(second, TaskVerb.PAUSE)
    samples = await scrape(client)
    assert (first.state, value(samples, "broker_tasks", state="running")) == (TaskState.RUNNING, 1)
    assert value(samples, "broker_tasks", state="paused") == 1


async def test_figures_of_each_rule(broker: TestBroker, client: Client) -> None:
    rules = broker.engine.dead_letter_rules
    rules.use([DeadLetterRule(name="tidy", action=Action.DISCARD)])
    rules.done["tidy"]["discarded"] += 3
    samples = await scrape(client)
    assert value(samples, "broker_dead_letter_rule_messages_total", rule="tidy", outcome="discarded") == 3
    assert value(samples, "broker_dead_letter_rule_messages_total", rule="tidy", outcome="refused") == 0


async def test_the_memory_limit_is_told_where_there_is_one(broker: TestBroker, client: Client) -> None:
    broker.engine.usage.bytes_max = 1000
    assert value(await scrape(client), "broker_memory_limit_bytes") == 1000


async def test_totals_do_not_go_back_when_queues_go(broker: TestBroker, client: Client) -> None:
    await broker.sent("first", [b"1", b"2"])
    await scrape(client)
    await broker.sent("first", [b"3"])
    queue = broker.queue("first")
    (last,) = [message.id for message, _ in broker.engine.messages.browse(queue) if message.body == b"3"]
    assert broker.engine.messages.move(queue, "elsewhere", MessageRange(ids=(last,))).moved == 1
    broker.engine.messages.purge(queue)
    broker.engine.delete_queue(queue)
    broker.engine._state.registry.delete_address(queue.address)
    await broker.sent("second", [b"4"])
    for _ in range(2):
        samples = await scrape(client)
        assert value(samples, "broker_messages_received_total") == 5
        assert value(samples, "broker_messages_purged_total") == 2
        assert value(samples, "broker_messages_moved_total") == 1
        assert ("broker_queue_consumers", frozenset({("queue", "first")})) not in samples


@pytest.mark.parametrize("call_limits", [CallLimits(measured_queues_max=1)])
async def test_temporary_queues_and_those_beyond_the_limit_are_told_together(
    broker: TestBroker, client: Client
) -> None:
    broker.send("named", [b"1"])
    broker.send("beyond", [b"1", b"2"])
    broker.read("news")
    await broker.settled()
    samples = await scrape(client)
    assert value(samples, "broker_queue_messages", queue="named", state="ready") == 1
    assert value(samples, "broker_queue_messages", queue="", state="ready") == 2
    assert value(samples, "broker_queue_consumers", queue="") == 1
    assert {labels for name, labels in samples if name == "broker_queue_consumers"} == {
        frozenset({("queue", "named")}),
        frozenset({("queue", "")}),
    }


async def test_a_queue_with_a_selector_has_an_age(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1"])
    broker.read("orders", selector="color = 'red'")
    await broker.settled()
    samples = await scrape(client)
    assert value(samples, "broker_queue_messages", queue="orders", state="ready") == 1
    assert value(samples, "broker_queue_oldest_message_age_seconds", queue="orders") == 0


async def test_links_and_their_routes(broker: TestBroker, client: Client) -> None:
    linked(broker)
    await broker.sent("orders.out", [b"1"])
    session = Session(broker)
    session.lose("connection refused")
    broker.now += 2_000
    samples = await scrape(client)
    assert value(samples, "broker_link_up", link="paris") == 0
    assert value(samples, "broker_link_state", link="paris", state="retrying") == 1
    assert value(samples, "broker_link_state", link="rome", state="stopped") == 1
    assert sum(of for (name, _), of in samples.items() if name == "broker_link_state") == 2
    assert value(samples, "broker_link_last_error_seconds", link="paris") == NOW / 1000
    assert ("broker_link_last_error_seconds", frozenset({("link", "rome")})) not in samples
    session.open()
    route = session.doubt(4711)
    route.passed, route.refused, route.unsettled = 5, 2, 3
    samples = await scrape(client)
    assert value(samples, "broker_link_up", link="paris") == 1
    assert value(samples, "broker_link_state", link="paris", state="in-doubt") == 1
    orders = {"link": "paris", "route": "orders"}
    assert value(samples, "broker_link_route_state", **orders, state="in-doubt") == 1
    assert value(samples, "broker_link_route_messages", **orders) == 1
    assert value(samples, "broker_link_route_oldest_message_age_seconds", **orders) == 2
    assert value(samples, "broker_link_route_passed_total", **orders) == 5
    assert value(samples, "broker_link_route_refused_total", **orders) == 2
    assert value(samples, "broker_link_route_unsettled", **orders) == 3
    assert value(samples, "broker_link_route_in_doubt", **orders) == 1
    invoices = frozenset({("link", "paris"), ("route", "invoices")})
    assert ("broker_link_route_messages", invoices) not in samples, "it reads no queue here"
    assert ("broker_link_route_last_error_seconds", invoices) not in samples


async def test_a_label_may_be_any_name(broker: TestBroker, client: Client) -> None:
    name = 'a"b\\\\c ü'
    broker.queue(name)
    assert value(await scrape(client), "broker_queue_consumers", queue=name) == 0
    assert (await client.get("/api/v1/queues/" + quote(name, safe="")))["name"] == name


async def test_openmetrics_is_spoken_to_who_asks(client: Client) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = await client.call("GET", "/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


async def test_a_version_that_is_no_number_is_answered_with_plain_text(client: Client) -> None:
    """The library compares its parts with numbers: it was a fault of the broker, which anybody could cause."""
    answer = await client.call("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=x.y"})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")


async def test_scraping_does_not_hold_up_the_loop(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is made by another thread."""
    threads: list[bool] = []
    encode, content_type = choose_encoder("")

    def noted(registry: Collector) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        threads.append(True)
        return encode(registry)

    monkeypatch.setattr("broker.management.metrics.choose_encoder", lambda accept: (noted, content_type))
    await scrape(client)
    assert threads == [True]


async def test_the_figures_of_many_queues_are_taken_in_turns(broker: TestBroker) -> None:
    """What is deleted or created meanwhile is in them or not; each queue is looked at once."""
    for number in range(2 * PART + 1):
        broker.queue(f"q{number}")
    figures = broker.engine.statistics.figures()
    assert next(figures) is None
    deletion.delete_queue(broker.engine._state, broker.engine.queue(f"q{2 * PART}"))
    assert [each is None for each in figures] == [True, True, False]
    assert list(BrokerCollector(broker, 10).collect()).count(None) >= 3


async def test_many_who_scrape_at_once_share_what_is_taken() -> None:
    """And nobody gets figures from before he asked."""
    taken = 0

    class Source:
        def collect(self) -> Iterator[Metric]:
            nonlocal taken
            taken += 1
            yield GaugeMetricFamily("taken", "Counts the scrapes.", value=taken)

    metrics, request = Metrics(Source()), Request({"type": "http", "headers": []})
    answers = await asyncio.gather(*(metrics.answer(request) for _ in range(20)))
    assert [b"taken 1.0" in bytes(answer.body) for answer in answers] == [True] + [False] * 19
    assert [b"taken 2.0" in bytes(answer.body) for answer in answers] == [False] + [True] * 19
    assert b"taken 3.0" in bytes((await metrics.answer(request)).body)
