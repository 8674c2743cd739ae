"""BARTLEBY_* variables over the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import ConfigError, Problem, StompAcceptor, load
from broker.config.environment import COMMAND_VARIABLES, SECRET_BYTES_MAX
from broker.engine.model.message import RoutingType


def problems(environment: dict[str, str], path: Path | None = None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(path, environment)
    return caught.value.problems


def test_values_have_the_type_of_their_setting() -> None:
    config = load(
        None,
        {
            "BARTLEBY_BROKER__NAME": "123",
            "BARTLEBY_BROKER__CONNECTION_TTL": "90s",
            "BARTLEBY_BROKER__GLOBAL_MAX_SIZE": "1048576",
            "BARTLEBY_BROKER__DATA_DIRECTORY": "/data",
            "BARTLEBY_LOG__LEVEL": "debug",
            "BARTLEBY_JOURNAL__RETENTION__ENABLED": "True",
            "BARTLEBY_ACCEPTORS__STOMP__PORT": "0",
            "BARTLEBY_ACCEPTORS__STOMP__HEART_BEAT_TO_CONNECTION_TTL_MODIFIER": "1.5",
            "BARTLEBY_ACCEPTORS__STOMP__CONNECTION_TTL": "-1",
            "BARTLEBY_ADDRESSES__PRICES__ROUTING_TYPES": "ANYCAST, MULTICAST",
            "HOME": "/root",
        },
    )
    assert config.broker.name == "123"
    assert config.broker.connection_ttl == 90_000
    assert config.broker.global_max_size == 1 << 20
    assert config.broker.data_directory == Path("/data")
    assert config.log.level == "debug"
    assert config.journal.retention.enabled
    stomp = config.messaging_acceptors["stomp"]
    assert isinstance(stomp, StompAcceptor)
    assert (stomp.port, stomp.heart_beat_to_connection_ttl_modifier, stomp.connection_ttl) == (0, 1.5, -1)
    assert config.addresses["prices"].routing_types == (RoutingType.ANYCAST, RoutingType.MULTICAST)
    assert set(config.addresses) == {"DLQ", "ExpiryQueue", "prices"}
    assert set(config.acceptors) == {"stomp", "amqp", "mqtt", "http"}


def test_the_environment_is_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('[broker]\nname = "file"\n[acceptors.My-Stomp]\nprotocol = "stomp"\nport = 1\n')
    config = load(path, {"BARTLEBY_BROKER__NAME": "variable", "BARTLEBY_ACCEPTORS__MY_STOMP__PORT": "2"})
    assert config.broker.name == "variable"
    assert {name: acceptor.port for name, acceptor in config.acceptors.items()} == {"My-Stomp": 2}


@pytest.mark.parametrize(("variable", "user"), [("ALICE", "alice"), ("Alice", "Alice"), ("NIGHT_SHIFT", "night-shift")])
def test_new_names(variable: str, user: str) -> None:
    start = f"BARTLEBY_ACCEPTORS__{variable}__"
    config = load(None, {f"{start}PROTOCOL": "stomp", f"{start}PORT": "1"})
    assert config.acceptors[user].port == 1


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"geheim", "geheim"),
        (b"geheim\n", "geheim"),
        (b"geheim\r\n", "geheim"),
        (b"geheim\n\n", "geheim\n"),
        (b" x ", " x "),
        (b"x" * SECRET_BYTES_MAX, "x" * SECRET_BYTES_MAX),
    ],
)
def test_a_value_from_a_file(tmp_path: Path, content: bytes, value: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    config = load(None, {"BARTLEBY_ACCEPTORS__STOMP__HOST_FILE": str(secret)})
    assert config.acceptors["stomp"].host == value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"\xff", "not UTF-8"),
        (b"x" * (SECRET_BYTES_MAX + 1), f"more than {SECRET_BYTES_MAX} bytes"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, reason: str) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    [problem] = problems({"BARTLEBY_ACCEPTORS__STOMP__HOST_FILE": str(secret)})
    assert (problem.file, problem.key) == ("BARTLEBY_ACCEPTORS__STOMP__HOST_FILE", "acceptors.stomp.host")
    assert reason in problem.fix


def test_an_empty_file_is_an_empty_text(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"\n")
    [problem] = problems({"BARTLEBY_ACCEPTORS__STOMP__HOST_FILE": str(secret)})
    assert problem.fix == "give a text that is not empty"


def test_any_setting_may_come_from_a_file(tmp_path: Path) -> None:
    value = tmp_path / "value"
    value.write_text("warning\n")
    assert load(None, {"BARTLEBY_LOG__LEVEL_FILE": str(value)}).log.level == "warning"


@pytest.mark.parametrize(
    ("name", "value", "key", "fix"),
    [
        ("BARTLEBY_BROKER__NAEM", "x", "broker.naem", "did you mean name?"),
        ("BARTLEBY_BROKR__NAME", "x", "brokr.name", "did you mean broker?"),
        ("BARTLEBY_BROKER__NAME__FIRST", "x", "broker.name.first", "unknown setting"),
        ("BARTLEBY_BROKER__", "x", "broker.", "unknown setting"),
        ("BARTLEBY_JOURNAL__RETENTION", "x", "journal.retention", "this is a table"),
        ("BARTLEBY_USERS__ALICE__PASSWORD", "geheim", "users.alice.password", "bartleby user add"),
        ("BARTLEBY_SECURITY_SETTINGS__0__MATCH", "x", "security-settings.0.match", "write them into the file"),
        ("BARTLEBY_ADDRESS_SETTINGS__0__MATCH", "x", "address-settings.0.match", "write them into the file"),
        ("BARTLEBY_ACCEPTORS__STOMP__PORT", "many", "acceptors.stomp.port", "give an integer"),
        ("BARTLEBY_SECURITY__ANONYMOUS", "yes", "security.anonymous", "give true or false"),
        ("BARTLEBY_ACCEPTORS__OLD__PROTOCOL", "openwire", "acceptors.old.protocol", "does not speak openwire"),
        ("BARTLEBY_LIMITS__TRANSACTION_BYTES_MAX", "1GiB", "limits.transaction-bytes-max", "at most half"),
        ("BARTLEBY_BROKER_NAME", "x", "broker", "rename it to BARTLEBY_BROKER__NAME"),
        ("BARTLEBY_ADDRESS_SETTINGS_X", "x", "address-settings", "BARTLEBY_ADDRESS_SETTINGS__X"),
    ],
)
def test_a_problem_names_the_variable(name: str, value: str, key: str, fix: str) -> None:
    [problem] = problems({name: value})
    assert (problem.file, problem.key) == (name, key)
    assert fix in problem.fix
    assert "geheim" not in str(problem)


def test_two_variables_for_one_setting(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("geheim")
    [problem] = problems({"BARTLEBY_BROKER__NAME": "geheim", "BARTLEBY_BROKER__NAME_FILE": str(tmp_path / "x")})
    assert problem.fix == "BARTLEBY_BROKER__NAME sets it too: keep one of them"


def test_a_wrong_file_under_a_variable_is_told_for_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("broker = 5\n")
    [problem] = problems({"BARTLEBY_BROKER__NAME": "x"}, path)
    assert (problem.file, problem.key) == (str(path), "broker")


def test_an_acceptor_that_only_a_variable_names_is_the_variables_fault(tmp_path: Path) -> None:
    """The file has acceptors of its own, so that those as shipped are not there for the variable to change."""
    path = tmp_path / "broker.toml"
    path.write_text('[acceptors.stomp]\nprotocol = "stomp"\n')
    [problem] = problems({"BARTLEBY_ACCEPTORS__HTTP__HOST": "0.0.0.0"}, path)
    assert (problem.file, problem.key) == ("BARTLEBY_ACCEPTORS__HTTP__HOST", "acceptors.http")
    assert "needs its protocol" in problem.fix


def test_variables_of_others_are_left_alone() -> None:
    others = dict.fromkeys(COMMAND_VARIABLES, "x") | {
        "BARTLEBY_PORT": "tcp://10.0.0.1:61613",
        "BARTLEBY_PORT_61613_TCP_ADDR": "10.0.0.1",
        "BARTLEBY_SERVICE_HOST": "10.0.0.1",
        "BARTLEBY_BROKER_SERVICE_HOST": "10.0.0.1",
        "BARTLEBY_BROKER_PORT": "tcp://10.0.0.1:61613",
        "BARTLEBYS__NAME": "x",
    }
    assert load(None, others) == load(None)
