"""Dockerfile and docker-compose.yml: what they name exists, and the broker accepts what they tell it.

There is no container engine here, so the files are read, and what they would run is run as far as it can be.
"""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, Final

import click
import pytest
import yaml

from broker.cli.main import cli
from broker.config import ConfigError, load

ROOT: Final = Path(__file__).parents[2]
DATA: Final = "/var/lib/bartleby"


def _instructions() -> list[tuple[str, str]]:
    """Of each line of the Dockerfile, continued lines being one, the instruction and the rest."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in lines) if word]


INSTRUCTIONS: Final = _instructions()
FINAL: Final = INSTRUCTIONS[max(n for n, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM") :]
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
BROKER: Final[dict[str, Any]] = COMPOSE["services"]["broker"]


def _only(word: str) -> str:
    [rest] = [rest for found, rest in FINAL if found == word]
    return rest


def _image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for word, rest in FINAL if word == "ENV" for pair in shlex.split(rest))


def _seconds(text: str) -> int:
    return int(text.removesuffix("s")) if text.endswith("s") else 60 * int(text.removesuffix("m"))


def _parse(arguments: list[str]) -> click.Context:
    """The command line as `bartleby` takes it apart, without running it.  Raises click.UsageError."""
    name, command, rest = cli.resolve_command(click.Context(cli), arguments)
    assert command is not None
    return command.make_context(name, rest)


def _copied() -> list[tuple[list[str], str]]:
    return [
        (parts[:-1], parts[-1])
        for w, rest in INSTRUCTIONS
        if w == "COPY" and "--from" not in rest
        for parts in [rest.split()]
    ]


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [pattern.removeprefix("!") for pattern in ignore if pattern.startswith("!")]
    assert ignore[0] == "*"
    assert _copied()
    for names, _ in _copied():
        for name in names:
            assert (ROOT / name).exists(), name
            assert any(fnmatch(name, pattern) or PurePosixPath(name).is_relative_to(pattern) for pattern in sent), name


def test_the_wheel_can_be_built_from_what_is_copied() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    copied = {name for names, _ in _copied() for name in names}
    assert {"README.md", "LICENSE", "pyproject.toml", "broker", "protocols", "store"} <= copied
    assert 'readme = "README.md"' in project


def test_stages_are_the_slim_image_of_a_python_that_is_enough() -> None:
    bases = [rest.split()[0] for word, rest in INSTRUCTIONS if word == "FROM"]
    assert bases == ["python:3.11-slim", "python:3.11-slim"]
    assert [rest for word, rest in FINAL if word == "COPY" and "--from=build" in rest] == [
        "--from=build /opt/bartleby /opt/bartleby"
    ]


def test_the_user_is_not_root_and_owns_the_data_only() -> None:
    uid, gid = _only("USER").split(":")
    assert int(uid) >= 1000
    [setup] = [rest for word, rest in FINAL if word == "RUN"]
    assert f"--gid {gid}" in setup
    assert f"--uid {uid}" in setup
    assert f"install -d -o {uid} -g {gid} -m 0750 {DATA}" in setup
    assert json.loads(_only("VOLUME")) == [DATA]
    assert not any(word == "RUN" for word, _ in FINAL[[word for word, _ in FINAL].index("USER") :])


def test_the_image_runs_the_broker() -> None:
    assert json.loads(_only("ENTRYPOINT")) == ["bartleby"]
    assert _only("STOPSIGNAL") == "SIGTERM"
    environment = _image_environment()
    assert environment["PATH"].startswith("/opt/bartleby/bin:")
    assert environment["BARTLEBY_CONFIG"] in {target for _, target in _copied()}
    context = _parse(json.loads(_only("CMD")))
    assert context.info_name == "run"
    [listen] = context.params["listen"]
    user = {"BARTLEBY_USERS__ORDERS__PASSWORD": "x"}
    config = load(ROOT / "etc" / "broker.toml", environment | user, listen=[listen])
    assert config.broker.data_directory == Path(DATA)
    assert (config.acceptors["stomp"].host, config.acceptors["http"].host) == ("0.0.0.0", "127.0.0.1")
    assert {str(acceptor.port) for acceptor in config.acceptors.values()} == set(_only("EXPOSE").split())


def test_the_image_has_no_default_password() -> None:
    [listen] = _parse(json.loads(_only("CMD"))).params["listen"]
    with pytest.raises(ConfigError, match=r"add a \[users.NAME\] with a password"):
        load(ROOT / "etc" / "broker.toml", _image_environment(), listen=[listen])


def test_the_health_check_asks_the_broker() -> None:
    options, _, command = _only("HEALTHCHECK").partition("CMD ")
    executable, *arguments = json.loads(command)
    assert executable == "bartleby"
    assert _parse(arguments).info_name == "status"
    assert set(re.findall(r"--([a-z-]+)=", options)) == {"interval", "timeout", "start-period", "retries"}
    check = BROKER["healthcheck"]
    assert check["test"] == ["CMD", executable, *arguments]
    for key in ("interval", "timeout", "start_period", "retries"):
        assert f"--{key.replace('_', '-')}={check[key]}" in options


# -- docker-compose.yml ------------------------------------------------------------------------------------------------


def test_compose_is_the_broker_with_its_volume() -> None:
    assert set(COMPOSE["services"]) == {"broker"}
    assert BROKER["build"] == "."
    assert BROKER["image"].startswith("bartleby:")
    [(volume, target)] = [entry.split(":") for entry in BROKER["volumes"]]
    assert target == DATA
    assert volume in COMPOSE["volumes"]
    assert BROKER["restart"] == "unless-stopped"


def test_compose_gives_nothing_away() -> None:
    assert BROKER["read_only"] is True
    assert BROKER["cap_drop"] == ["ALL"]
    assert BROKER["security_opt"] == ["no-new-privileges:true"]
    assert not BROKER.get("privileged")
    assert "user" not in BROKER  # the image's own
    assert all(port.startswith("127.0.0.1:") for port in BROKER["ports"])


def test_compose_lets_the_broker_say_goodbye() -> None:
    assert _seconds(BROKER["stop_grace_period"]) * 1000 > load(None).broker.shutdown_timeout


def test_compose_allows_as_many_files_as_there_may_be_connections() -> None:
    assert BROKER["ulimits"]["nofile"] > load(None).limits.connections_max


def test_the_broker_takes_the_environment_of_compose(tmp_path: Path) -> None:
    """With its secrets where they are here: each is mounted below /run/secrets."""
    environment = _image_environment() | BROKER["environment"]
    for name in BROKER["secrets"]:
        (tmp_path / name).write_text("geheim\n")
        assert COMPOSE["secrets"][name]["file"].removeprefix("./") in (ROOT / ".gitignore").read_text().replace("/", "")
    here = {key: value.replace("/run/secrets/", f"{tmp_path}/") for key, value in environment.items()}
    assert here != environment
    [listen] = _parse(json.loads(_only("CMD"))).params["listen"]
    config = load(ROOT / "etc" / "broker.toml", here, listen=[listen])
    assert {user.password.get_secret_value() for user in config.users.values()} == {"geheim"}
    assert config.log.format == "json"
