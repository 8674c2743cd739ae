"""What the simulations share: a broker with small segments, what its queues hold, and what its journal says of them."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.config import Config
from store import decode
from store.record import RecordType, RemovalReason
from store.retention import kept
from store.segment import segment_number
from store.segment_directory import open_segment
from tests.support.bodies import body_of
from tests.support.books import death_faults
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_files import SimFiles
from tests.support.stomp_client import ServerFrame

#: How many times longer than in `make test` the simulations run: BARTLEBY_SIMULATION_SCALE.
SCALE: Final = int(os.environ.get("BARTLEBY_SIMULATION_SCALE", "1"))

#: Small enough that a workload crosses many segments and a copy of the disk costs nothing.
SEGMENT_BYTES: Final = 32 << 10

#: Headers of MESSAGE that tell one delivery from another, or one run of a broker from another.
_PASSING: Final = frozenset({"message-id", "ack", "subscription", "redelivered", "timestamp", "destination"})


def small(
    *settings: dict[str, object], segment_bytes: int = SEGMENT_BYTES, retained: bool = True, **sections: object
) -> Config:
    """The configuration as shipped with small segments, cleaned early.

    `retained`: none is ever deleted, so nothing is forgotten.
    """
    shipped = configured().journal
    retention = shipped.retention.model_copy(update={"enabled": retained, "max_age": -1, "max_bytes": -1})
    sizes = {"segment_size": segment_bytes, "reserve": 4096, "compact_min_files": 2, "compact_percentage": 50}
    journal = shipped.model_copy(update={**sizes, "retention": retention})
    return configured(*settings, journal=journal, **sections)


def journal_directory(config: Config) -> str:
    """Where the broker has its journal."""
    return f"{config.broker.data_directory}/journal"


def held(broker: SimBroker, queue: str) -> list[bytes]:
    """The bodies on a queue, in no order that means anything."""
    if queue not in broker.engine.queues:
        return []
    return [body_of(message) for message, _ in broker.engine.messages.browse(broker.engine.queue(queue))]


def everything(broker: SimBroker) -> Counter[bytes]:
    """How often each body lies on any queue."""
    return Counter(body for queue in broker.engine.queues for body in held(broker, queue))


def counts(broker: SimBroker, queue: str) -> dict[bytes, int]:
    """The failed deliveries of the messages on a queue."""
    found = broker.engine.queue(queue)
    return {body_of(message): found.delivery_count(message.id) for message, _ in broker.engine.messages.browse(found)}


def lasting(message: ServerFrame) -> dict[str, str]:
    """The headers of a message that stay the same whoever gets it, and whenever."""
    return {name: value for name, value in message.headers.items() if name not in _PASSING}


@dataclass(slots=True)
class Account:
    """What the journal says about one queue: what came in, and how each message left."""

    name: str = ""
    entered: set[int] = field(default_factory=set)
    left: dict[int, RemovalReason] = field(default_factory=dict)
    deleted: bool = False

    @property
    def present(self) -> set[int]:
        """What must still be there."""
        return set() if self.deleted else self.entered - self.left.keys()


def accounts(files: SimFiles, directory: str, below: int | None = None) -> dict[int, Account]:
    """The account of every queue that ever was, by its id, recounted from all segments there are.

    With `below` only what lies before this position counts.
    """
    return recounted(typed_records(files, directory, below))


def recounted(records: Iterable[tuple[int, decode.Record]]) -> dict[int, Account]:
    """See `accounts`.  A message that enters a queue twice or leaves it twice is an error (promise P3)."""
    queues: dict[int, Account] = defaultdict(Account)
    for type, record in records:
        if isinstance(record, decode.Message):
            for queue_id in record.header.queue_ids:
                assert record.id not in queues[queue_id].entered, f"message {record.id} was stored twice"
                queues[queue_id].entered.add(record.id)
        elif isinstance(record, decode.Copied):
            for queue_id in record.header.queue_ids:
                assert record.id in queues[queue_id].present, f"message {record.id} was copied where it was not"
        elif isinstance(record, decode.Removed):
            account = queues[record.queue_id]
            for id in record.ids:
                assert id in account.entered, f"message {id} left {account.name}, where it never was"
                assert id not in account.left, f"message {id} left {account.name} twice"
                account.left[id] = RemovalReason(record.reason)
        elif type == RecordType.QUEUE and isinstance(record, decode.Definition):
            queues[record.id].name = str(record.definition["name"])
        elif type == RecordType.QUEUE_DELETED and isinstance(record, decode.Definition):
            queues[record.id].deleted = True
    return dict(queues)


def journal_records(broker: SimBroker) -> list[decode.Record]:
    """Every record that a broker ever wrote."""
    return [record for _, record in typed_records(broker.files, journal_directory(broker.config))]


def segment_paths(files: SimFiles, directory: str) -> dict[int, str]:
    """Where each segment lies, kept ones too, by number."""
    paths = [f"{directory}/{name}" for name in files.list_dir(directory) if segment_number(name)]
    return {segment_number(path.rpartition("/")[2]): path for path in [*kept(files, directory), *paths]}


def typed_records(files: SimFiles, directory: str, below: int | None = None) -> Iterator[tuple[int, decode.Record]]:
    """Every record of every segment, retained ones too, in the order of their positions."""
    for number, path in sorted(segment_paths(files, directory).items()):
        data = files.read(path)
        for _, position, _, type, buffer, offset in open_segment(path, number, data).records():
            if below is None or position < below:
                yield type, decode.decode(buffer, offset)


def check_accounts(broker: SimBroker) -> dict[str, Account]:
    """Promises P2 and P3, from the disk: for each durable queue, what came in is what left by name and what is there,
    and what died has a record that says why, and its successor.

    Call it when nothing is under way.  Returns the accounts of the queues that exist, by name.
    """
    state = broker.engine._state
    records = list(typed_records(broker.files, journal_directory(broker.config)))
    found = recounted(records)
    for queue in state.queues.values():
        if not queue.durable:
            continue
        account = found[queue.id]
        stored = {message.id for message, _ in broker.engine.messages.browse(queue) if message.segment}
        assert stored == account.present, f"{queue.name}: memory and journal disagree"
        assert queue.stored == len(stored), f"{queue.name}: {queue.stored} are counted, the journal has {len(stored)}"
        assert not account.deleted
    # What an open transaction held of a deleted queue went with the queue: nobody is left to say so by name.
    for id, account in found.items():
        assert account.deleted or id in state.registry.queues_by_id, f"{account.name} is gone"
    assert not death_faults([record for _, record in records])
    return {account.name: account for account in found.values() if not account.deleted}


def reasons(account: Account) -> Counter[RemovalReason]:
    """How many messages left by which way."""
    return Counter(account.left.values())


def check_counters(broker: SimBroker) -> None:
    """Each queue in memory: what was added is what left, by whatever way, and what is there."""
    for queue in broker.engine.queues.values():
        added, gone = queue.added, sum(queue.left)
        assert added == gone + queue.message_count, f"{queue.name}: {added} came, {gone} left"
        held = sum([len(each) for each in (*[consumer.unacked for consumer in queue.consumers], *queue.leaving)])
        assert queue.delivering == (0 if queue.non_destructive else held)
    totals, queues = broker.engine._state.totals, broker.engine.queues.values()
    assert totals.added >= sum(queue.counters.added for queue in queues)
    assert all(
        total >= sum(lefts) for total, *lefts in zip(totals.left, *[queue.left for queue in queues], strict=True)
    )
    usage = broker.engine.usage
    assert usage.bytes >= 0
    assert usage.messages >= 0
