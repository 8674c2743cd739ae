"""`bartleby user`: the users file, and that a password is never on a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.cli.main import cli
from broker.security.passwords import SCRAM_ITERATIONS, fits, scram_keys
from broker.security.users_file import StoredUser, read_users, write_users
from broker.sessions.login import ScramKeys


def keys(mechanism: str, iterations: int) -> ScramKeys:
    """Keys as if they had been made with so many iterations, which would take long."""
    return (*scram_keys(mechanism, "geheim", b"salt" * 4, 4_096)[:3], iterations)


def call(directory: Path, *arguments: str, password: str = "") -> Result:
    return CliRunner().invoke(cli, ["user", *arguments, "--data", str(directory)], input=password)


def test_the_life_of_a_user(tmp_path: Path) -> None:
    assert call(tmp_path, "add", "alice", "--role", "a", "--role", "b", password="geheim\n").exit_code == 0
    path = tmp_path / "users.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    alice = read_users(path)["alice"]
    assert alice.roles == {"a", "b"}
    assert set(alice.scram) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert fits(b"geheim", alice.password)
    assert "geheim" not in path.read_text()
    assert call(tmp_path, "passwd", "alice", "--no-scram", password="other\n").exit_code == 0
    alice = read_users(path)["alice"]
    assert fits(b"other", alice.password)
    assert not alice.scram, "keys of the old password would still let it in"
    assert call(tmp_path, "roles", "alice", "c").exit_code == 0
    assert call(tmp_path, "add", "device", "--role", "d", "--no-password").exit_code == 0
    listed = json.loads(call(tmp_path, "list", "--output", "json").stdout)
    assert listed == [
        {"name": "alice", "roles": ["c"], "password": True, "scram": [], "iterations": {}, "outdated": []},
        {"name": "device", "roles": ["d"], "password": False, "scram": [], "iterations": {}, "outdated": []},
    ]
    assert call(tmp_path, "remove", "alice").exit_code == 0
    assert set(read_users(path)) == {"device"}


def test_the_list_shows_who_has_keys_from_before_todays_iterations(tmp_path: Path) -> None:
    today = {mechanism: keys(mechanism, count) for mechanism, count in SCRAM_ITERATIONS.items()}
    old = {"SCRAM-SHA-256": keys("SCRAM-SHA-256", 20_000)}
    users = {"new": today, "old": today | old, "none": {}}
    write_users(tmp_path / "users.toml", {name: StoredUser(scram=scram) for name, scram in users.items()})
    lines = call(tmp_path, "list").stdout.splitlines()
    shown = {line.split()[0]: line for line in lines}
    assert "SCRAM-SHA-256 (600,000), SCRAM-SHA-512 (220,000)" in shown["new"]
    assert "SCRAM-SHA-256 (20,000, outdated), SCRAM-SHA-512 (220,000)" in shown["old"]
    assert "SCRAM" not in shown["none"]
    listed = {each["name"]: each for each in json.loads(call(tmp_path, "list", "--output", "json").stdout)}
    assert listed["old"]["iterations"] == {"SCRAM-SHA-256": 20_000, "SCRAM-SHA-512": 220_000}
    assert [listed[name]["outdated"] for name in ("new", "old", "none")] == [[], ["SCRAM-SHA-256"], []]


@pytest.mark.parametrize(
    ("arguments", "password", "status", "text"),
    [
        (("add", "alice"), "x\n", 2, "--role"),
        (("add", "alice", "--role", "r"), "", 2, "no password was given"),
        (("add", "alice", "--role", "r"), "\n", 2, "no password was given"),
        (("add", "alice", "--role", "r"), "x" * 1025 + "\n", 2, "1 to 1024 bytes"),
        (("add", " alice", "--role", "r"), "x\n", 2, "no blank"),
        (("add", "bob", "--role", "r"), "x\n", 1, "already"),
        (("passwd", "alice"), "x\n", 1, "there is no user alice"),
        (("remove", "alice"), "", 1, "there is no user alice"),
        (("add", "alice", "geheim", "--role", "r"), "", 2, "unexpected extra argument"),
    ],
)
def test_what_cannot_be(tmp_path: Path, arguments: tuple[str, ...], password: str, status: int, text: str) -> None:
    call(tmp_path, "add", "bob", "--role", "r", "--no-password")
    result = call(tmp_path, *arguments, password=password)
    assert result.exit_code == status, result.output
    assert text in result.output
    assert set(read_users(tmp_path / "users.toml")) == {"bob"}


def test_a_password_in_another_encoding_is_told(tmp_path: Path) -> None:
    arguments = ["user", "add", "alice", "--role", "r", "--data", str(tmp_path)]
    result = CliRunner().invoke(cli, arguments, input=b"\xff\n")
    assert (result.exit_code, result.output) == (2, "bartleby: the password for alice is not UTF-8\n")


def test_a_file_that_is_open_to_others_is_not_touched(tmp_path: Path) -> None:
    call(tmp_path, "add", "bob", "--role", "r", "--no-password")
    path = tmp_path / "users.toml"
    path.chmod(0o644)
    result = call(tmp_path, "remove", "bob")
    assert result.exit_code == 2
    assert "chmod 600" in result.output
    assert "bob" in path.read_text()
