"""Bodies in files of their own, over STOMP: streamed in, kept, streamed out."""

from __future__ import annotations

import errno
import gc

import pytest

from broker.config import Config, load
from broker.engine.queues.bodies import PENDING_BYTES_MAX
from store.bodies import SUFFIX
from store.errors import Corrupt
from store.inspect import verify
from store.repair import plan as repair
from tests.broker.sessions.large import LARGE, body, config, files_of
from tests.support.amqp_client import AmqpSim
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker, SimClient, configured, unswept
from tests.support.sim_files import refusing
from tests.support.stomp_client import frame


@pytest.fixture
def broker() -> SimBroker:
    """A broker with a low limit for bodies in memory."""
    return SimBroker(config())


def received(client: SimClient, data: bytes) -> bool:
    """Whether the client got one message, with this body, and acknowledges it."""
    (message,) = client.messages()
    client.ack(message)
    return message.body == data


def send(client: SimClient, data: bytes, *, sized: bool, **headers: str) -> None:
    """A SEND with its receipt, with or without content-length."""
    if sized:
        client.confirmed("/queue/q", data, **headers)
    else:
        raw = frame("SEND", {"destination": "/queue/q", "persistent": "true", "receipt": "r", **headers}, data)
        head, _, rest = raw.partition(b"\n\n")
        lines = [line for line in head.split(b"\n") if not line.startswith(b"content-length")]
        client.raw(b"\n".join(lines) + b"\n\n" + rest)
        assert client.take("RECEIPT")


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("nbytes", [LARGE - 1, LARGE, LARGE + 1, 700_000])
def test_in_and_out(client: SimClient, broker: SimBroker, sized: bool, nbytes: int) -> None:
    send(client, body(nbytes), sized=sized)
    assert len(files_of(broker)) == (nbytes >= LARGE)
    client.subscribe("/queue/q")
    assert received(client, body(nbytes))
    assert not files_of(broker)
    client.send("/queue/q", b"after")
    assert client.bodies() == [b"after"]


@pytest.mark.parametrize("crash", [True, False])
def test_is_there_after_a_restart(client: SimClient, broker: SimBroker, crash: bool) -> None:
    client.confirmed("/queue/q", body())
    client.send("/queue/q", body(), persistent="false")
    client.raw(frame("SEND", {"destination": "/queue/q", "persistent": "true"}, body())[:2000])  # not whole
    assert len(files_of(broker)) == 3
    broker = broker.restart(crash=crash)
    assert len(files_of(broker)) == 1
    client = broker.subscriber("/queue/q")
    assert received(client, body())
    assert not files_of(broker)


def test_a_message_consumed_automatically_goes_when_its_last_byte_has_left(
    client: SimClient, broker: SimBroker
) -> None:
    for data in (body(600_000), b"behind", body(700_000)):
        client.confirmed("/queue/q", data)
    reader = broker.connect()
    reader.stalled = True
    reader.subscribe("/queue/q", ack="auto")
    assert len(files_of(broker)) == 2
    reader.unstall()
    assert reader.bodies() == [body(600_000), b"behind", body(700_000)]
    assert not files_of(broker)


def test_a_reader_that_leaves_in_the_middle(client: SimClient, broker: SimBroker) -> None:
    client.confirmed("/queue/q", body(700_000))
    reader = broker.connect()
    reader.stalled = True
    reader.subscribe("/queue/q", ack="auto")
    reader.drop()
    client.subscribe("/queue/q")
    (message,) = client.messages()
    assert message.body == body(700_000)
    assert message.headers["redelivered"] == "true"


def test_messages_before_and_after_keep_their_order(client: SimClient) -> None:
    sends = [(b"one", True), (body(), True), (b"two", True), (body(5000), False), (b"three", True)]
    raw = b"".join(
        frame("SEND", {"destination": "/queue/q"}, data) if sized else b"SEND\ndestination:/queue/q\n\n" + data + b"\0"
        for data, sized in sends
    )
    client.raw(raw)
    client.subscribe("/queue/q")
    assert client.bodies() == [data for data, _ in sends]


@pytest.mark.parametrize("sized", [True, False])
def test_an_upload_that_breaks_off_leaves_nothing(broker: SimBroker, sized: bool) -> None:
    head = b"SEND\ndestination:/queue/q\n" + (b"content-length:5000\n" if sized else b"") + b"\n"
    for end in ("drop", "eof", "shut down"):
        client = broker.connect()
        client.raw(head + body()[:3000])
        assert len(files_of(broker)) == 1
        if end == "eof":
            with broker.turn():
                client.session.receive_eof()
            assert [error.headers["message"] for error in client.take("ERROR")] == ["incomplete frame"]
        elif end == "drop":
            client.drop()
        else:
            broker.shut_down()
        assert not files_of(broker)


def test_a_wrong_length_leaves_nothing(client: SimClient, broker: SimBroker) -> None:
    client.raw(b"SEND\ndestination:/queue/q\nreceipt:1\ncontent-length:2999\n\n" + body() + b"\0")
    assert client.take("ERROR")
    assert not client.take("RECEIPT")
    assert not files_of(broker)
    assert "q" not in broker.engine.queues or not broker.engine.queue("q").ready


@pytest.mark.parametrize(("nbytes", "taken"), [(5000, True), (5001, False)])
@pytest.mark.parametrize("sized", [True, False])
def test_large_body_bytes_max(nbytes: int, taken: bool, sized: bool) -> None:
    broker = SimBroker(config(large_body_bytes_max=5000))
    client = broker.connect()
    head = b"SEND\ndestination:/queue/q\n" + (b"content-length:%d\n" % nbytes if sized else b"") + b"receipt:1\n\n"
    client.raw(head + body(nbytes) + b"\0")
    assert bool(client.take("RECEIPT")) is taken
    assert [error.headers["message"] for error in client.take("ERROR")] == ([] if taken else ["body too large"])
    assert len(files_of(broker)) == taken


def test_a_schedule_that_repeats_is_refused_before_the_body(client: SimClient, broker: SimBroker) -> None:
    client.raw(frame("SEND", {"destination": "/queue/q", "AMQ_SCHEDULED_REPEAT": "2"}, body())[:1500])
    (error,) = client.take("ERROR")
    assert error.headers["message"] == "not supported"
    assert not files_of(broker)
    assert "q" not in broker.engine.addresses


def test_off() -> None:
    shipped = load(None)
    acceptor = shipped.acceptors["stomp"].model_copy(update={"stomp_min_large_message_size": -1})
    broker = SimBroker(configured(acceptors=dict(shipped.acceptors) | {"stomp": acceptor}))
    client = broker.connect()
    client.confirmed("/queue/q", body(300_000))
    assert not files_of(broker)


def test_a_disk_without_room_refuses_before_the_journal_lacks_it(broker: SimBroker) -> None:
    broker.files.capacity = broker.files.used() + (1 << 20) + 4000  # a segment is kept free
    client = broker.connect()
    data = body(9 << 20)
    client.send("/queue/q", data, persistent="true", receipt="1")
    (error,) = client.take("ERROR")
    assert "the disk is full" in error.body.decode()
    assert not client.take("RECEIPT")
    assert not files_of(broker)
    assert broker.failure is None
    client = broker.connect()
    client.confirmed("/queue/q", b"small")


def test_a_slow_disk_stops_the_sender_alone() -> None:
    broker = SimBroker(config(), lazy_disk=True)
    broker.step()
    client, other = broker.connect(), broker.connect()
    client.raw(b"SEND\ndestination:/queue/q\ncontent-length:3000000\n\n" + bytes(PENDING_BYTES_MAX))
    assert (client.reading, other.reading) == (True, True)
    client.raw(b"more")
    assert (client.reading, other.reading) == (False, True)
    broker.step()
    assert (client.reading, other.reading) == (True, True)
    client.drop()
    broker.step()
    assert not files_of(broker)


def test_two_subscribers_and_a_dead_letter_share_the_file() -> None:
    broker = SimBroker(config({"match": "t", "max-delivery-attempts": 1}))
    readers = [broker.connect(**{"client-id": f"c{n}"}) for n in range(2)]
    for reader in readers:
        reader.subscribe("/topic/t", durable_subscription_name="d")
    sender = broker.connect()
    sender.send("/topic/t", body(), persistent="true")
    assert len(files_of(broker)) == 1
    assert received(readers[0], body())
    (message,) = readers[1].messages()
    readers[1].nack(message)
    assert len(files_of(broker)) == 1
    broker = broker.restart()
    assert len(files_of(broker)) == 1
    last = broker.subscriber("/queue/DLQ")
    assert received(last, body())
    assert not files_of(broker)


def test_expiry_purge_and_deletion(client: SimClient, broker: SimBroker) -> None:
    client.confirmed("/queue/q", body(), expires=str(broker.now + 1000))
    broker.advance(60_000)
    assert [body_of(m) for m, _ in broker.engine.messages.browse(broker.engine.queue("ExpiryQueue"))] == [body()]
    client.confirmed("/queue/q", body(4000))
    assert len(files_of(broker)) == 2
    with broker.turn():
        broker.engine.messages.purge(broker.engine.queue("q"))
        broker.engine.delete_queue(broker.engine.queue("ExpiryQueue"))
    assert not files_of(broker)


def test_a_transaction_that_is_rolled_back_leaves_nothing(client: SimClient, broker: SimBroker) -> None:
    for end in ("ABORT", "COMMIT"):
        client.do("BEGIN", {"transaction": "t"})
        client.send("/queue/q", body(), persistent="true", transaction="t")
        assert len(files_of(broker)) == 1
        client.do(end, {"transaction": "t"})
        assert len(files_of(broker)) == (end == "COMMIT")
    client.subscribe("/queue/q")
    assert received(client, body())


def test_whoever_may_not_send_learns_it_before_the_body() -> None:
    broker = SimBroker(config({"match": "q", "auto-create-queues": False, "auto-create-addresses": False}))
    client = broker.connect()
    client.raw(b"SEND\ndestination:/queue/q\nreceipt:7\ncontent-length:5000\n\n")
    (error,) = client.take("ERROR")
    assert error.headers["receipt-id"] == "7"
    assert client.closed
    assert not files_of(broker)


@pytest.mark.parametrize("damage", [b"", body()[:-1], body()[:-1] + b"?"])
def test_a_body_that_cannot_be_read_cuts_its_receiver_off(client: SimClient, broker: SimBroker, damage: bytes) -> None:
    client.confirmed("/queue/q", body())
    (path,) = files_of(broker)
    broker.files.put(path, damage)
    reader = broker.subscriber("/queue/q")
    assert reader.closed
    assert not reader.frames
    assert broker.reported("body.unreadable")
    assert broker.engine.queue("q").ready


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_body_that_cannot_be_read_for_now_comes_again_and_has_not_failed(number: int) -> None:
    broker = SimBroker(config({"match": "q", "max-delivery-attempts": 1}))
    client = broker.connect()
    client.confirmed("/queue/q", body())
    with refusing(broker.files, number):
        reader = broker.subscriber("/queue/q")
        assert reader.closed
    assert broker.engine.queue("q").message_count == 1
    client.subscribe("/queue/q")
    assert received(client, body())


def test_a_body_that_cannot_be_converted_for_now_comes_again(client: SimClient, broker: SimBroker) -> None:
    client.confirmed("/queue/q", body(), content_type="text/plain")
    with refusing(broker.files, errno.EMFILE):
        reader = AmqpSim(broker)
        reader.receiver("q")
        broker.advance(5_000)
        assert not reader.arrived
        assert not reader.closed
        assert 1 <= len(broker.reported("body.unreadable")) <= 6
    broker.advance(1_000)
    assert len(reader.arrived) == 1
    assert not broker.engine.queues.get("DLQ") or not broker.engine.queue("DLQ").message_count


def test_a_body_that_is_missing_stops_the_start(client: SimClient, broker: SimBroker) -> None:
    client.confirmed("/queue/q", body())
    broker.shut_down()
    (path,) = files_of(broker)
    broker.files.put(path, body()[:-1])
    broker.files.crash()
    with pytest.raises(Corrupt, match="has 2999 bytes instead of 3000"):
        SimBroker(config(), files=broker.files)
    directory = broker.parts.log.directory
    assert not verify(broker.files, directory).ok
    made = repair.plan(broker.files, directory, broker.now)
    assert len(made.messages) == 1
    repair.apply(broker.files, directory, made, "/backup")
    assert verify(broker.files, directory).ok
    broker.files.crash()
    broker = SimBroker(config(), files=broker.files)
    assert not broker.engine.queue("q").ready
    assert [path for path in broker.files.paths() if "/torn/" in path]
    assert not files_of(broker)


def cleaned_early(config: Config) -> Config:
    """The configuration with small segments that are cleaned once there are two."""
    sizes = {"segment_size": 64 << 10, "reserve": 4096, "compact_min_files": 2, "compact_percentage": 50}
    return config.model_copy(update={"journal": config.journal.model_copy(update=sizes)})


def test_cleaning_carries_references_forward() -> None:
    broker = SimBroker(cleaned_early(config()))
    client = broker.connect()
    client.confirmed("/queue/kept", body())
    client.subscribe("/queue/gone", ack="auto")
    for _ in range(10):
        client.confirmed("/queue/gone", bytes(900))
        for _ in range(20):
            client.send("/queue/gone", bytes(900), persistent="true")
        broker.advance(100)
    assert broker.engine.cleaner.messages
    broker = broker.restart()
    client = broker.subscriber("/queue/kept")
    assert received(client, body())
    assert not files_of(broker)


@pytest.mark.parametrize("crash", [None, True, False])
def test_large_messages_keep_their_place_on_an_address_that_pages(crash: bool | None) -> None:
    paging: dict[str, object] = {"match": "q", "max-size-messages": 2, "address-full-policy": "PAGE"}
    broker = SimBroker(config(paging))
    client = broker.connect()
    sent = [b"1", body(1001), b"3", b"4", body(1005), b"6", body(1007)]
    for data in sent:
        client.confirmed("/queue/q", data)
    assert broker.engine.queue("q").tail is not None
    if crash is not None:
        broker = broker.restart(crash=crash)
        client = broker.connect()
    client.subscribe("/queue/q", ack="auto")
    assert client.bodies() == sent
    assert not files_of(broker)


def test_cleaning_writes_them_anew_there_too() -> None:
    broker = SimBroker(config({"match": "q", "max-size-messages": 1, "address-full-policy": "PAGE"}))
    client = broker.connect()
    sent = [b"1", body(1001), b"3", body(1003)]
    for data in sent:
        client.confirmed("/queue/q", data)
    broker = broker.restart()
    space = broker.engine.journal.space
    first = space.segments[0]
    with broker.turn():
        assert broker.engine.cleaner.whole(first) == 4
    assert space.live(first) == 0
    broker = broker.restart()
    client = broker.subscriber("/queue/q", ack="auto")
    assert client.bodies() == sent


def test_purging_a_paged_queue_removes_the_files() -> None:
    broker = SimBroker(config({"match": "q", "max-size-messages": 1, "address-full-policy": "PAGE"}))
    client = broker.connect()
    for n in range(1, 5):
        client.confirmed("/queue/q", body(1000 + n))
        client.confirmed("/queue/q", b"small")
    assert len(files_of(broker)) == 4
    with broker.turn():
        assert broker.engine.messages.purge(broker.engine.queue("q")) == 8
    assert not files_of(broker)


def kept_of(broker: SimBroker) -> list[str]:
    """The files of bodies that are kept."""
    return [path for path in broker.files.paths() if "/retention/" in path and path.endswith(SUFFIX)]


@pytest.mark.parametrize("crash", [None, True])
def test_with_retention_on_a_body_is_kept_after_its_message(crash: bool | None) -> None:
    shipped = unswept(config())
    retention = shipped.journal.retention.model_copy(update={"enabled": True, "max_bytes": 7000})
    keeping = shipped.model_copy(update={"journal": shipped.journal.model_copy(update={"retention": retention})})
    broker = SimBroker(keeping)
    client = broker.connect()
    client.confirmed("/queue/q", body())
    client.send("/queue/q", body(4000), persistent="false")
    late = broker.connect()
    late.raw(b"SEND\ndestination:/queue/q\ncontent-length:5000\n\n" + body(2000))
    client.subscribe("/queue/q", ack="auto")
    if crash:
        broker = broker.restart()
    else:
        late.drop()
    assert not files_of(broker)
    (path,) = kept_of(broker)
    assert broker.files.read(path) == body()
    broker.advance(86_400_000)
    sender = broker.connect()
    for n in (4001, 4002):
        sender.confirmed("/queue/other", body(n))
    sender.subscribe("/queue/other", ack="auto")
    (path,) = kept_of(broker)
    assert broker.files.read(path) == body(4002), "the limit in bytes counts bodies too, the oldest go first"
    broker.advance(30 * 86_400_000)
    sender.confirmed("/queue/other", body(4003))
    (path,) = kept_of(broker)
    assert broker.files.read(path) == body(4003)


def test_cleaning_finds_large_messages_in_a_tail() -> None:
    paging: dict[str, object] = {"match": "kept", "max-size-messages": 1, "address-full-policy": "PAGE"}
    broker = SimBroker(cleaned_early(config(paging)))
    client = broker.connect()
    sent = [b"first", b"second", body(), b"third"]
    for data in sent:
        client.confirmed("/queue/kept", data)
    first = broker.parts.journal.segment
    client.subscribe("/queue/gone", ack="auto")
    for _ in range(10):
        for _ in range(20):
            client.send("/queue/gone", bytes(900), persistent="true")
        client.confirmed("/queue/gone", b"")
        broker.advance(100)
    assert broker.parts.journal.space.segments[0] > first
    broker = broker.restart()
    client = broker.subscriber("/queue/kept", ack="auto")
    assert client.bodies() == sent
    assert not files_of(broker)


def test_a_large_request_has_an_answer(client: SimClient, broker: SimBroker) -> None:
    service = broker.subscriber("/queue/service", ack="auto")
    client.send("/queue/service", body(), **{"reply-to": "/temp-queue/mine"})
    (request,) = service.messages()
    service.send(request.headers["reply-to"], b"answer")
    assert client.bodies() == [b"answer"]


def test_of_a_refused_message_nothing_is_left() -> None:
    broker = SimBroker(config({"match": "full", "max-size-messages": 1, "address-full-policy": "FAIL"}))
    client = broker.connect()
    client.send("/queue/full", b"small")
    gc.disable()  # which may come to look much later
    try:
        client.raw(frame("SEND", {"destination": "/queue/full", "receipt": "r"}, body()))
        assert [error.headers["receipt-id"] for error in client.take("ERROR")] == ["r"]
        assert not files_of(broker)
    finally:
        gc.enable()


def test_an_error_about_a_large_message_names_its_frame(client: SimClient) -> None:
    client.raw(frame("SEND", {"destination": "/queue/a.*", "receipt": "r"}, body()))
    (error,) = client.take("ERROR")
    assert error.body.startswith(b"SEND: ")
