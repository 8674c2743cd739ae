"""Spans of a real broker at a receiver of OTLP over HTTP, beside those of real clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any, cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from proton import Message

from tests.support.daemon import DaemonProcess, running
from tests.support.links import PATIENCE_S
from tests.support.paho_client import connected as mqtt
from tests.support.proton_client import connected as proton
from tests.support.proton_client import text
from tests.support.stomp_py import DURABLE, connected

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


class Receiver(ThreadingHTTPServer):
    """What an OpenTelemetry Collector or Jaeger is to the broker; what is `wedged` never answers."""

    daemon_threads = True

    def __init__(self, *, wedged: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1/traces"
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.wedged = wedged
        self.requests = 0
        self.changed = Condition()
        Thread(target=self.serve_forever, daemon=True).start()

    def await_spans(self, *names: str) -> list[Span]:
        """Wait for spans with these names, each as often as it is given; those spans, the oldest first."""

        def come() -> bool:
            return all([span.name for span in self.spans].count(name) >= names.count(name) for name in names)

        with self.changed:
            assert self.changed.wait_for(come, PATIENCE_S), [span.name for span in self.spans]
            return sorted([s for s in self.spans if s.name in names], key=lambda span: span.start_time_unix_nano)

    def close(self) -> None:
        """Take no more."""
        self.shutdown()
        self.server_close()

    def await_request(self) -> None:
        """Wait until the broker has sent something."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.requests, PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = cast(Receiver, self.server)
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        with receiver.changed:
            receiver.requests += 1
            for resource in request.resource_spans:
                receiver.services.add(told(resource.resource)["service.name"])
                receiver.spans += [span for scope in resource.scope_spans for span in scope.spans]
            receiver.changed.notify_all()
        if receiver.wedged:
            self.connection.settimeout(PATIENCE_S)
            self.connection.recv(1)  # until the broker gives up
        else:
            self.send_response(200)
            self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def told(of: Any) -> dict[str, Any]:
    """Attributes, by name."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


def settings(endpoint: str, **more: str) -> str:
    given = {"export_interval": "100ms", **more}
    lines = "\n".join(f'{name.replace("_", "-")} = "{value}"' for name, value in given.items())
    return f"""
[broker]
name = "shop"
message-expiry-scan-period = "100ms"

[telemetry]
endpoint = "{endpoint}"
{lines}

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"
"""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as receiver:
        yield receiver


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[DaemonProcess]:
    with running(tmp_path_factory.mktemp("traced"), settings(receiver.url)) as broker:
        yield broker


def test_from_stomp_to_amqp(traced: DaemonProcess, receiver: Receiver) -> None:
    with connected(traced.port) as stomp, proton(traced.ports["amqp"]) as amqp:
        stomp.put("/queue/crossing", "hello", {**DURABLE, "traceparent": PARENT, "tracestate": "vendor=x"})
        link = amqp.create_receiver("queue://crossing", credit=1)
        message = link.receive(PATIENCE_S)
        link.accept()
        assert text(message) == "hello"
        assert message.properties == {"traceparent": PARENT, "tracestate": "vendor=x"}
    spans = receiver.await_spans("publish crossing", "deliver crossing", "ack crossing")
    assert [span.name.split()[0] for span in spans] == ["publish", "deliver", "ack"]
    for span in spans:
        assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (TRACE_ID, SPAN_ID, "vendor=x")
    assert spans[0].end_time_unix_nano > spans[0].start_time_unix_nano, "it waited for the disk"
    assert receiver.services == {"shop"}


def test_from_amqp_to_mqtt(traced: DaemonProcess, receiver: Receiver) -> None:
    with mqtt(traced.ports["mqtt"], "dashboard") as client, proton(traced.ports["amqp"]) as amqp:
        client.subscribe("rooms/1", 1)
        sender = amqp.create_sender("topic://rooms.1")
        sender.send(Message(body="21", durable=True, properties={"traceparent": PARENT}))
        [message] = client.take()
        found: Any = message.properties
        assert ("traceparent", PARENT) in found.UserProperty
    _, deliver, _ = receiver.await_spans("publish rooms.1", "deliver rooms.1", "ack rooms.1")
    assert (deliver.trace_id.hex(), deliver.parent_span_id.hex()) == (TRACE_ID, SPAN_ID)
    assert told(deliver)["messaging.client.id"] == "dashboard"


def test_dead_letter_and_expiry(traced: DaemonProcess, receiver: Receiver) -> None:
    with connected(traced.port) as stomp, proton(traced.ports["amqp"]) as amqp:
        stomp.put("/queue/poison", "bad", {**DURABLE, "traceparent": PARENT})
        stomp.subscribe("/queue/poison", "client-individual")
        stomp.nack(stomp.take(), requeue="false", reason="no stock")
        brief = Message(body="late", ttl=0.05, properties={"traceparent": PARENT})
        amqp.create_sender("queue://brief").send(brief)
        dead, expired = receiver.await_spans("dead-letter poison", "expire brief")
    assert (dead.trace_id, expired.trace_id) == (bytes.fromhex(TRACE_ID),) * 2
    attributes = told(dead)
    assert attributes["messaging.bartleby.dead_letter.reason"] == "rejected"
    assert "no stock" in attributes["messaging.bartleby.dead_letter.text"]
    assert attributes["messaging.bartleby.moved.address"] == "DLQ"
    assert told(expired)["messaging.bartleby.moved.address"] == "ExpiryQueue"


def test_the_last_spans_are_sent_when_the_broker_stops(tmp_path: Path, receiver: Receiver) -> None:
    with running(tmp_path, settings(receiver.url, export_interval="1h")) as broker:
        with connected(broker.port) as stomp:
            stomp.put("/queue/last", "x", {**DURABLE, "traceparent": PARENT})
        broker.stop()
        receiver.await_spans("publish last")


def test_a_receiver_that_is_down(tmp_path: Path) -> None:
    """That is told once, whatever is lost."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"
        with running(tmp_path, settings(url, export_timeout="1500ms")) as broker, connected(broker.port) as stomp:
            stomp.subscribe("/queue/a", "auto")
            for number in range(50):
                stomp.put("/queue/a", str(number), {**DURABLE, "traceparent": PARENT})
            assert stomp.texts(50) == [str(number) for number in range(50)]
            broker.await_log("telemetry.losing")
            broker.stop()
            assert broker.log.count("telemetry.losing") == 1
            assert "refused" in broker.log, "it says why"
            assert "library.message" not in broker.log


def test_a_receiver_that_hangs(tmp_path: Path) -> None:
    with (
        closing(Receiver(wedged=True)) as receiver,
        running(tmp_path, settings(receiver.url)) as broker,
        connected(broker.port) as stomp,
    ):
        stomp.subscribe("/queue/a", "auto")
        stomp.put("/queue/a", "first", {**DURABLE, "traceparent": PARENT})
        receiver.await_request()
        for number in range(50):
            stomp.put("/queue/a", str(number), {**DURABLE, "traceparent": PARENT})
        assert stomp.texts(51)[1:] == [str(number) for number in range(50)]
        assert broker.stop() == 0
