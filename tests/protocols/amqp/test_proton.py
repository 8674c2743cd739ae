"""A real client: python-qpid-proton against a small broker on the codec."""

from __future__ import annotations

import pytest
from proton import ConnectionException, Message, symbol
from proton.reactor import AtLeastOnce, AtMostOnce, LinkOption
from proton.utils import BlockingConnection

from tests.protocols.amqp.toy import CREDIT, toy_broker


def test_send_receive_settle() -> None:
    with toy_broker() as broker:
        connection = BlockingConnection(f"127.0.0.1:{broker.port}", timeout=20, allowed_mechs="ANONYMOUS")
        sender = connection.create_sender("queue")
        bodies = [f"message {number}" for number in range(3 * CREDIT)]
        for number, body in enumerate(bodies):
            sender.send(Message(body=body, id=number, properties={"number": number}, durable=True))
        receiver = connection.create_receiver("queue", credit=10)
        for number, body in enumerate(bodies):
            message = receiver.receive()
            assert (str(message.body), str(message.id)) == (body, str(number))
            assert vars(message)["properties"] == {"number": number}
            receiver.accept()
        connection.close()
        assert broker.logins == ["nobody"]
        assert not broker.queues["queue"]


def test_release() -> None:
    with toy_broker() as broker:
        connection = BlockingConnection(f"127.0.0.1:{broker.port}", timeout=20, allowed_mechs="ANONYMOUS")
        sender = connection.create_sender("queue")
        sender.send(Message(body="once"))
        receiver = connection.create_receiver("queue", credit=1)
        for _ in range(3):
            assert receiver.receive().body == "once"
            receiver.release(delivered=False)
        assert receiver.receive().body == "once"
        receiver.accept()
        connection.close()


@pytest.mark.parametrize("nbytes", [100, 131072, 300000, 2_000_000])
@pytest.mark.parametrize("frame_bytes", [512, 65536])
def test_large_messages_in_many_frames(nbytes: int, frame_bytes: int) -> None:
    body = bytes(number % 251 for number in range(nbytes))
    with toy_broker() as broker:
        url = f"127.0.0.1:{broker.port}"
        connection = BlockingConnection(url, timeout=20, allowed_mechs="ANONYMOUS", max_frame_size=frame_bytes)
        connection.create_sender("queue").send(Message(body=body, annotations={symbol("x-opt-a"): 1}))
        receiver = connection.create_receiver("queue")
        message = receiver.receive()
        assert message.body == body
        assert message.annotations == {symbol("x-opt-a"): 1}
        receiver.accept()
        connection.close()


@pytest.mark.parametrize("option", [AtMostOnce(), AtLeastOnce()])
def test_settled_or_not(option: LinkOption) -> None:
    with toy_broker() as broker:
        connection = BlockingConnection(f"127.0.0.1:{broker.port}", timeout=20, allowed_mechs="ANONYMOUS")
        sender = connection.create_sender("queue", options=option)
        for number in range(10):
            sender.send(Message(body=number))
        receiver = connection.create_receiver("queue", credit=3)
        assert [receiver.receive().body for _ in range(10)] == list(range(10))
        connection.close()


def test_drain() -> None:
    with toy_broker() as broker:
        connection = BlockingConnection(f"127.0.0.1:{broker.port}", timeout=20, allowed_mechs="ANONYMOUS")
        connection.create_sender("queue").send(Message(body="only"))
        receiver = connection.create_receiver("queue", credit=0)
        receiver.link.drain(7)
        assert receiver.receive().body == "only"
        connection.wait(lambda: receiver.link.credit == 0, msg="the credit to be used up")
        assert not receiver.link.draining()
        connection.close()


def login(url: str, password: str) -> BlockingConnection:
    """A connection of joe's."""
    return BlockingConnection(url, timeout=20, allowed_mechs="PLAIN", sasl_enabled=True, user="joe", password=password)


def test_plain() -> None:
    with toy_broker() as broker:
        url = f"127.0.0.1:{broker.port}"
        connection = login(url, "pw")
        connection.create_sender("queue").send(Message(body="x"))
        connection.close()
        assert broker.logins == ["joe"]
        with pytest.raises(ConnectionException):
            login(url, "wrong")
        assert broker.logins == ["joe"]
