"""The rules for dead letters that the page shows, with real clients, across a shutdown, a SIGKILL and reloads."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from proton import Delivery, Message

from tests.support.daemon import DaemonProcess, running
from tests.support.proton_client import connected as proton
from tests.support.stomp_py import DURABLE, Received, connected

PAGE: Final = (Path(__file__).parents[2] / "docs" / "dead-letters.md").read_text("utf-8")

#: The page's own rules, for tests that have no minutes.
RULES: Final = next(
    text.replace('"1min"', '"300ms"').replace('"1d"', '"300ms"')
    for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    if "dead-letter-rules" in text
)

SETTINGS: Final = """
[broker]
message-expiry-scan-period = "100ms"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"

[[address-settings]]
match = "orders.#"
max-delivery-attempts = 1

[[address-settings]]
match = "shut"
send-to-dla-on-no-route = true

[addresses.shut.queues.shut]
routing-type = "ANYCAST"
enabled = false
"""

WAITING: Final = """
[[dead-letter-rules]]
name = "reopened"
action = "retry"
reasons = ["put-disabled"]
every = "200ms"
at-most = 1000
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DaemonProcess]:
    """With the rules of the page."""
    assert "300ms" in RULES
    with running(tmp_path, SETTINGS + RULES) as found:
        yield found


def fail(broker: DaemonProcess, queue: str) -> Received:
    """A consumer gets the next message of a queue, whenever that comes, and fails."""
    with connected(broker.port) as client:
        client.subscribe(f"/queue/{queue}", "client-individual")
        message = client.take()
        client.nack(message)
        client.leave()
    return message


def done(broker: DaemonProcess) -> dict[str, int]:
    """What rules did since the start, as Prometheus gets it."""
    text = httpx.get(f"http://127.0.0.1:{broker.ports['http']}/metrics", trust_env=False).text
    found = re.findall(r'broker_dead_letter_rule_messages_total\{outcome="(\w+)",rule="([\w-]+)"\} (\S+)', text)
    return {f"{rule} {outcome}": int(float(count)) for outcome, rule, count in found if float(count)}


def test_an_order_is_tried_again_and_then_kept_for_a_person(broker: DaemonProcess) -> None:
    with connected(broker.port) as client:
        client.put("/queue/orders.eu", "three cups of tea", DURABLE)
    trips = [fail(broker, "orders.eu").headers.get("_AMQ_DL_RETRIES")]
    trips.append(fail(broker, "orders.eu").headers["_AMQ_DL_RETRIES"])
    broker.restart()  # killed, while it waits or is on its way
    trips.append(fail(broker, "orders.eu").headers["_AMQ_DL_RETRIES"])
    broker.signal(signal.SIGTERM)
    assert broker.wait() == 0
    broker.start()
    trips.append(fail(broker, "orders.eu").headers["_AMQ_DL_RETRIES"])
    assert trips == [None, "1", "2", "3"]
    with connected(broker.port) as client:
        client.subscribe("/queue/orders-by-hand", "client-individual")
        kept = client.take()
        assert (kept.text, kept.headers["_AMQ_DL_COUNT"]) == ("three cups of tea", "4")
        assert (kept.headers["_AMQ_DL_REASON"], kept.headers["_AMQ_DL_RULE"]) == ("max-deliveries", "orders-by-hand")
        client.ack(kept)
        client.leave()
    assert done(broker) == {"try-again retried": 1, "orders-by-hand moved": 1}
    assert [broker.queue(name)["messages"] for name in ("orders.eu", "DLQ", "orders-by-hand")] == [0, 0, 0]


def test_an_expired_message_is_discarded_when_its_age_is_reached(broker: DaemonProcess) -> None:
    with proton(broker.ports["amqp"]) as connection:
        sender = connection.create_sender("queue://sensors.hall")
        sender.send(Message("21.5", durable=True, ttl=0.05))
    broker.await_log("rule.applied")
    found = broker.queue("ExpiryQueue")
    assert (found["messages"], found["counters"]["discarded"]) == (0, 1)
    assert done(broker) == {"old-readings discarded": 1}


def test_a_disabled_queue_refuses_or_its_messages_wait_until_it_is_open(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS + WAITING) as broker:
        with proton(broker.ports["amqp"]) as connection:
            sent = connection.create_sender("queue://shut").send(Message("1", durable=True))
            assert sent.remote_state == Delivery.ACCEPTED
        assert broker.queue("shut")["attributes"]["enabled"] is False
        broker.await_log("rule.refused")  # it is for put-disabled alone
        assert broker.queue("DLQ")["messages"] == 1
        broker.restart()
        broker.reload((SETTINGS + WAITING).replace("enabled = false", "enabled = true"))
        with connected(broker.port) as client:
            client.subscribe("/queue/shut", "client-individual")
            assert client.take().headers["_AMQ_DL_REASON"] == "put-disabled"


def test_other_rules_are_in_force_after_a_reload(broker: DaemonProcess) -> None:
    broker.reload(SETTINGS)
    with connected(broker.port) as client:
        client.put("/queue/orders.eu", "1", DURABLE)
    fail(broker, "orders.eu")
    assert broker.queue("DLQ")["messages"] == 1
    broker.reload(SETTINGS + RULES)
    assert fail(broker, "orders.eu").headers["_AMQ_DL_RULE"] == "try-again"
    before = broker.log.count("reload.refused")
    broker.config.write_text(SETTINGS + RULES + 'to = "nowhere"\n')
    broker.signal(signal.SIGHUP)
    broker.await_log("reload.refused", times=before + 1)
    assert "to: it has no effect with discard" in broker.log
    assert fail(broker, "orders.eu").headers["_AMQ_DL_RETRIES"] == "2"
