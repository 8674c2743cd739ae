"""`bartleby run`, `config check`, `version`, and the ways a command can be called wrongly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import broker
from broker.build import VERSION_SHOWN
from broker.config import Config, ConfigError
from broker.daemon import run as daemon
from tests.broker.cli.harness import invoke

BROKEN = """
[log]
level = "loud"

[nonsense]
a = 1
"""


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(arguments: list[str]) -> None:
    assert invoke(*arguments).stdout == f"bartleby {VERSION_SHOWN}\n"


def test_the_module_is_the_command() -> None:
    result = subprocess.run([sys.executable, "-m", "broker", "version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"bartleby {VERSION_SHOWN}\n"


def test_a_full_disk_behind_the_output_is_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        run = [sys.executable, "-m", "broker", "config", "check"]
        result = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.stderr == "bartleby: the output cannot be written: No space left on device\n"
    assert result.returncode == 1


def test_ctrl_c_while_the_command_is_being_read(tmp_path: Path) -> None:
    """The first import of another package is the moment."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(broker.__file__).parents[1]}"}
    heard = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # the tests may ignore it
    run = [sys.executable, "-c", f"{heard}; runpy.run_module('broker', run_name='__main__')", "version"]
    result = subprocess.run(run, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")


def test_a_good_configuration_is_ok(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[broker]\nname = "mine"\n')
    result = invoke("config", "check", "--config", str(file))
    assert (result.exit_code, result.stdout) == (0, f"{file}: ok\n")
    assert invoke("config", "check").exit_code == 0


def test_all_problems_of_a_configuration_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(BROKEN)
    result = invoke("config", "check", "--config", str(file))
    assert result.exit_code == 2
    assert "log.level" in result.stderr
    assert "nonsense" in result.stderr
    assert str(file) in result.stderr
    assert invoke("run", "--config", str(file)).stderr == result.stderr


def test_a_configuration_that_is_not_there_is_2(tmp_path: Path) -> None:
    result = invoke("config", "check", "--config", str(tmp_path / "none.toml"))
    assert result.exit_code == 2
    assert "none.toml" in result.stderr


def test_the_variable_names_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(BROKEN)
    assert invoke("config", "check", environment={"BARTLEBY_CONFIG": str(file)}).exit_code == 2


def test_status_finds_the_data_directory_in_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(f'[broker]\ndata-directory = "{tmp_path}/somewhere"\n')
    result = invoke("status", "--config", str(file))
    assert result.exit_code == 3
    assert f"no broker runs on {tmp_path}/somewhere" in result.stderr
    environment = {"BARTLEBY_URL": "http://127.0.0.1:1", "BARTLEBY_TOKEN_FILE": str(tmp_path / "none")}
    assert invoke("status", "--config", str(file), environment=environment).exit_code == 4


Reload = Callable[[], Config]


def test_run_gives_the_options_to_the_broker_and_its_status_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[broker]\nname = "mine"\n\n[acceptors.stomp]\nprotocol = "stomp"\n')
    seen: list[Config] = []

    def run(config: Config, reload: Reload) -> int:
        file.write_text('[broker]\nname = "other"\n\n[acceptors.stomp]\nprotocol = "stomp"\n')
        seen.extend((config, reload()))
        file.write_text(BROKEN)
        with pytest.raises(ConfigError):
            reload()
        return 75

    monkeypatch.setattr(daemon, "run", run)
    data = tmp_path / "data"
    result = invoke("run", "--config", str(file), "--data", str(data), "--listen", "stomp=127.0.0.1:0")
    assert result.exit_code == 75
    assert [config.broker.name for config in seen] == ["mine", "other"]
    for config in seen:
        assert config.broker.data_directory == data
        assert config.acceptors["stomp"].port == 0


@pytest.mark.parametrize("listen", ["stomp", "none=127.0.0.1:1", "stomp=127.0.0.1:x", "stomp=127.0.0.1:70000"])
def test_an_acceptor_that_cannot_be_is_2(tmp_path: Path, listen: str) -> None:
    result = invoke("run", "--data", str(tmp_path), "--listen", listen)
    assert result.exit_code == 2
    assert listen.partition("=")[0] in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["run", "--nonsense"],
        ["queue", "show"],
        ["queue", "browse", "q", "--page", "0"],
        ["journal", "verify"],
    ],
)
def test_a_command_called_wrongly_is_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def _commands() -> list[list[str]]:
    return [
        [],
        ["run"],
        ["config", "check"],
        ["status"],
        *(["queue", name] for name in ("list", "show", "browse", "purge")),
        *(["journal", name] for name in ("verify", "print", "stat")),
        ["version"],
    ]


@pytest.mark.parametrize("command", _commands())
def test_every_command_explains_itself_and_is_in_the_manual(command: list[str]) -> None:
    assert invoke(*command, "-h").exit_code == 0
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text("utf-8")
    assert " ".join(["`bartleby", *command]).rstrip() in page
