"""What belongs to one user is refused to another, over real sockets, before and after the broker is killed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.reactor import Container, DurableSubscription
from proton.utils import LinkDetached

from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost
from tests.support.paho_client import Paho, Refused, kept
from tests.support.paho_client import connected as mqtt
from tests.support.proton_client import TEMPORARY
from tests.support.proton_client import connected as amqp
from tests.support.stomp_py import connected as stomp

USERS = {"alice": "right", "bob": "wrong"}
ALICE, BOB = USERS.items()
VERSIONS = ("3.1.1", "5")
STOMP = {"durable-subscription-name": "name"}

#: Both users may do everything, but nothing to what belongs to the other.
SETTINGS = """
[security]
audit-file = "{audit}"
[[security-settings]]
match = "#"
send = ["amq"]
consume = ["amq"]
createAddress = ["amq"]
createDurableQueue = ["amq"]
deleteDurableQueue = ["amq"]
createNonDurableQueue = ["amq"]
deleteNonDurableQueue = ["amq"]
"""


def over_amqp(stack: ExitStack, broker: DaemonProcess, login: tuple[str, str]) -> Any:
    """A connection with the container id of all of them."""
    container = Container()
    container.container_id = "amqp"
    user, password = login
    more = {"container": container, "user": user, "password": password, "allowed_mechs": "PLAIN"}
    return stack.enter_context(amqp(broker.ports["amqp"], **more))


def subscribed(connection: Any) -> Any:
    return connection.create_receiver("topic://owned.amqp", name="name", options=DurableSubscription())


def left_by_alice(broker: DaemonProcess) -> None:
    """Alice has a session of each version and two durable subscriptions, with a message each."""
    for version in VERSIONS:
        with mqtt(broker.ports["mqtt"], f"client {version}", version, user=ALICE, **kept(version)) as client:
            client.subscribe(f"owned/{version[0]}", 1)
    with stomp(broker.port, client_id="stomp", login=ALICE) as client:
        client.subscribe("/topic/owned.stomp", headers=STOMP)
    with ExitStack() as stack:
        subscribed(over_amqp(stack, broker, ALICE))
    with mqtt(broker.ports["mqtt"], user=BOB) as sender:
        for topic in ("owned/3", "owned/5", "owned/stomp", "owned/amqp"):
            sender.publish(topic, b"for alice", 1)


def refused_to_bob(broker: DaemonProcess) -> None:
    """Whatever Bob asks for."""
    for version in VERSIONS:
        for more in (kept(version), {}):
            with pytest.raises(Refused) as refused:
                Paho(broker.ports["mqtt"], f"client {version}", version, user=BOB, **more)
            assert refused.value.code == 0x85, "what paho makes of 2 before MQTT 5, too"
    with stomp(broker.port, client_id="stomp", login=BOB) as client:
        with pytest.raises(Lost):
            client.subscribe("/topic/owned.stomp", headers=STOMP)
        assert client.error().headers["message"] == "permission denied"
    with ExitStack() as stack, pytest.raises(LinkDetached) as detached:
        subscribed(over_amqp(stack, broker, BOB))
    assert detached.value.condition == "amqp:unauthorized-access"


def temporary_queues_refused_to_bob(broker: DaemonProcess) -> None:
    """By the names that he learns from requests."""
    with stomp(broker.port, login=ALICE) as alice, stomp(broker.port, login=BOB) as bob:
        alice.subscribe("/temp-queue/answers")
        alice.put("/queue/requests", "what?", {"reply-to": "/temp-queue/answers"})
        bob.subscribe("/queue/requests")
        answers = bob.take().headers["reply-to"]
        bob.put(answers, "this")
        assert alice.take().text == "this"
        with pytest.raises(Lost):
            bob.subscribe(answers)
        assert bob.error().headers["message"].endswith("belongs to another connection")
    with ExitStack() as stack:
        mine = over_amqp(stack, broker, ALICE).create_receiver(None, dynamic=True, options=TEMPORARY)
        bob = stack.enter_context(amqp(broker.ports["amqp"], user=BOB[0], password=BOB[1], allowed_mechs="PLAIN"))
        bob.create_sender(mine.link.remote_source.address).send(Message("for you"))
        assert mine.receive(timeout=30).body == "for you"
        with pytest.raises(LinkDetached) as refused:
            bob.create_receiver(mine.link.remote_source.address)
        assert refused.value.condition == "amqp:resource-locked"


def found_by_alice(broker: DaemonProcess) -> None:
    """All that she left."""
    for version in VERSIONS:
        with mqtt(broker.ports["mqtt"], f"client {version}", version, user=ALICE, **kept(version)) as client:
            assert client.present
            assert client.payloads(1) == [b"for alice"]
    with stomp(broker.port, client_id="stomp", login=ALICE) as client:
        client.subscribe("/topic/owned.stomp", headers=STOMP)
        assert client.texts(1) == ["for alice"]
    with ExitStack() as stack:
        receiver = subscribed(over_amqp(stack, broker, ALICE))
        assert bytes(receiver.receive(timeout=30).body) == b"for alice"
        receiver.accept()


def test_owners(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with running(tmp_path, SETTINGS.format(audit=audit), users=USERS) as broker:
        left_by_alice(broker)
        for killed in (False, True):
            if killed:
                broker.restart()
            refused_to_bob(broker)
            temporary_queues_refused_to_bob(broker)
        found_by_alice(broker)
        broker.stop()
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    told = [each for each in lines if each["code"] == "session.refused" and "client" in each]  # others are numbers
    assert len(told) >= 2, "one before it was killed, one after"
    assert {(each["user"], each["owner"]) for each in told} == {("bob", "alice")}
    denied = [each for each in lines if each["code"] == "access.denied"]
    assert ("bob", "manageSessions") in {(each["user"], each.get("permission")) for each in denied}
