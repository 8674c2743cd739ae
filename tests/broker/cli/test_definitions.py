"""`bartleby definitions`: a broker's document, its diff with another one, and users with what they log in with."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest

from broker.cli.definitions import NAMED_MAX
from broker.security.users_file import NAME, read_users, write_users
from tests.broker.cli.harness import Operator, introduced
from tests.broker.management.harness import TestBroker, serving
from tests.support.sim_gate import cheap_user


@pytest.mark.usefixtures("broker")
async def test_an_export_is_imported_elsewhere(operator: Operator, tmp_path: Path) -> None:
    await operator.run("queue", "create", "prices", "--make-address", "--type", "anycast", "ring-size=5")
    file = tmp_path / "definitions.json"
    exported = await operator.run("definitions", "export", "--to", str(file))
    assert (exported.exit_code, exported.stderr) == (0, f"1 address, 1 queue, 0 diverts were written to {file}\n")
    assert (await operator.run("definitions", "export")).stdout == file.read_text()
    document = json.loads(file.read_text())
    document["address_settings"] = {'a"\\': {"dead-letter-address": "é\t", "max-delivery-attempts": 3}}
    document["permissions"] = {"a": {"send": ["team"]}}
    document["users"] = []
    file.write_text(json.dumps(document))
    other_directory = tmp_path / "other"
    async with serving(other_directory) as (other, client):
        elsewhere = introduced(other_directory, client)
        dry = await elsewhere.run("definitions", "import", str(file), "--dry-run")
        assert dry.exit_code == 5, "as the import itself"
        assert dry.stderr == (
            'bartleby: 2 definitions would be left to do by hand: address-setting a"\\, permission a\n'
        )
        assert "+ queue prices\n" in dry.stdout
        assert "2 would be created" in dry.stdout
        assert not other.engine.queues
        done = await elsewhere.run("definitions", "import", str(file))
        assert done.exit_code == 5
        assert done.stderr == 'bartleby: 2 definitions are left to do by hand: address-setting a"\\, permission a\n'
        assert '# permission a: send (none) -> ["team"]; ' not in done.stdout
        toml = tomllib.loads(done.stdout.partition("reload:\n")[2].partition("2 created")[0])
        assert toml["address-settings"][0]["match"] == 'a"\\'
        assert toml["security-settings"] == [{"match": "a", "send": ["team"]}]
        assert other.engine.queue("prices").attributes.ring_size == 5
        await elsewhere.run("queue", "set", "prices", "ring-size=9")
        again = await elsewhere.run("definitions", "import", str(file), "--dry-run")
        assert "~ queue prices: ring-size 9 -> 5\n" in again.stdout
        assert again.stdout.endswith(
            "0 would be created, 1 would be changed, 1 the same, 0 would be refused, 2 to do by hand\n"
        )


async def test_of_many_refused_the_first_are_named(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    queues = [{"name": f"q{n}", "address": "", "routing_type": "ANYCAST"} for n in range(NAMED_MAX + 2)]
    settings = {"a": {"max-delivery-attempts": 3}}
    file.write_text(json.dumps({"version": 1, "queues": queues, "address_settings": settings}))
    told = ", ".join(f"queue q{n}" for n in range(NAMED_MAX))
    dry = await operator.run("definitions", "import", str(file), "--dry-run")
    assert (dry.exit_code, dry.stderr) == (
        5,
        f"bartleby: {NAMED_MAX + 2} definitions would be refused: {told} and 2 more;"
        " 1 definition would be left to do by hand: address-setting a\n",
    )


async def test_many_take_several_calls(broker: TestBroker, operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    queues = [{"name": f"q{n}", "address": "many", "routing_type": "ANYCAST"} for n in range(1_200)]
    file.write_text(json.dumps({"version": 1, "queues": queues}))
    done = await operator.run("definitions", "import", str(file))
    assert (done.exit_code, done.stdout.splitlines()[-1][:14]) == (0, "1200 created, ")
    assert len(broker.engine.queues) == 1_200


@pytest.mark.usefixtures("broker")
async def test_what_users_log_in_with_goes_from_file_to_file(operator: Operator, tmp_path: Path) -> None:
    stored = {"alice": cheap_user("s3cret", "team"), "eva": cheap_user("x", "a")}
    write_users(tmp_path / NAME, stored)
    file = tmp_path / "definitions.json"
    assert (await operator.run("definitions", "export", "--to", str(file))).exit_code == 0
    assert "argon2" not in file.read_text()
    assert (await operator.run("definitions", "export", "--users", "--to", str(file))).exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other_directory = tmp_path / "other"
    async with serving(other_directory) as (_, client):
        elsewhere = introduced(other_directory, client)
        write_users(other_directory / NAME, {"alice": cheap_user("other", "team")})
        dry = await elsewhere.run("definitions", "import", "--users", str(file), "--dry-run")
        assert "+ user eva\n" in dry.stdout
        assert (dry.exit_code, dry.stderr) == (5, "bartleby: 1 definition would be refused: user alice\n")
        assert read_users(other_directory / NAME).keys() == {"alice"}
        done = await elsewhere.run("definitions", "import", "--users", str(file))
        assert (done.exit_code, done.stderr) == (5, "bartleby: 1 definition was refused: user alice\n")
        assert "! user alice: a user of this name has other roles or another password" in done.stdout
        users = read_users(other_directory / NAME)
        assert users["eva"] == stored["eva"]
        assert users["alice"] != stored["alice"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not a JSON document"),
        ("[]", "has no definitions"),
        ('{"version": 1}', "export it with --users"),
        ('{"version": 1, "users_file": {"a": {"password": "plain"}}}', "user 'a'"),
        ('{"version": 1, "users_file": 1}', "users_file is an object"),
    ],
)
async def test_a_file_that_is_something_else(operator: Operator, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(text)
    result = await operator.run("definitions", "import", "--users", str(file))
    assert result.exit_code == 2
    assert told in result.stderr
