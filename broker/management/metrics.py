"""The metrics of the broker, read from the engine at each scrape; the hot path counts nothing for them.

The engine counts per queue and address.  Its state adds up the counts of deleted ones, so that a total never goes back.

Snapshots are taken on the event loop's thread; another thread turns them into text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from shutil import disk_usage
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from broker.engine import LEFT_COUNTERS, OUTCOMES, Figures
from broker.engine.model.task import TaskState
from broker.management.models.links import route_shown
from broker.management.ports import Broker, Replicated
from broker.management.turns import in_turns
from broker.reasons.messages import REMOVALS
from broker.sessions.links.model import State

#: The label shared by temporary queues, whose names are random, and by queues beyond the limit.
OTHERS: Final = ""

#: The counters of messages, and what they count: arrivals, deliveries, and each way out.
_COUNTERS: Final = {
    "received": "Messages sent to addresses, by clients and by the broker itself.",
    "delivered": "Deliveries to consumers, with redeliveries.",
    "redelivered": "Deliveries of messages that had been delivered before.",
    **{name: REMOVALS[reason].counts for reason, name in LEFT_COUNTERS.items()},
}


class BrokerCollector:
    """The engine's and the journal's metrics; only `queues_max` queues have series of their own."""

    def __init__(self, broker: Broker, queues_max: int) -> None:
        self._broker = broker
        self._queues_max = queues_max

    def collect(self) -> Iterator[Metric | None]:
        """All metrics, as they are now, and None where others may be served.  Call it on the event loop's thread."""
        yield from self._connections()
        yield from self._messages()
        yield from self._rules()
        yield self._tasks()
        yield from self._links()
        yield from self._routes()
        yield from self._queues()
        yield from self._journal()
        yield from self._events()
        replicated = self._broker.replicated()
        if replicated is not None:
            yield from replication_metrics(replicated)
        yield from self._build()

    def _connections(self) -> Iterator[Metric]:
        connections = GaugeMetricFamily("broker_connections", "Open connections.", labels=["acceptor", "protocol"])
        opened = CounterMetricFamily(
            "broker_connections_opened", "Connections accepted.", labels=["acceptor", "protocol"]
        )
        refused = CounterMetricFamily(
            "broker_connections_refused", "Connections refused because of a limit.", labels=["acceptor", "protocol"]
        )
        ends = GaugeMetricFamily(
            "broker_certificate_end_seconds", "When the first certificate of an acceptor expires.", labels=["acceptor"]
        )
        for acceptor in self._broker.acceptors():
            if acceptor.certificate_end:
                ends.add_metric([acceptor.name], acceptor.certificate_end / 1000)
            labels = [acceptor.name, acceptor.protocol]
            connections.add_metric(labels, acceptor.connections)
            opened.add_metric(labels, acceptor.opened)
            refused.add_metric(labels, acceptor.refused)
        return iter((connections, opened, refused, ends))

    def _messages(self) -> Iterator[Metric]:
        engine, statistics = self._broker.engine, self._broker.engine.statistics
        sums, usage = statistics.totals, engine.usage
        for name, meaning in _COUNTERS.items():
            yield CounterMetricFamily(f"broker_messages_{name}", meaning, value=sums[name])
        refused = statistics.duplicates_refused
        yield CounterMetricFamily("broker_messages_duplicate", "Messages refused as duplicates.", value=refused)
        yield GaugeMetricFamily("broker_messages", "Messages in memory, each counted once.", value=usage.messages)
        yield GaugeMetricFamily("broker_transactions", "Open transactions.", value=len(engine.transactions))
        yield GaugeMetricFamily(
            "broker_transactions_bytes",
            "Memory of what open transactions send, acknowledge and return.",
            value=engine.transactions.bytes,
        )
        memory = GaugeMetricFamily("broker_memory_bytes", "Memory by use.", labels=["kind"])
        memory.add_metric(["messages"], usage.bytes)
        memory.add_metric(["duplicate-ids"], usage.ids_bytes)
        memory.add_metric(["link-ids"], usage.link_ids_bytes)
        memory.add_metric(["clients"], usage.clients_bytes)
        memory.add_metric(["scheduled"], usage.scheduled_bytes)
        yield memory
        if usage.bytes_max >= 0:
            yield GaugeMetricFamily(
                "broker_memory_limit_bytes", "Memory that messages may take (global-max-size).", value=usage.bytes_max
            )
        yield GaugeMetricFamily("broker_addresses", "Addresses.", value=len(engine.addresses))
        yield GaugeMetricFamily("broker_queues", "Queues, temporary ones included.", value=len(engine.queues))

    def _queues(self) -> Iterator[Metric | None]:
        messages = GaugeMetricFamily("broker_queue_messages", "Messages by state.", labels=["queue", "state"])
        consumers = GaugeMetricFamily(
            "broker_queue_consumers", "Consumers whose clients are connected.", labels=["queue"]
        )
        offline = GaugeMetricFamily(
            "broker_queue_offline_sessions",
            "MQTT sessions that keep the queue while their clients are disconnected.",
            labels=["queue"],
        )
        age = GaugeMetricFamily(
            "broker_queue_oldest_message_age_seconds",
            "Age of the next message to deliver; 0 without one.",
            labels=["queue"],
        )
        statistics = self._broker.engine.statistics
        named, others, every = 0, Figures(), Figures()
        for part in statistics.parts():
            every.add(part)
            for queue in part:
                if named < self._queues_max and not queue.temporary and queue.address.settings.enable_metrics:
                    named += 1
                    _add_queues(messages, consumers, offline, queue.name, Figures().add([queue]))
                    age.add_metric([queue.name], statistics.oldest_age(queue) / 1000)
                    yield None
                else:
                    others.add([queue])
            yield None
        _add_queues(messages, consumers, offline, OTHERS, others)
        yield from (messages, consumers, offline, age)
        yield GaugeMetricFamily(
            "broker_paged_messages",
            "Messages that are only on disk, counted once for each queue.",
            value=every.paged,
        )
        yield GaugeMetricFamily(
            "broker_paged_bytes", "Bytes of the messages that are only on disk.", value=every.paged_bytes
        )

    def _rules(self) -> Iterator[Metric]:
        rules = CounterMetricFamily(
            "broker_dead_letter_rule_messages",
            "Dead letters by what a rule did with them; refused: they could not be moved and stayed.",
            labels=["rule", "outcome"],
        )
        for name, counts in self._broker.engine.dead_letter_rules.done.items():
            for outcome in OUTCOMES:
                rules.add_metric([name, outcome], counts[outcome])
        yield rules

    def _tasks(self) -> Metric:
        tasks = GaugeMetricFamily("broker_tasks", "Tasks that have not ended.", labels=["state"])
        states = [task.state for task in self._broker.engine.tasks.all()]
        for state in (TaskState.RUNNING, TaskState.PAUSED):
            tasks.add_metric([state.value], states.count(state))
        return tasks

    def _links(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("broker_link_up", "1 while the link to another broker is connected.", labels=["link"])
        states = GaugeMetricFamily("broker_link_state", "1 for the link's state.", labels=["link", "state"])
        errors = GaugeMetricFamily(
            "broker_link_last_error_seconds", "When the link's last error occurred.", labels=["link"]
        )
        for name, link in self._broker.links.by_name.items():
            up.add_metric([name], link.connected)
            for state in State:
                states.add_metric([name, state.value], state is link.status)
            if link.error_at:
                errors.add_metric([name], link.error_at / 1000)
        return iter((up, states, errors))

    def _routes(self) -> Iterator[Metric]:
        labels = ["link", "route"]
        states = GaugeMetricFamily("broker_link_route_state", "1 for the route's state.", labels=[*labels, "state"])
        errors = GaugeMetricFamily(
            "broker_link_route_last_error_seconds", "When the route's last error occurred.", labels=labels
        )
        messages = GaugeMetricFamily(
            "broker_link_route_messages", "Messages on the queue that the route reads.", labels=labels
        )
        age = GaugeMetricFamily(
            "broker_link_route_oldest_message_age_seconds",
            "Age of the oldest message on that queue.",
            labels=labels,
        )
        passed = CounterMetricFamily(
            "broker_link_route_passed", "Messages that the other end has accepted, or sent.", labels=labels
        )
        refused = CounterMetricFamily("broker_link_route_refused", "Messages that were refused.", labels=labels)
        unsettled = GaugeMetricFamily(
            "broker_link_route_unsettled", "Messages in transit, not settled yet.", labels=labels
        )
        in_doubt = GaugeMetricFamily(
            "broker_link_route_in_doubt", "Messages held in doubt: the other end may have them.", labels=labels
        )
        for route in (route for link in self._broker.links.by_name.values() for route in link.routes.values()):
            named, shown = [route.link.name, route.name], route_shown(self._broker.engine, route)
            for state in State:
                states.add_metric([*named, state.value], state is route.state)
            if shown.error_at:
                errors.add_metric(named, shown.error_at / 1000)
            if shown.depth is not None:
                messages.add_metric(named, shown.depth)
            if shown.lag is not None:
                age.add_metric(named, shown.lag / 1000)
            passed.add_metric(named, shown.passed)
            refused.add_metric(named, shown.refused)
            unsettled.add_metric(named, shown.unsettled)
            in_doubt.add_metric(named, shown.in_doubt)
        return iter((states, errors, messages, age, passed, refused, unsettled, in_doubt))

    def _journal(self) -> Iterator[Metric]:
        journal, counters = self._broker.engine.journal, self._broker.counters
        yield SummaryMetricFamily(
            "broker_journal_fsync_seconds",
            "Time spent waiting for the disk.",
            count_value=counters.syncs,
            sum_value=counters.sync_seconds,
        )
        for name, value, meaning in (
            ("copied_messages", self._broker.engine.cleaner.messages, "Messages copied forward to free a segment."),
            ("slow_fsyncs", counters.slow_syncs, "Waits for the disk longer than journal.slow-sync-warning."),
            ("bytes", counters.bytes, "Bytes written and durable."),
            ("entries", counters.entries, "Entries written and durable."),
            ("records", counters.records, "Records written and durable."),
            ("segments_trimmed", counters.segments_trimmed, "Segments freed."),
        ):
            yield CounterMetricFamily(f"broker_journal_{name}", meaning, value=value)
        for name, value, meaning in (
            ("segments", len(journal.space.segments), "Segments in use."),
            ("large_bodies", journal.bodies.count, "Large bodies, each in its own file."),
            ("large_body_bytes", journal.bodies.nbytes, "Bytes of the files of large bodies."),
            ("pending_bytes", journal.pending_bytes, "Bytes not yet durable."),
            ("full", not journal.accepting, "1 while the disk has no room for another message."),
        ):
            yield GaugeMetricFamily(f"broker_journal_{name}", meaning, value=value)
        free = disk_usage(self._broker.data_directory).free
        yield GaugeMetricFamily("broker_disk_free_bytes", "Free space on the journal's disk.", value=free)
        full = self._broker.engine.usage.disk.full
        yield GaugeMetricFamily(
            "broker_disk_full", "1 while max-disk-usage or min-disk-free stops producers.", value=full
        )

    def _events(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "broker_events", "Log events by code, including those whose line was suppressed.", labels=["code"]
        )
        for code, count in self._broker.events.items():
            events.add_metric([code], count)
        yield events

    def _build(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("broker_build_info", "Always 1.", labels=["version", "name"])
        info.add_metric([self._broker.version, self._broker.name], 1)
        yield info
        yield GaugeMetricFamily(
            "broker_start_time_seconds", "When the broker started.", value=self._broker.started / 1000
        )
        yield GaugeMetricFamily("broker_ready", "1 while the broker accepts clients.", value=not self._broker.unready())


def replication_metrics(replicated: Replicated) -> Iterator[Metric]:
    """The role, epoch and lag of a broker of a pair."""
    role = GaugeMetricFamily("broker_replication_role", "1 for the role of this broker of a pair.", labels=["role"])
    for name in ("owner", "standby"):
        role.add_metric([name], name == replicated.role)
    yield role
    for name, value, meaning in (
        ("epoch", replicated.epoch, "How often the ownership of the journal has changed."),
        ("lag_entries", replicated.lag_entries, "Entries of the journal that this standby has not copied yet."),
        (
            "lag_seconds",
            replicated.lag_seconds,
            "Seconds since this standby last had all of the journal, and could serve.",
        ),
    ):
        yield GaugeMetricFamily(f"broker_replication_{name}", meaning, value=value)


def _add_queues(
    messages: GaugeMetricFamily, consumers: GaugeMetricFamily, offline: GaugeMetricFamily, label: str, figures: Figures
) -> None:
    for state in ("ready", "paged", "scheduled", "delivering", "landing"):
        messages.add_metric([label, state], getattr(figures, state))
    consumers.add_metric([label], figures.attached)
    offline.add_metric([label], figures.consumers - figures.attached)


class _Snapshot(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


class Source(Protocol):
    """Where metrics come from."""

    def collect(self) -> Iterable[Metric | None]:
        """All metrics; None where others may be served."""


class Metrics:
    """The metrics of a source, and those of the process; scraped by anybody, as often as they like.

    One scrape is made at a time.  Those who ask meanwhile share the next one.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._turn = asyncio.Lock()
        self._begun = 0
        self._taken = 0  # the last complete scrape
        self._snapshot = _Snapshot([])
        self._texts: dict[str, bytes] = {}  # of it, by content type

    async def answer(self, request: Request) -> Response:
        """The metrics as they are now, as Prometheus text in a format that the caller accepts."""
        try:
            encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        except TypeError:  # it asks for a version that is no number
            encoder, content_type = choose_encoder("")
        next = self._begun + 1
        async with self._turn:
            if self._taken < next:
                self._begun = number = self._begun + 1
                self._snapshot = _Snapshot([*await in_turns(self._source.collect()), *self._registry.collect()])
                self._texts, self._taken = {}, number
            if content_type not in self._texts:  # in a thread, as it takes a while
                self._texts[content_type] = await asyncio.to_thread(encoder, self._snapshot)
            content = self._texts[content_type]
        return Response(content, headers={"content-type": content_type})
