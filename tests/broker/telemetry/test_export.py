"""A receiver that is slow, refuses, or hangs costs spans, which are counted; no message, and no time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from broker.telemetry import export
from broker.telemetry.spans import SpanMaker
from tests.broker.telemetry.harness import SAMPLED, telemetry
from tests.simulation.world import small
from tests.support.links import PATIENCE_S
from tests.support.sim_broker import SimBroker, SimClient

EVENTS = ("telemetry.losing", "telemetry.exporting")


class Receiver(SpanExporter):
    """Takes spans when it is released, as long as it is well."""

    def __init__(self) -> None:
        self.entered = Event()
        self.released = Event()
        self.well = True
        self.got = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        self.entered.set()
        assert self.released.wait(PATIENCE_S)
        if not self.well:
            logging.getLogger("opentelemetry.exporter").error("the receiver says no")
            return SpanExportResult.FAILURE
        self.got += len(spans)
        return SpanExportResult.SUCCESS


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker(small(), tolerant=True)


def send(client: SimClient, number: int) -> None:
    for _ in range(number):
        client.send("/queue/a", b"x", traceparent=SAMPLED)


def told(broker: SimBroker) -> list[tuple[str, dict[str, str | int]]]:
    return [(code, fields) for code, fields in broker.reports if code in EVENTS]


def test_a_full_queue_loses_spans_and_tells_once(broker: SimBroker, receiver: Receiver) -> None:
    made = telemetry(broker, receiver, queue_max=4)
    client = broker.connect()
    send(client, 4)
    assert receiver.entered.wait(PATIENCE_S), "the first batch is on its way"
    send(client, 4)
    assert told(broker) == [], "at the limit"
    send(client, 12)
    endpoint = "http://receiver.example/v1/traces"
    losing = ("telemetry.losing", {"endpoint": endpoint, "error": "4 spans wait already"})
    assert told(broker) == [losing]
    assert broker.engine.queue("a").ready == 20
    receiver.released.set()
    made.close()
    assert receiver.got == 8
    assert told(broker) == [losing, ("telemetry.exporting", {"endpoint": endpoint, "lost": 12})]


def test_a_receiver_that_refuses(broker: SimBroker, receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.well = False
    receiver.released.set()
    made = telemetry(broker, receiver, queue_max=2)
    client = broker.connect()
    send(client, 2)
    assert receiver.entered.wait(PATIENCE_S), "the first batch is lost"
    send(client, 1)
    made.close()
    [(code, fields)] = told(broker)
    assert (code, fields["error"]) == ("telemetry.losing", "the receiver says no")
    assert caplog.records == [], "the SDK's own words are in the event"


def test_a_receiver_that_hangs_does_not_hold_up_the_end(
    broker: SimBroker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "CLOSE_SECONDS_MAX", 0.01)
    made = telemetry(broker, receiver)
    send(broker.connect(), 1)
    made.close()
    assert receiver.got == 0
    receiver.released.set()


def test_a_fault_while_spans_are_made(broker: SimBroker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(SpanMaker, "make", fail)
    made = telemetry(broker, receiver)
    send(broker.connect(), 3)
    made.close()
    assert "RuntimeError: a bug" in str(broker.reported("broker.error")[0]["error"])
    assert [code for code, _ in told(broker)] == ["telemetry.losing"]
