"""Qpid Proton for Python: what a sender is told, who settles last, and links of one name."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from proton import Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import LinkDetached

from tests.support.daemon import DaemonProcess
from tests.support.proton_client import TEMPORARY, SettlesSecond, connected


class Sends(MessagingHandler):
    """Sends messages, and settles each when its outcome has come."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__(auto_settle=False)
        self.outcomes: list[tuple[str, bool]] = []
        self._url = url
        self._left = count
        self._count = count

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, reconnect=False)
        self.sender = event.container.create_sender(connection, "queue://proton.second", options=SettlesSecond())

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._left:
            self._left -= 1
            event.sender.send(Message(body=str(self._left), durable=True))

    def on_accepted(self, event: Any) -> None:
        self.outcomes.append(("accepted", event.delivery.settled))
        event.delivery.settle()
        if len(self.outcomes) == self._count:
            event.connection.close()


def test_the_producer_settles_last(broker: DaemonProcess) -> None:
    handler = Sends(f"127.0.0.1:{broker.ports['amqp']}", 3)
    Container(handler).run()
    assert handler.sender.remote_rcv_settle_mode == Link.RCV_SECOND
    assert handler.outcomes == [("accepted", False)] * 3
    assert broker.queue("proton.second")["messages"] == 3


def test_a_sender_hears_that_its_queue_was_deleted(broker: DaemonProcess) -> None:
    with connected(broker.ports["amqp"]) as connection:
        sender = connection.create_sender("queue://proton.deleted")
        sender.send(Message("1", durable=True))
        token = (broker.data / "management.token").read_text().strip()
        url = f"http://127.0.0.1:{broker.ports['http']}/api/v1/queues/proton.deleted?force=true"
        answer = httpx.delete(url, headers={"Authorization": f"Bearer {token}"}, trust_env=False)
        assert answer.status_code == 200, answer.text
        with pytest.raises(LinkDetached, match=r"the queue of address proton\.deleted was deleted") as told:
            connection.wait(lambda: False, timeout=30)
        assert told.value.condition == "amqp:resource-deleted"


def test_a_temporary_queue_is_for_its_own_connection(broker: DaemonProcess) -> None:
    port = broker.ports["amqp"]
    with connected(port) as owner, connected(port) as other:
        mine = owner.create_receiver(None, dynamic=True, options=TEMPORARY)
        address = mine.link.remote_source.address
        other.create_sender(address).send(Message("for you"))
        assert mine.receive(timeout=30).body == "for you"
        with pytest.raises(LinkDetached) as refused:
            other.create_receiver(address)
        assert refused.value.condition == "amqp:resource-locked"


def test_links_of_one_name_share_a_queue(broker: DaemonProcess) -> None:
    """Proton names a link after its container and address: two processes of one container id have the same names."""
    with ExitStack() as stack:
        connections = []
        for _ in range(2):
            container = Container()
            container.container_id = "proton.same"
            connections.append(stack.enter_context(connected(broker.ports["amqp"], container=container)))
        receivers = [each.create_receiver("queue://proton.same", credit=1) for each in connections]
        assert receivers[0].link.name == receivers[1].link.name
        sender = connections[0].create_sender("queue://proton.same")
        for body in ("1", "2"):
            sender.send(Message(body, durable=True))
        assert sorted(str(receiver.receive(timeout=30).body) for receiver in receivers) == ["1", "2"]
