"""What is refused, as stomp.py, Qpid Proton and paho hear it: messages that no queue takes, schedules that repeat."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from proton import Delivery, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import SendException

from tests.support.daemon import DaemonProcess
from tests.support.links import PATIENCE_S, Lost
from tests.support.paho_client import Paho
from tests.support.proton_client import connected as proton
from tests.support.stomp_py import DURABLE, VERSIONS, Client

WHY = "no queue takes the message: queue disabled of address disabled is disabled"


@pytest.fixture(autouse=True)
def nothing_entered(broker: DaemonProcess) -> Iterator[None]:
    """Whatever a test sends to the disabled queue, it stays empty."""
    yield
    assert broker.queue("disabled")["messages"] == 0


@pytest.fixture
def url(broker: DaemonProcess) -> str:
    """Where AMQP is."""
    return f"127.0.0.1:{broker.ports['amqp']}"


# -- STOMP -------------------------------------------------------------------------------------------------------------


def refused(client: Client, destination: str, headers: dict[str, str]) -> str:
    """What the ERROR says of a message; there is no receipt, and the connection ends."""
    receipt = client.receipt()
    client.send(destination, b"x", {**DURABLE, **headers, "receipt": receipt})
    error = client.errors.get(timeout=PATIENCE_S)
    assert error.headers["receipt-id"] == receipt
    with pytest.raises(Lost):
        client.confirmed(receipt)
    return error.headers["message"] + "\n" + error.text


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("destination", ["/queue/disabled", "disabled", "disabled::disabled"])
def test_stomp_has_an_error_and_no_receipt(broker: DaemonProcess, version: str, destination: str) -> None:
    assert WHY in refused(Client(broker.port, version), destination, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [("AMQ_SCHEDULED_CRON", "0 * * * *"), ("AMQ_SCHEDULED_PERIOD", "1000"), ("AMQ_SCHEDULED_REPEAT", "9")],
)
def test_stomp_refuses_a_schedule_that_repeats(broker: DaemonProcess, name: str, value: str) -> None:
    schedule = {"AMQ_SCHEDULED_DELAY": "1", name: value}
    assert name in refused(Client(broker.port), "/queue/refused.repeating", schedule)
    assert "refused.repeating" not in broker.queue_names()


# -- AMQP --------------------------------------------------------------------------------------------------------------


class Sends(MessagingHandler):
    """Sends messages to one target, or to none and each to its own address; keeps the condition of what is refused."""

    def __init__(self, url: str, target: str | None, *messages: Message) -> None:
        super().__init__()
        self.outcomes: dict[object, tuple[int, str, str]] = {}
        self._url = url
        self._target = target
        self._left = list(messages)
        self._count = len(messages)

    def on_start(self, event: object) -> None:
        container = event.container  # type: ignore[attr-defined]
        connection = container.connect(self._url, reconnect=False)
        container.create_sender(connection, self._target)

    def on_sendable(self, event: object) -> None:
        sender = event.sender  # type: ignore[attr-defined]
        while sender.credit and self._left:
            message = self._left.pop(0)
            sender.send(message).context = message.body

    def on_settled(self, event: object) -> None:
        delivery = event.delivery  # type: ignore[attr-defined]
        condition = delivery.remote.condition
        said = (condition.name, condition.description) if condition else ("", "")
        self.outcomes[delivery.context] = (delivery.remote_state, *said)
        if len(self.outcomes) == self._count:
            event.connection.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("relay", [False, True])
def test_proton_has_it_rejected(url: str, relay: bool) -> None:
    sent = [
        Message("1", durable=True, address="queue://disabled"),
        Message("2", durable=True, address="queue://disabled"),
    ]
    if relay:
        sent.append(Message("3", durable=True, address="queue://refused.open"))
    handler = Sends(url, None if relay else "queue://disabled", *sent)
    Container(handler).run()
    for body in ("1", "2"):
        state, condition, description = handler.outcomes[body]
        assert (state, condition) == (Delivery.REJECTED, "amqp:precondition-failed")
        assert WHY in description
    if relay:
        assert handler.outcomes["3"] == (Delivery.ACCEPTED, "", "")


@pytest.mark.parametrize("name", ["x-opt-delivery-cron", "x-opt-delivery-period", "x-opt-delivery-repeat"])
def test_proton_has_a_schedule_that_repeats_rejected(url: str, name: str) -> None:
    schedule = {symbol("x-opt-delivery-delay"): 1, symbol(name): "0 * * * *" if name.endswith("cron") else 5}
    repeated = Message("again", durable=True, annotations=schedule)
    handler = Sends(url, "queue://refused.repeated", repeated, Message("once", durable=True))
    Container(handler).run()
    state, condition, description = handler.outcomes["again"]
    assert (state, condition) == (Delivery.REJECTED, "amqp:not-implemented")
    assert name in description
    assert handler.outcomes["once"][0] == Delivery.ACCEPTED


def test_a_refused_settled_message_is_in_the_log(broker: DaemonProcess) -> None:
    before = broker.log.count("amqp.transfer_dropped")
    with proton(broker.ports["amqp"]) as connection:
        sender = connection.create_sender("queue://disabled")
        delivery = sender.link.send(Message("settled", durable=True))
        assert isinstance(delivery, Delivery)
        delivery.settle()
        with pytest.raises(SendException):
            sender.send(Message("told", durable=True))
    broker.await_log("amqp.transfer_dropped", times=before + 1)


# -- MQTT --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("qos", "code"), [(1, 0x83), (2, 0x92)])
def test_mqtt_5_has_a_reason_code(broker: DaemonProcess, qos: int, code: int) -> None:
    """paho sends PUBREL also after a PUBREC that refuses: its packet identifier is not known any more."""
    client = Paho(broker.ports["mqtt"], f"refused.{qos}", "5")
    try:
        assert client.publish("disabled", b"x", qos) == code
        assert client.publish("nobody", b"x", qos) in (0, 0x10), "the connection goes on"
    finally:
        client.drop()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", ["3.1", "3.1.1"])
def test_mqtt_3_is_cut_off_without_an_answer(broker: DaemonProcess, version: str, qos: int) -> None:
    client = Paho(broker.ports["mqtt"], f"refused.{version}.{qos}", version, reconnect_on_failure=False)
    cut_off = threading.Event()
    client.client.on_disconnect = lambda *_: cut_off.set()
    try:
        client.client.publish("disabled", b"x", qos)
        assert cut_off.wait(PATIENCE_S)
        assert client.published.empty()
    finally:
        client.drop()
