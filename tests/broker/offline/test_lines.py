"""Lines of an import that are not as they must be: the error says which and why, and nothing of the line is done."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.offline.importing import BadLine, import_lines
from broker.offline.lines import BodyLine, read_as
from broker.offline.parts import stopped
from tests.broker.cli.harness import invoke
from tests.broker.offline.harness import PART, SESSION, config, report
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import EXPORT, JOURNAL, targets

FIRST, ADDRESS, QUEUE, DIVERT, SESSION_LINE, SESSION_PART, MESSAGE, *_ = [json.loads(line) for line in EXPORT]
DEEP = b'{"kind":' + b"[" * 100_000


def changed(line: dict[str, Any], **members: Any) -> bytes:
    """A line with other members; without those that are `...`."""
    found = line | {name.replace("_", "-"): value for name, value in members.items()}
    return json.dumps({name: value for name, value in found.items() if value is not ...}).encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


WRONG: list[tuple[bytes, str]] = [
    (b"", "it is not JSON: column 1"),
    (b"{", "it is not JSON: column 2"),
    (b"\xff", "it is not UTF-8"),
    (b"[]", "it is not an object"),
    (b"7", "it is not an object"),
    (DEEP, "nested too deep"),
    (b'{"kind": ' + b"9" * 5_000 + b"}", "too many digits"),
    (b'{"kind": []}', "kind [] is unknown"),
    (b'{"kind":"other"}', 'kind "other" is unknown'),
    (b"{}", "kind null is unknown"),
    (changed(ADDRESS, name=...), "name is missing"),
    (changed(ADDRESS, name=5), "name is a text, not 5"),
    (changed(ADDRESS, name=""), "name is not a name: the address name is empty"),
    (b'{"kind":"address","name":"\\ud800","routing-types":[],"auto-created":true}', "Unicode"),
    (changed(ADDRESS, name="x" * 2_000), "name is not a name"),
    (changed(ADDRESS, name="b", routing_types="ANYCAST"), "routing-types is a list"),
    (changed(ADDRESS, name="b", routing_types=["UNICAST"]), "routing-types.0 is 'ANYCAST' or 'MULTICAST'"),
    (changed(ADDRESS, name="b", auto_created="yes"), "auto-created is true or false"),
    (changed(QUEUE, name="q2", address="nowhere"), "which no line before defines"),
    (changed(QUEUE, name="q2", filter="a ="), "filter"),
    (changed(QUEUE, name="q2", messages_max=2**70), "messages-max is less than"),
    (changed(QUEUE, name="q2", attributes=[]), "attributes is an object"),
    (changed(QUEUE, name="q2", attributes={"ring-size": "many"}), "ring-size"),
    (changed(QUEUE, name="q2", attributes={"ring-size": 0}), "ring-size"),
    (changed(QUEUE, name="q2", attributes={"exclusive": "true"}), "exclusive"),
    (changed(DIVERT, name="e", forwarding_addresses=[]), "forwarding-addresses is empty"),
    (changed(DIVERT, name="e", forwarding_addresses=[7]), "forwarding-addresses.0 is a text"),
    (changed(DIVERT, name="e", routing_type="NONE"), "routing-type is 'STRIP'"),
    (changed(DIVERT, name="e", add_headers={"a": 1}), "add-headers.a is a text"),
    (changed(SESSION_LINE, name="d", session={}), "session.user is missing"),
    (changed(SESSION_LINE, name="d", session=SESSION | {"expiry": -1}), "session.expiry is at least 0"),
    (changed(SESSION_LINE, name="d", session=SESSION | {"will": {"topic": "a"}}), "session.will.payload is missing"),
    (changed(SESSION_PART, name="x", session="nobody"), "defines the session nobody"),
    (changed(SESSION_PART, name="x", part=PART | {"qos": 3}), "part.qos is at most 2"),
    (changed(SESSION_PART, name="x", part=PART | {"filter": "a/#/b"}), "part.filter is not a topic filter"),
    (changed(MESSAGE, queues=[]), "queues is empty"),
    (changed(MESSAGE, queues=["orders"]), "queues.0 is an object"),
    (changed(MESSAGE, queues=[{"name": "nowhere"}]), "is on queue nowhere"),
    (changed(MESSAGE, queues=MESSAGE["queues"] * 2), "on one queue twice"),
    (changed(MESSAGE, queues=[{"name": "orders", "delivery-count": -1}]), "queues.0.delivery-count is at least 0"),
    (changed(MESSAGE, queues=[{"name": "orders", "due": 2**63}]), "queues.0.due is less than"),
    (changed(MESSAGE, protocol="openwire"), "protocol is 'stomp', 'amqp' or 'mqtt'"),
    (changed(MESSAGE, priority=10), "priority is at most 9"),
    (changed(MESSAGE, priority=4.5), "priority is a whole number"),
    (changed(MESSAGE, priority=True), "priority is a whole number"),
    (changed(MESSAGE, timestamp=2**63), "timestamp is less than"),
    (changed(MESSAGE, timestamp=float("nan")), "timestamp is a whole number"),
    (changed(MESSAGE, user="x" * 70_000), "user has more than 65535 bytes"),
    (changed(MESSAGE, annotations={"a": [1]}), "annotations.a"),
    (changed(MESSAGE, head="*"), "head is not Base64"),
    (changed(MESSAGE, head=7), "head must be Base64 in a text"),
    (changed(MESSAGE, head=b64(b"no colon\n")), "head is not the head of a stomp message"),
    (changed(MESSAGE, head=b64(b"a:\xff\n")), "head is not the head of a stomp message"),
    (changed(MESSAGE, head=b64(b"a:b")), "head is not the head of a stomp message"),
    (changed(MESSAGE, head=b64(b"a:\\x\n")), "head is not the head of a stomp message"),
    (changed(MESSAGE, head=b64(b"content-length:7\n")), "head is not the head of a stomp message"),
    (changed(MESSAGE, head=b64(b"content-length:x\n")), "head is not the head of a stomp message"),
    (changed(MESSAGE, annotations={"_AMQ_DL_HOPS": "x"}), "than a number for _AMQ_DL_HOPS"),
    (changed(MESSAGE, annotations={"a": {"long": 2**64}}), "a number of more than 64 bits"),
    (changed(MESSAGE, protocol="mqtt", head=""), "head is not the head of a mqtt message"),
    (changed(MESSAGE, protocol="mqtt", head=b64(b"\x03")), "head is not the head of a mqtt message"),
    (changed(MESSAGE, protocol="mqtt", head=b64(b"\x11\xff")), "head is not the head of a mqtt message"),
    (changed(MESSAGE, protocol="amqp", head=b64(b"\x00\x53\x74\xff")), "head is not the head of a amqp message"),
    (changed(MESSAGE, body="!"), "body is not Base64"),
    (changed(MESSAGE, body_bytes=0), "body-bytes is at least 1"),
    (changed(MESSAGE, body_bytes=5, body=...), "the last message's body is incomplete"),
    (b'{"kind":"body","data":"eA=="}', "after a message with body-bytes"),
]


@pytest.mark.parametrize(("line", "why"), WRONG, ids=[why for _, why in WRONG])
def test_a_wrong_line_is_told_and_changes_nothing(tmp_path: Path, line: bytes, why: str) -> None:
    with stopped(config(tmp_path), report) as broker:
        with pytest.raises(BadLine) as refused:
            import_lines(broker, [*EXPORT[:7], line])
        assert str(refused.value).startswith("line 8: ")
        assert why in str(refused.value)
        state = broker.parts.engine._state
        assert set(state.addresses) == {"DLQ", "ExpiryQueue", "orders"}
        assert set(state.queues) == {"DLQ", "ExpiryQueue", "orders"}
        assert set(state.diverts.by_name) == {"d"}
        assert state.queues["orders"].message_count == 1
        assert [len(session.parts) for session in broker.parts.engine.sessions.all()] == [1]
    with stopped(config(tmp_path), report) as broker:
        assert broker.parts.engine.queues["orders"].message_count == 1


def test_the_first_line(tmp_path: Path) -> None:
    for line, what in (
        (b"no json", "it is not JSON"),
        (b"[]", "it is not an object"),
        (b'{"kind":"journal","version":2}', "this is not an export of version 1"),
        (b'{"kind":"journal"}', "this is not an export"),
        (EXPORT[1], "this is not an export"),
    ):
        with stopped(config(tmp_path), report) as broker, pytest.raises(BadLine, match=f"^line 1: {what}"):
            import_lines(broker, [line])


@pytest.mark.parametrize(("line", "why"), WRONG[:: len(WRONG) // 6])
def test_the_command_says_it_without_a_traceback(tmp_path: Path, line: bytes, why: str) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b"\n".join([*EXPORT[:7], line, b""]))
    found = invoke("journal", "import", str(file), "--data", str(tmp_path / "data"))
    assert found.exit_code == 1
    assert "line 8: " in found.stderr
    assert why in found.stderr
    assert "the lines before are imported" in found.stderr
    assert "--first 8" in found.stderr


def test_a_broker_starts_with_whatever_was_taken() -> None:
    """Lines that were changed at random: what is not refused is what a broker can live with."""
    target = targets()["import"]
    print(f"seed {(seed := Random().randrange(1 << 32))}")
    mutator = Mutator(Random(seed), target.seeds, target.tokens, target.bytes_max)
    for _ in range(300):
        JOURNAL.take(mutator.next())
    again = JOURNAL.broker.restart(crash=False)
    assert again.failure is None
    JOURNAL.broker = again


#: What no member, or only some, can be.
ODD = [
    ...,
    None,
    True,
    -1,
    0,
    2**31,
    2**64,
    1.5,
    "",
    "x",
    "\0",
    "\ud800",
    [],
    ["x"],
    {},
    {"a": 1},
    "a" * 70_000,
]


def test_members_of_any_kind() -> None:
    """Each member of each line with odd values, deep inside too: refused in a sentence, or lived with."""
    for line in EXPORT[1:]:
        for path in paths(json.loads(line)):
            for value in ODD:
                JOURNAL.take(replaced(json.loads(line), path, value))
    again = JOURNAL.broker.restart(crash=False)
    assert again.failure is None
    JOURNAL.broker = again


def paths(value: Any) -> list[list[Any]]:
    """The ways to all members."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, each in inner for way in ([key], *([key, *below] for below in paths(each)))]


def replaced(line: Any, path: list[Any], value: Any) -> bytes:
    """The line with another value there."""
    inside = line
    for key in path[:-1]:
        inside = inside[key]
    if value is ...:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return json.dumps(line).encode()


def test_a_long_body_is_decoded_in_parts() -> None:
    whole = bytes(range(256)) * (1 << 14)
    text = base64.b64encode(whole).decode()
    assert read_as(BodyLine, {"kind": "body", "data": text}).data == whole
    for wrong in (text[:-1], text[: 1 << 20] + "!" + text[1 << 20 :], "YQ==" + text):
        with pytest.raises(ValueError, match="is not Base64"):
            read_as(BodyLine, {"kind": "body", "data": wrong})
