"""etc/bartleby.service: what it promises to systemd is what the broker does."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from broker.cli.main import cli
from broker.config import load
from broker.reasons.exit_status import ExitStatus
from tests.packaging.units import SECTIONS, SERVICE, UNIT


def _one(key: str) -> str:
    [value] = SERVICE[key]
    return value


def _seconds(key: str) -> int:
    return int(_one(key).removesuffix("s"))


def test_sections() -> None:
    assert list(SECTIONS) == ["Unit", "Service", "Install"]
    assert SECTIONS["Install"] == {"WantedBy": ["multi-user.target"]}


def test_it_tells_systemd_when_it_is_ready_and_alive() -> None:
    assert (_one("Type"), _one("NotifyAccess")) == ("notify", "main")
    assert _seconds("WatchdogSec") > 0
    assert _one("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_the_command_is_one_of_ours() -> None:
    executable, *arguments = shlex.split(_one("ExecStart"))
    assert executable == "/opt/bartleby/bin/bartleby"
    context = click.Context(cli, **cli.context_settings)
    name, command, rest = cli.resolve_command(context, arguments)
    assert command is not None
    parameters = command.make_context(name, rest, context).params
    assert (name, parameters["file"]) == ("run", Path("/etc/bartleby/broker.toml"))
    assert parameters["data"] == Path("/var/lib") / _one("StateDirectory")
    assert Path("/etc") / _one("ConfigurationDirectory") == parameters["file"].parent


def test_it_is_restarted_when_that_can_help() -> None:
    assert _one("Restart") == "on-failure"
    assert _one("RestartPreventExitStatus") == f"{ExitStatus.USAGE} {ExitStatus.DISK_FAILED}"
    assert str(ExitStatus.FAULT) not in _one("RestartPreventExitStatus"), "a fault may not come again"


@pytest.mark.parametrize("recovery_s", [0, 1, 10, 60])
def test_a_fault_that_comes_at_each_start_ends_in_a_failed_unit(recovery_s: int) -> None:
    """The limit of systemd itself, 5 starts in 10 s, is never reached by starts that are 2 s apart."""
    [interval], [burst] = SECTIONS["Unit"]["StartLimitIntervalSec"], SECTIONS["Unit"]["StartLimitBurst"]
    assert interval == "1h"
    assert int(burst) * (_seconds("RestartSec") + recovery_s) < 3600, "however long the recovery takes each time"
    assert int(burst) * _seconds("RestartSec") >= _seconds("TimeoutStopSec") / 2, "what passes by itself has time"
    assert 3600 / int(burst) <= 300, "a fault once in five minutes leaves the broker running"


def test_the_page_says_what_the_unit_does_about_faults() -> None:
    [interval], [burst] = SECTIONS["Unit"]["StartLimitIntervalSec"], SECTIONS["Unit"]["StartLimitBurst"]
    page = (UNIT.parents[1] / "docs" / "operations.md").read_text()
    assert f"`StartLimitBurst={burst}`" in page
    assert f"`StartLimitIntervalSec={interval}`" in page
    assert "systemctl reset-failed bartleby" in page


def test_limits_leave_room_for_what_the_broker_allows() -> None:
    config = load(None)
    assert int(_one("LimitNOFILE")) > config.limits.connections_max
    assert _seconds("TimeoutStopSec") * 1000 > config.broker.shutdown_timeout


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateDevices", "yes"),
        ("PrivateTmp", "yes"),
        ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6"),
        ("UMask", "0077"),
        ("StateDirectoryMode", "0750"),
    ],
)
def test_hardening(key: str, value: str) -> None:
    assert _one(key) == value


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze: apt-get install systemd")
def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/bartleby/bin/bartleby", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
