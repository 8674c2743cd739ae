"""Compact, export, import: on real directories, with the broker that comes after."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.config import AddressSetting
from broker.engine.delivery.redelivery import INTERRUPTED, rejected
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.model.task import TaskKind, TaskRequest, TaskState
from broker.engine.publish.send import Send
from broker.engine.queues.paging import upkeep
from broker.engine.routing import destinations
from broker.offline.compacting import compact
from broker.offline.exporting import export_directory
from broker.offline.importing import BadLine, import_lines
from broker.offline.parts import Stopped, Unusable, stopped
from broker.reasons.exit_status import ExitStatus
from broker.sessions.stomp.format import STOMP_FORMAT
from store.files import OsFiles
from store.inspect import verify
from tests.broker.cli.harness import invoke
from tests.broker.engine.engine_harness import Taker
from tests.broker.offline.harness import PART, SESSION, config, report
from tests.support.bodies import body_of

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def within(directory: Path, do: Callable[[Stopped], Any]) -> Any:
    with stopped(config(directory), report) as broker:
        broker.parts.tick.enter()
        return do(broker)


def send(broker: Stopped, name: str, bodies: list[bytes], kind: RoutingType = ANYCAST, **header: Any) -> None:
    engine = broker.parts.engine
    broker.parts.tick.enter()
    address, queue = destinations.destination(engine._state, name, kind)
    format = engine.formats[STOMP_FORMAT]
    made = MessageHeader(address.name, format, durable=True, timestamp=engine.now, routing_type=kind, **header)
    messages = [Message(made, b"color:red\n", body) for body in bodies]
    engine.producers.publish([Send.at(address, queue, kind, messages)]).check()
    broker.run_ticks()


def take(broker: Stopped, destination: str, kind: RoutingType = ANYCAST, **request: Any) -> Taker:
    taker = Taker()
    broker.parts.tick.enter()
    taker.consumer = broker.parts.engine.consumers.subscribe(taker, SubscribeRequest(destination, kind, **request))
    broker.run_ticks()
    return taker


def filled(broker: Stopped) -> None:
    """Messages on queues and a subscription, one that failed, one that is due later, one that expires, some gone."""
    engine = broker.parts.engine
    reader = take(broker, "news", MULTICAST, name="me.news", durable=True)
    broker.parts.tick.enter()
    engine.consumers.close(reader.consumer, rejected(""))
    send(broker, "news", [b"for everybody"], MULTICAST, user="editor", priority=7)
    send(broker, "orders", [b"1", b"2", b"3"])
    send(broker, "orders", [b"later"], scheduled=engine.now + 3_600_000)
    send(broker, "orders", [b"brief"], expiration=engine.now + 7_200_000)
    taker = take(broker, "orders")
    broker.parts.tick.enter()
    engine.consumers.give_back(taker.consumer, taker.taken[0].id, rejected("no"))
    engine.consumers.close(taker.consumer, rejected("no"))
    send(broker, "shipped", [b"left"])
    taker = take(broker, "shipped")
    broker.parts.tick.enter()
    engine.consumers.close(taker.consumer, INTERRUPTED)
    for _ in range(30):
        send(broker, "passing", [b"x" * 8000])
        broker.parts.tick.enter()
        engine.messages.purge(engine.queue("passing"))
        broker.run_ticks()


def told(message: Message) -> tuple[Any, ...]:
    header = message.header
    return message.body, message.head, header.priority, header.user, header.timestamp, header.expiration


def everything(broker: Stopped) -> dict[str, list[tuple[Any, ...]]]:
    """What lies on each queue, with all that a restart must not forget."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name, queue in broker.parts.engine.queues.items():
        found[name] = sorted(
            (*told(m), queue.delivery_count(m.id), m.id in queue.states, queue.scheduled.get(m.id, (0, m))[0], place)
            for m, place in upkeep.places(broker.parts.engine._state, queue)
        )
    return found


def test_compact(tmp_path: Path) -> None:
    within(tmp_path, filled)
    before = within(tmp_path, everything)
    steps: list[tuple[int, int]] = []
    found = within(tmp_path, lambda broker: compact(broker, lambda done, of: steps.append((done, of))))
    assert (found.after, found.messages) == (1, 7)
    assert found.before > 1
    assert steps[-1][0] == steps[-1][1] == found.before - 1
    assert within(tmp_path, everything) == before
    assert verify(OsFiles(), str(tmp_path / "journal")).ok


def test_a_task_waits_for_the_broker_that_serves(tmp_path: Path) -> None:
    """It is still there when the journal was compacted, and has not gone on meanwhile."""

    def begun(broker: Stopped) -> None:
        send(broker, "orders", [b"1", b"2", b"3"])
        broker.run_ticks()
        broker.parts.tick.enter()
        broker.parts.engine.tasks.start(TaskRequest(kind=TaskKind.PURGE, queue="orders", rate=1_000_000))

    def tasks(broker: Stopped) -> list[tuple[TaskState, int]]:
        return [(task.state, task.progress.moved) for task in broker.parts.engine.tasks.all()]

    def paused(broker: Stopped) -> None:
        (task,) = broker.parts.engine.tasks.all()
        task.state, task.progress.moved = TaskState.RUNNING, 1
        broker.parts.engine.tasks._save(task)

    within(tmp_path, begun)
    within(tmp_path, paused)
    within(tmp_path, lambda broker: compact(broker, lambda done, of: None))
    assert within(tmp_path, tasks) == [(TaskState.RUNNING, 1)]


def test_there_and_back(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    within(old, filled)
    before = within(old, everything)
    lines = [json.dumps(line).encode() for line in export_directory(str(old / "journal"))]
    assert [json.loads(line)["kind"] for line in lines].count("message") == 7
    made = within(new, lambda broker: import_lines(broker, lines))
    assert (made.messages, made.present) == (
        7,
        sum(json.loads(line).get("name") in ("DLQ", "ExpiryQueue") for line in lines),
    )
    assert within(new, everything) == before
    again = within(new, lambda broker: import_lines(broker, lines))
    assert (again.addresses, again.queues, again.messages) == (0, 0, 7)
    assert len(within(new, everything)["orders"]) == 2 * len(before["orders"])


def lines_of(name: str, bodies: list[bytes], *, filter: str = "", **attributes: object) -> list[bytes]:
    """An export of one queue."""
    made: dict[str, object] = {"auto-created": False}
    queue: dict[str, object] = {"kind": "queue", "name": name, "address": name, "routing-type": "ANYCAST"}
    queue |= {"no-local": "", "filter": filter, "attributes": attributes}
    message: dict[str, object] = {"kind": "message", "queues": [{"name": name}], "address": name, "protocol": "stomp"}
    lines: list[dict[str, object]] = [
        {"kind": "journal", "version": 1},
        {"kind": "address", "name": name, "routing-types": ["ANYCAST"], **made},
        queue | made,
    ]
    more = {"timestamp": 1, "priority": 4, "head": ""}
    lines += [message | more | {"body": b64encode(body).decode()} for body in bodies]
    return [json.dumps(line).encode() for line in lines]


def test_a_disabled_queue_has_its_messages(tmp_path: Path) -> None:
    made = within(tmp_path, lambda broker: import_lines(broker, lines_of("q", [b"1", b"2"], enabled=False)))
    assert made.messages == 2
    exported = list(export_directory(str(tmp_path / "journal")))
    assert sum(line["kind"] == "message" for line in exported) == 2
    (queue,) = [line for line in exported if line["kind"] == "queue" and line["name"] == "q"]
    assert isinstance(queue["attributes"], dict)
    assert queue["attributes"]["enabled"] is False


def test_a_message_that_would_be_dropped_ends_the_import(tmp_path: Path) -> None:
    filtered = lines_of("q", [b"1"], filter="k = 1")
    with stopped(config(tmp_path / "one"), report) as broker, pytest.raises(BadLine, match="line 4: the filter of q"):
        import_lines(broker, filtered)
    full = AddressSetting.model_validate({"match": "q", "max-size-messages": 1, "address-full-policy": "DROP"})
    dropping = config(tmp_path / "two")
    dropping = dropping.model_copy(update={"address_settings": (*dropping.address_settings, full)})
    with stopped(dropping, report) as broker:
        with pytest.raises(BadLine, match="line 5: address q is full"):
            import_lines(broker, lines_of("q", [b"1", b"2"]))
        assert broker.parts.engine.queue("q").message_count == 1


def test_sessions_are_exported_with_their_parts(tmp_path: Path) -> None:
    def fill(broker: Stopped) -> None:
        broker.parts.tick.enter()
        sessions = broker.parts.engine.sessions
        session = sessions.open("c", SESSION)
        for key in ("a", "b", "c"):
            sessions.put(session, key, {**PART, "filter": key})
        sessions.remove(session, "b")
        broker.run_ticks()

    def read(broker: Stopped) -> dict[str, object]:
        (session,) = broker.parts.engine.sessions.all()
        return {"definition": session.definition, **{key: part for key, (_, part) in session.parts.items()}}

    expected = {"definition": SESSION, "a": {**PART, "filter": "a"}, "c": {**PART, "filter": "c"}}
    within(tmp_path / "one", fill)
    lines = [json.dumps(line).encode() for line in export_directory(str(tmp_path / "one" / "journal"))]
    within(tmp_path / "two", lambda broker: import_lines(broker, lines))
    assert within(tmp_path / "two", read) == expected
    within(tmp_path / "two", lambda broker: import_lines(broker, lines))
    assert within(tmp_path / "two", read) == expected
    alone = [lines[0], *[line for line in lines if b'"session-part"' in line]]
    with stopped(config(tmp_path / "three"), report) as broker, pytest.raises(BadLine, match="defines the session c"):
        import_lines(broker, alone)


def test_beside_a_running_broker(tmp_path: Path) -> None:
    """An export reads what is on disk; all else waits until the broker stops."""
    with stopped(config(tmp_path), report) as broker:
        filled(broker)
        assert sum(line["kind"] == "message" for line in export_directory(str(tmp_path / "journal"))) == 7
        with pytest.raises(Unusable, match="stop the broker first"), stopped(config(tmp_path), report):
            pass


def test_the_commands(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "lines"
    within(old, filled)
    exported = invoke("journal", "export", str(old), "-o", str(file))
    assert (exported.exit_code, exported.stderr) == (0, "7 messages\n"), exported.output
    imported = invoke("journal", "import", str(file), "--data", str(new))
    assert imported.exit_code == 0, imported.output
    assert imported.stdout.startswith("7 messages, ")
    file.write_bytes(file.read_bytes() + b"half")
    broken = invoke("journal", "import", str(file), "--data", str(new))
    assert broken.exit_code == 1
    assert "--first" in broken.stderr
    compacted = invoke("journal", "compact", "--data", str(old))
    assert compacted.exit_code == 0, compacted.output
    assert "7 messages were copied" in compacted.stdout
    assert invoke("journal", "export", str(tmp_path / "none")).exit_code == ExitStatus.NO_JOURNAL


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_export_is_utf_8_whatever_the_terminal_is(tmp_path: Path, encoding: str) -> None:
    within(tmp_path / "old", lambda broker: send(broker, "grün☃", [b"1"]))
    command = [sys.executable, "-m", "broker", "journal", "export", str(tmp_path / "old")]
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": encoding}
    environment = {**os.environ, **locale}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"1 message\n")
    file = tmp_path / "lines"
    subprocess.run([*command, "-o", str(file)], env=environment, check=True)
    assert file.read_bytes() == done.stdout
    assert "grün☃" in file.read_text("utf-8")


def send_large(broker: Stopped, name: str, body: bytes) -> None:
    """A message whose body is in a file."""
    engine = broker.parts.engine
    broker.parts.tick.enter()
    upload = engine.uploads.begin(lambda: None, durable=True)
    engine.uploads.write(upload, body, last=True)
    broker.run_ticks()
    broker.parts.tick.enter()
    address, queue = destinations.destination(engine._state, name, ANYCAST)
    made = MessageHeader(address.name, engine.formats[STOMP_FORMAT], durable=True, timestamp=engine.now)
    message = Message.of(made, b"", engine.uploads.finished(upload))
    engine.producers.publish([Send.at(address, queue, ANYCAST, [message])]).check()
    broker.run_ticks()


def test_large_bodies_are_exported_and_imported_in_pieces(tmp_path: Path) -> None:
    large = bytes(range(256)) * 2000

    def fill(broker: Stopped) -> None:
        send(broker, "orders", [b"before"])
        send_large(broker, "orders", large)
        send(broker, "orders", [b"behind"])

    within(tmp_path / "one", fill)
    lines = [json.dumps(line).encode() for line in export_directory(str(tmp_path / "one" / "journal"))]
    assert max(map(len, lines)) < 300_000
    assert sum(b'"kind": "body"' in line for line in lines) == 3

    def read(broker: Stopped) -> list[bytes]:
        import_lines(broker, lines)
        return [body_of(message) for message in take(broker, "orders").taken]

    assert within(tmp_path / "two", read) == [b"before", large, b"behind"]
    assert verify(OsFiles(), str(tmp_path / "two" / "journal")).bodies.files == 1
    for number, wrong in enumerate((lines[:-2], [*lines[:-3], lines[-1]], [*lines, lines[-2]])):
        with pytest.raises(BadLine, match="body"), stopped(config(tmp_path / f"wrong{number}"), report) as broker:
            import_lines(broker, wrong)


@pytest.mark.parametrize("left", [True, False])
def test_a_body_that_goes_during_an_export_is_missed_only_if_its_message_stays(tmp_path: Path, left: bool) -> None:
    within(tmp_path, lambda broker: send(broker, "orders", [b"1"]))
    within(tmp_path, lambda broker: send_large(broker, "orders", bytes(500_000)))
    lines = export_directory(str(tmp_path / "journal"))
    found = [next(lines)]  # it has read the journal

    def consume(broker: Stopped) -> None:
        taker = take(broker, "orders")
        broker.parts.tick.enter()
        broker.parts.engine.consumers.acknowledge_all(taker.consumer)
        broker.run_ticks()

    if left:
        within(tmp_path, consume)
    for file in (tmp_path / "journal" / "bodies").iterdir():  # if the broker has ended before it did so
        file.unlink()
    with contextlib.nullcontext() if left else pytest.raises(Unusable, match="No such file"):
        found += lines
    assert [line["body"] for line in found if line["kind"] == "message"] == ["MQ=="]


def test_verify_and_stat_tell_of_large_bodies(tmp_path: Path) -> None:
    within(tmp_path, lambda broker: send_large(broker, "orders", bytes(500_000)))
    journal = str(tmp_path / "journal")
    assert "1 large bodies in files" in invoke("journal", "verify", journal).output
    assert json.loads(invoke("journal", "stat", journal, "--output", "json").output)["body_bytes"] == 500_000
    printed = invoke("journal", "print", journal, "--type", "MESSAGE").output
    assert "body_bytes=500000" in printed
    (path,) = (tmp_path / "journal" / "bodies").iterdir()
    with path.open("r+b") as file:
        file.write(b"x")
    assert "wrong checksum" in invoke("journal", "verify", journal).output
