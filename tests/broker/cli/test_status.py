"""`bartleby status` and `bartleby queue` against a running broker."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from click.testing import Result

from broker.cli.remote import THINGS_PER_CALL
from broker.engine.model.message import RoutingType
from broker.engine.model.settings_match import SettingsTable
from broker.management.limits import Limits as CallLimits
from broker.management.ports import Replicated
from broker.management.runtime import RUNTIME_FILE, TOKEN_FILE, Listening, write_private, write_runtime_file
from broker.management.standby import StandbyApi
from tests.broker.cli.harness import Operator, introduced, invoke
from tests.broker.management.harness import NOW, TOKEN, TestBroker, listening, managing
from tests.support.peers import free_port


def fields(result: Result) -> dict[str, str]:
    """What the lines of `bartleby status` show."""
    lines = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    return {name.strip(): value.strip() for name, value in lines.items()}


async def test_status_shows_the_broker(broker: TestBroker, operator: Operator) -> None:
    await broker.sent("orders", [b"1", b"2"])
    result = await operator.run("status")
    assert result.exit_code == 0
    shown = fields(result)
    assert shown["broker"] == "test 1.2.3"
    assert shown["ready"] == "yes"
    assert shown["running since"] == "2023-11-14 22:13:15 (5s)"
    assert shown["acceptor stomp"] == "127.0.0.1:61613, 3 connections"
    assert shown["messages"] == "2"
    assert (await operator.json("status"))["messages"] == 2


async def test_status_shows_what_open_transactions_hold(broker: TestBroker, operator: Operator) -> None:
    assert "transactions" not in fields(await operator.run("status"))
    broker.engine.transactions.begin(object())
    assert fields(await operator.run("status"))["transactions"] == "1 open, 0 B of the memory"
    assert (await operator.json("status"))["transactions_bytes"] == 0


async def test_no_authorities_are_read_for_plain_http(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take longer than all else that a command does."""
    monkeypatch.setattr(ssl, "create_default_context", MagicMock(side_effect=AssertionError))
    assert (await operator.run("status")).exit_code == 0


async def test_status_of_a_broker_that_is_not_ready_is_1(broker: TestBroker, operator: Operator) -> None:
    broker.reasons = ["the disk is full"]
    result = await operator.run("status")
    assert result.exit_code == 1
    assert "not ready: the disk is full" in result.stderr
    assert "broker" in result.stdout


async def test_a_broker_that_is_not_ready_is_alive(broker: TestBroker, operator: Operator) -> None:
    broker.reasons = ["the disk is full"]
    result = await operator.run("status", "--alive")
    assert (result.exit_code, result.stdout) == (0, "ok\n")


async def test_the_owner_of_a_pair_shows_which_server_confirms(broker: TestBroker, operator: Operator) -> None:
    assert "confirmed by" not in (await operator.run("status")).stdout
    broker.replication = Replicated("owner", 3, trouble="a commit was cancelled", confirmed_by="two")
    shown = fields(await operator.run("status"))
    assert shown["role"] == "owner, epoch 3"
    assert shown["confirmed by"] == "two"
    assert shown["trouble"] == "a commit was cancelled"
    assert (await operator.json("status"))["replication"]["confirmed_by"] == "two"


@pytest.mark.parametrize(
    ("state", "role", "missing"),
    [
        (Replicated("standby", 3), "standby, epoch 3", "no entry"),
        (Replicated("standby", 3, 1, 2.5), "standby, epoch 3", "1 entry, for 2.5 s"),
        (
            Replicated("standby", 0, starting="comparing its copy"),
            "standby (starting: comparing its copy), epoch 0",
            "not known yet",
        ),
    ],
)
async def test_status_of_a_standby(
    broker: TestBroker, tmp_path: Path, state: Replicated, role: str, missing: str
) -> None:
    standby = StandbyApi(lambda: state, TOKEN, name="two", version="1.2.3", started=NOW, now=lambda: NOW)
    async with listening(broker, standby=standby.application) as (_, client):
        result = await introduced(tmp_path, client).run("status")
    assert result.exit_code == 1
    assert "standby: this broker does not own the journal" in result.stderr
    shown = fields(result)
    assert (shown["broker"], shown["role"], shown["missing of the journal"]) == ("two 1.2.3", role, missing)
    assert "confirmed by" not in shown


async def test_status_says_where_dead_messages_are_removed(broker: TestBroker, operator: Operator) -> None:
    assert "no dead-letter address" not in (await operator.run("status")).stdout
    broker.set_settings(
        [("#", {"dead_letter_address": "DLQ"}), *[(f"t{n}", {"dead_letter_address": ""}) for n in range(21)]]
    )
    [line] = [each for each in (await operator.run("status")).stdout.splitlines() if each.startswith("no dead")]
    assert "for t0, t1, " in line
    assert line.endswith("t19 and 1 more: messages that die there are removed")
    assert len((await operator.json("status"))["without_dead_letter_address"]) == 21


async def test_queue_list_takes_as_many_calls_as_it_needs(broker: TestBroker, operator: Operator) -> None:
    names = [f"q{n:04}" for n in range(THINGS_PER_CALL + 1)]
    for name in names:
        broker.queue(name)
    assert [queue["name"] for queue in await operator.json("queue", "list")] == names


async def test_queue_list_shows_all_queues(broker: TestBroker, operator: Operator) -> None:
    for name in ("e", "a", "c", "b", "d"):
        broker.send(name, [b"x"])
    await broker.settled()
    assert [queue["name"] for queue in await operator.json("queue", "list")] == ["a", "b", "c", "d", "e"]
    lines = (await operator.run("queue", "list")).stdout.splitlines()
    columns = "queue address type messages ready paged scheduled delivering consumers state"
    assert lines[0].split() == columns.split()
    assert lines[3].split() == ["c", "c", "anycast", "1", "1", "0", "0", "0", "0"]
    assert len(lines) == 6


async def test_queue_list_says_what_gives_and_takes_no_messages(broker: TestBroker, operator: Operator) -> None:
    for name in ("a", "b", "c"):
        broker.send(name, [b"x"])
    broker.engine.operators.change(broker.engine.queue("a"), {"enabled": False})
    broker.engine.operators.pause(broker.engine.queue("a"), paused=True)
    table = SettingsTable([("b", {"max_size_messages": 1})], broker.engine._state.registry.settings_table._defaults)
    broker.engine.configuration.change_settings(table)
    await broker.settled()
    rows = [line.split()[9:] for line in (await operator.run("queue", "list")).stdout.splitlines()]
    assert rows == [["state"], ["paused,", "disabled"], ["full"], []]


async def test_a_table_that_goes_to_a_program_is_not_cut(broker: TestBroker, operator: Operator) -> None:
    name = "long." * 60
    broker.queue(name)
    assert (await operator.run("queue", "list")).stdout.splitlines()[1].split()[:2] == [name, name]


@pytest.mark.parametrize("name", ["a/b::c", "#x?y=1&z", "ä %2F", "[red]"])
async def test_queue_show_takes_any_name(broker: TestBroker, operator: Operator, name: str) -> None:
    broker.tick.enter()
    state = broker.engine._state
    address = state.registry.create_address(name.partition("::")[0], set())
    state.registry.create_queue(address, name.rpartition("::")[2], RoutingType.ANYCAST, durable=True)
    assert (await operator.json("queue", "show", name))["name"] == name.rpartition("::")[2]


async def test_queue_show_lists_consumers(broker: TestBroker, operator: Operator) -> None:
    broker.queue("orders")
    assert "client_id" not in (await operator.run("queue", "show", "orders")).stdout
    broker.read("orders", client_id="c-7", remote="10.0.0.1:99")
    text = (await operator.run("queue", "show", "orders")).stdout
    assert "setting max-delivery-attempts" in text
    assert "c-7" in text
    assert "10.0.0.1:99" in text


async def test_queue_browse_shows_messages_and_pages(broker: TestBroker, operator: Operator) -> None:
    broker.send("orders", [b"%d" % n for n in range(7)], headers=[(b"color", b"red")])
    await broker.sent("orders", [b"\x00"])
    lines = (await operator.run("queue", "browse", "orders", "--page", "2", "--size", "5")).stdout.splitlines()
    assert lines[0].split() == ["id", "state", "sent", "expires", "failed", "bytes", "reason", "from", "body"]
    assert [line.split()[-1] for line in lines[1:3]] == ["5", "6"]
    assert lines[3].endswith("(1 byte)")
    found = await operator.json("queue", "browse", "orders", "--filter", "color = 'red'", "--size", "100")
    assert len(found["messages"]) == 7


async def test_a_message_cannot_steer_the_terminal(broker: TestBroker, operator: Operator) -> None:
    await broker.sent("orders", ["[bold]\u202e two\nlines".encode()])
    text = (await operator.run("queue", "browse", "orders")).stdout
    assert len(text.splitlines()) == 2
    assert r"[bold]\u202e two\nlines" in text


@pytest.mark.parametrize("call_limits", [CallLimits(filtered_max=3)])
async def test_a_browse_looks_through_a_long_queue(broker: TestBroker, operator: Operator) -> None:
    for n in range(12):
        broker.send("orders", [b"%d" % n], headers=[(b"third", b"%d" % (n % 3))])
    await broker.settled()
    browse = ("queue", "browse", "orders", "--filter", "third = '2'", "--size", "2")
    for page, bodies in (("1", ["2", "5"]), ("2", ["8", "11"]), ("3", [])):
        found = await operator.json(*browse, "--page", page)
        assert [message["body"]["data"] for message in found["messages"]] == bodies


async def test_queue_purge_asks(broker: TestBroker, operator: Operator) -> None:
    await broker.sent("orders", [b"1", b"2"])
    refused = await operator.run("queue", "purge", "orders", input="n\n")
    assert refused.exit_code == 1
    assert "Remove 2 messages for good?" in refused.stderr
    nobody = await operator.run("queue", "purge", "orders", input="")
    assert nobody.exit_code == 2
    assert "--yes" in nobody.stderr
    assert broker.queue("orders").message_count == 2
    agreed = await operator.run("queue", "purge", "orders", input="y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "2 messages removed\n")
    assert broker.queue("orders").message_count == 0


async def test_queue_purge_that_leaves_messages_with_consumers_is_5(broker: TestBroker, operator: Operator) -> None:
    broker.send("orders", [b"1", b"2"])
    broker.read("orders", window=0)
    await broker.settled()
    result = await operator.run("queue", "purge", "orders", "--yes", "-o", "json")
    assert result.exit_code == 5
    assert json.loads(result.stdout)["moved"] == 1
    assert "1 message stays: a consumer holds it" in result.stderr


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def test_a_queue_that_does_not_exist_is_1(operator: Operator) -> None:
    result = await operator.run("queue", "show", "none\x1b[31m")
    assert result.exit_code == 1
    assert r"queue none\x1b[31m does not exist" in result.stderr


async def test_a_selector_that_is_wrong_is_2(broker: TestBroker, operator: Operator) -> None:
    broker.queue("orders")
    result = await operator.run("queue", "browse", "orders", "--filter", "a =")
    assert result.exit_code == 2
    assert "selector" in result.stderr


async def test_the_wrong_token_is_4(operator: Operator, tmp_path: Path) -> None:
    write_private(tmp_path / TOKEN_FILE, "of an earlier start")
    result = await operator.run("status")
    assert result.exit_code == 4
    assert "denied" in result.stderr


async def test_a_token_that_cannot_be_read_is_4(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE).unlink()
    result = await operator.run("status")
    assert result.exit_code == 4
    assert TOKEN_FILE in result.stderr
    assert "broker's user" in result.stderr


def test_no_broker_is_3(tmp_path: Path) -> None:
    result = invoke("status", "--data", str(tmp_path))
    assert result.exit_code == 3
    assert "no broker runs on" in result.stderr
    assert "--data" in result.stderr


def test_a_broker_that_was_killed_is_3_and_said_so(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    write_runtime_file(
        tmp_path, pid=child.pid, started=NOW, listening=[Listening("http", "http", "127.0.0.1", free_port())]
    )
    write_private(tmp_path / TOKEN_FILE, TOKEN)
    result = invoke("status", "--data", str(tmp_path))
    assert result.exit_code == 3
    assert f"process {child.pid}" in result.stderr
    assert "killed" in result.stderr


def test_a_broker_without_http_is_3(tmp_path: Path) -> None:
    write_runtime_file(tmp_path, pid=os.getpid(), started=NOW, listening=[Listening("stomp", "stomp", "::1", 61613)])
    result = invoke("status", "--data", str(tmp_path))
    assert result.exit_code == 3
    assert "[acceptors.http]" in result.stderr


def test_a_file_that_makes_no_sense_is_3(tmp_path: Path) -> None:
    (tmp_path / RUNTIME_FILE).write_text("{")
    assert invoke("status", "--data", str(tmp_path)).exit_code == 3


async def test_the_broker_and_the_key_can_be_named(operator: Operator, tmp_path: Path) -> None:
    elsewhere = tmp_path / "key"
    elsewhere.write_text(TOKEN)
    environment = {"BARTLEBY_URL": operator.url + "/", "BARTLEBY_TOKEN_FILE": str(elsewhere)}
    result = await asyncio.to_thread(invoke, "status", "-o", "json", environment=environment)
    assert json.loads(result.stdout)["name"] == "test"
    options = ["--url", operator.url, "--token-file", str(tmp_path / "no-such-file")]
    missing = await asyncio.to_thread(invoke, "status", *options)
    assert missing.exit_code == 4
    assert "no-such-file" in missing.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:8161", "ftp://host", "http://", "file:///etc/passwd"])
def test_a_url_that_is_none_is_2(tmp_path: Path, url: str) -> None:
    result = invoke("status", "--url", url, "--data", str(tmp_path))
    assert result.exit_code == 2
    assert "http://HOST:PORT" in result.stderr


async def test_something_else_that_answers_is_3(tmp_path: Path) -> None:
    """Another service has the port: what it says is no answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(replies.pop())
        writer.close()

    replies = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n",
    ]
    token = tmp_path / "token"
    token.write_text(TOKEN)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        while replies:
            result = await asyncio.to_thread(invoke, "status", "--url", url, "--token-file", str(token))
            assert result.exit_code == 3, result.output


# -- as a user of the broker -------------------------------------------------------------------------------------------


async def test_a_user_calls_with_his_password(broker: TestBroker, operator: Operator) -> None:
    managing(broker, "#")
    as_alice = ("status", "--user", "alice")
    assert (await operator.run(*as_alice, input="s3cret\n")).exit_code == 0
    denied = await operator.run(*as_alice, input="wrong\n")
    assert (denied.exit_code, "log in as a user" in denied.stderr) == (4, True)
    assert "wrong" not in denied.output
    nobody = await operator.run(*as_alice, input="")
    assert (nobody.exit_code, "BARTLEBY_PASSWORD" in nobody.stderr) == (2, True)
    managing(broker)
    forbidden = await operator.run(*as_alice, input="s3cret\n")
    assert (forbidden.exit_code, "not allowed to manage activemq.management" in forbidden.stderr) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--url", "http://broker.example.org:8161", "--user", "alice"], "give an https:// URL"),
        (["--url", "https://127.0.0.1:1", "--user", "a:b"], "has a colon"),
        (["--url", "https://127.0.0.1:1", "--user", "a", "--ca-file", "/no/such.pem"], "/no/such.pem"),
        (["--url", "ftp://127.0.0.1:1", "--user", "a"], "give https://HOST:PORT"),
    ],
)
def test_a_password_does_not_leave_where_it_could_be_read(arguments: list[str], problem: str) -> None:
    result = invoke("status", *arguments, environment={"BARTLEBY_PASSWORD": "x"})
    assert result.exit_code == 2
    assert problem in result.stderr
