"""A body that comes in parts, whatever protocol it comes by: read, not read, done, and gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.engine import PENDING_BYTES_MAX, LargeBody
from broker.engine.model.errors import DiskFull, EngineError
from broker.engine.queues.bodies import PENDING_ALL_BYTES_MAX
from broker.sessions.reading import Reading
from broker.sessions.upload import Uploading
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_files import SimFiles


class Source:
    """A connection that uploads."""

    def __init__(self, broker: SimBroker) -> None:
        self.broker = broker
        self.paused = False
        self.done: list[LargeBody | EngineError] = []
        self.proceeded = 0
        broker.parts.tick.enter()
        self.reading = Reading(self, self)
        self.upload = self.another()

    def another(self) -> Uploading:
        """Another of its links."""
        return Uploading(self.broker.engine, self.reading)

    def begin(self, upload: Uploading) -> None:
        """Begin an upload."""
        upload.begin(self.done.append, self.proceed, durable=True)

    def guarded(self, transport: object, call: Callable[..., None]) -> Callable[..., None]:
        return call

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def proceed(self) -> None:
        self.proceeded += 1

    @property
    def read(self) -> bool:
        """Whether the connection is read."""
        return not self.paused


def test_it_is_done_once_it_is_durable_and_only_then_is_read_on() -> None:
    source = Source(SimBroker())
    source.begin(source.upload)
    source.upload.write(b"a" * 10, last=False)
    assert (source.read, source.done) == (True, [])
    source.upload.write(b"b" * 10, last=True)
    assert (source.read, source.upload.whole, source.done) == (False, True, [])
    source.broker.run()
    assert [len(body) for body in source.done if isinstance(body, LargeBody)] == [20]
    assert (source.read, source.proceeded, source.upload.coming) == (True, 1, False)


def test_a_slow_disk_stops_reading_at_the_limit() -> None:
    source = Source(SimBroker())
    source.begin(source.upload)
    source.upload.write(b"a" * PENDING_BYTES_MAX, last=False)
    stopped = [source.paused]
    source.upload.write(b"a", last=False)
    stopped.append(source.paused)
    assert stopped == [False, True]
    source.broker.run()
    assert (source.read, source.proceeded) == (True, 0)


@pytest.mark.parametrize("last", [False, True])
def test_a_refusal_of_the_disk_is_reported_once(last: bool) -> None:
    files = SimFiles()
    source = Source(SimBroker(files=files))
    source.begin(source.upload)
    files.capacity = 0
    source.upload.write(b"a" * 1000, last=last)
    source.broker.run()
    assert [type(each) for each in source.done] == [DiskFull]
    assert (source.read, source.proceeded, source.upload.coming) == (True, int(last), False)


def test_an_abandoned_upload_is_never_done() -> None:
    source = Source(SimBroker())
    source.begin(source.upload)
    source.upload.write(b"a", last=True)
    source.upload.abandon()
    assert (source.read, source.proceeded) == (True, 1)
    source.broker.run()
    assert source.done == []
    source.upload.abandon()
    assert source.proceeded == 1, "harmless when nothing is coming"


@pytest.mark.parametrize("last", [False, True])
def test_the_end_of_one_upload_does_not_resume_reading_for_another(last: bool) -> None:
    """AMQP: several links of a connection may upload at a time."""
    source = Source(SimBroker())
    other = source.another()
    for upload in (source.upload, other):
        source.begin(upload)
    source.upload.write(b"a" * (PENDING_BYTES_MAX + 1), last=last)
    other.write(b"a", last=False)
    other.abandon()
    assert not source.read
    source.broker.run()
    assert source.read


# -- all together ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["durable", "aborted", "refused"])
def test_bytes_that_wait_for_the_disk_are_charged_until_they_are_written(ending: str) -> None:
    files = SimFiles()
    source = Source(SimBroker(files=files))
    source.begin(source.upload)
    if ending == "refused":
        files.capacity = 0
    for _ in range(3):
        source.upload.write(b"a" * 1000, last=False)
    assert source.broker.engine.usage.bytes == 3000
    if ending == "aborted":
        source.upload.abandon()
    source.broker.run()
    assert source.broker.engine.usage.bytes == 0


def test_all_uploads_together_may_have_a_part_of_the_memory() -> None:
    """Limit: a quarter of the memory; beyond it each waits until all that it has sent is written, not longer."""
    broker = SimBroker(engine_limits={"global_size_max": 4000})
    sources = [Source(broker) for _ in range(3)]
    for source in sources:
        source.begin(source.upload)
    sources[0].upload.write(b"a" * 1000, last=False)
    assert sources[0].read
    sources[1].upload.write(b"a", last=False)
    assert [source.read for source in sources] == [True, False, True], "who sends nothing does not wait"
    broker.run()
    assert [source.read for source in sources] == [True, True, True]


@pytest.mark.parametrize("memory", [-1, 1 << 40])
def test_however_much_memory_there_is_they_have_a_limit(memory: int) -> None:
    broker = SimBroker(engine_limits={"global_size_max": memory})
    sources = [Source(broker) for _ in range(PENDING_ALL_BYTES_MAX // PENDING_BYTES_MAX + 1)]
    for source in sources:
        source.begin(source.upload)
        source.upload.write(bytes(PENDING_BYTES_MAX), last=False)
    assert [source.read for source in sources] == [True] * (len(sources) - 1) + [False]
    broker.run()
    assert sources[-1].read


def test_a_producer_waits_for_them() -> None:
    """They take memory that messages would have, and give it back."""
    broker = SimBroker(
        configured({"match": "q", "address-full-policy": "BLOCK"}), engine_limits={"global_size_max": 4000}
    )
    client = broker.connect()
    client.confirmed("/queue/q")
    source = Source(broker)
    broker.hold_disk()
    source.begin(source.upload)
    source.upload.write(b"a" * 5000, last=False)
    client.send("/queue/q", b"x")
    assert not client.reading
    broker.release_disk()
    broker.run()
    assert client.reading
