"""Qpid Proton for Python: messages both ways, what a sender is told, who settles last, and links of one name."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from proton import Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container, LinkOption
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


@pytest.mark.parametrize("nbytes", [100, 131_072, 300_000, 2_000_000])
@pytest.mark.parametrize("frame_bytes", [512, 65_536])
def test_messages_in_many_frames(broker: DaemonProcess, nbytes: int, frame_bytes: int) -> None:
    sent = Message(bytes(number % 251 for number in range(nbytes)), annotations={symbol("x-opt-a"): 1}, id=7)
    with connected(broker.ports["amqp"], max_frame_size=frame_bytes) as connection:
        connection.create_sender("queue://proton.frames").send(sent)
        receiver = connection.create_receiver("queue://proton.frames")
        message = receiver.receive()
        assert (message.body, message.annotations, message.id) == (sent.body, sent.annotations, 7)
        receiver.accept()


@pytest.mark.parametrize("option", [AtMostOnce(), AtLeastOnce()])
def test_settled_or_not(broker: DaemonProcess, option: LinkOption) -> None:
    with connected(broker.ports["amqp"]) as connection:
        sender = connection.create_sender("queue://proton.settled", options=option)
        for number in range(150):
            sender.send(Message(number))
        receiver = connection.create_receiver("queue://proton.settled", credit=3, options=option)
        for number in range(150):
            assert receiver.receive().body == number
            if isinstance(option, AtLeastOnce):
                receiver.accept()
    assert broker.queue("proton.settled")["messages"] == 0


def test_a_released_message_comes_again(broker: DaemonProcess) -> None:
    with connected(broker.ports["amqp"]) as connection:
        connection.create_sender("queue://proton.released").send(Message("once"))
        receiver = connection.create_receiver("queue://proton.released", credit=1)
        for _ in range(3):
            assert receiver.receive().body == "once"
            receiver.release(delivered=False)
        assert receiver.receive().body == "once"
        receiver.accept()


def test_drain(broker: DaemonProcess) -> None:
    with connected(broker.ports["amqp"]) as connection:
        connection.create_sender("queue://proton.drained").send(Message("only"))
        receiver = connection.create_receiver("queue://proton.drained", credit=0)
        receiver.link.drain(7)
        assert receiver.receive().body == "only"
        connection.wait(lambda: receiver.link.credit == 0, msg="the credit to be used up")
        assert not receiver.link.draining()
        receiver.accept()


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
