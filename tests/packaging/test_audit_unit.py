"""etc/bartleby-audit.service and .timer: every night, as the broker's user, without a way to change its journal."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.nights import Nights
from tests.packaging.units import SERVICE as BROKER
from tests.packaging.units import sections_of

ETC: Final = Path(__file__).parents[2] / "etc"
UNITS: Final = ("bartleby-audit.service", "bartleby-audit.timer")
SERVICE: Final = sections_of(ETC / UNITS[0])["Service"]

#: What makes a service harmless; the audit has all of it that the broker has.
HARDENING: Final = tuple(
    key
    for key in BROKER
    if key.startswith(
        ("Protect", "Private", "Restrict", "SystemCall", "Lock", "Capabilit", "Ambient", "NoNew", "Remove")
    )
    and key != "RestartPreventExitStatus"
)


def _one(key: str) -> str:
    [value] = SERVICE[key]
    return value


def test_the_command_is_the_script_on_the_brokers_data(tmp_path: Path) -> None:
    executable, *arguments = shlex.split(_one("ExecStart"))
    assert executable == "/opt/bartleby/bin/nightly-audit"
    assert _one("Environment").startswith("PATH=/opt/bartleby/bin:"), "where the script finds bartleby"
    [broker] = BROKER["StateDirectory"]
    assert arguments == ["--compare", f"/var/lib/{broker}", "/var/lib/bartleby-audit"]
    assert _one("StateDirectory") == "bartleby-audit"
    nights = Nights(tmp_path)
    assert nights.run(before=tuple(arguments[:-2])) == 0


def test_it_is_the_brokers_user_who_may_only_read_the_journal() -> None:
    for key in ("User", "DynamicUser", "StateDirectoryMode", "UMask"):
        assert SERVICE[key] == BROKER[key]
    # Where systemd keeps the state directory of a dynamic user.  ReadOnlyPaths= of the link to it would do nothing.
    assert _one("BindReadOnlyPaths") == f"/var/lib/private/{BROKER['StateDirectory'][0]}"


@pytest.mark.parametrize("key", HARDENING)
def test_hardening_is_the_brokers(key: str) -> None:
    assert SERVICE[key] == BROKER[key]


def test_it_reaches_nobody_but_this_machine() -> None:
    assert (_one("IPAddressDeny"), _one("IPAddressAllow")) == ("any", "localhost")


def test_it_gives_way_to_the_broker() -> None:
    """As nice as `bartleby audit`, which this unit may not make itself, and with a small share of the whole group."""
    assert "@resources" in " ".join(SERVICE["SystemCallFilter"])
    assert (_one("Nice"), _one("IOSchedulingClass"), _one("OOMScoreAdjust")) == ("19", "idle", "1000")
    assert (_one("CPUWeight"), _one("CPUQuota")) == ("5", "50%")
    assert not {"Nice", "CPUWeight", "CPUQuota"} & BROKER.keys()


def test_every_night_also_after_one_that_the_machine_slept_through() -> None:
    sections = sections_of(ETC / UNITS[1])
    assert sections["Timer"]["Persistent"] == ["yes"]
    assert sections["Install"] == {"WantedBy": ["timers.target"]}
    assert (_one("Type"), "Restart" in SERVICE) == ("oneshot", False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze: apt-get install systemd")
def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    for name in UNITS:
        text = (ETC / name).read_text().replace("/opt/bartleby/bin/nightly-audit", str(ETC / "nightly-audit.sh"))
        (tmp_path / name).write_text(text)
    units = [tmp_path / name for name in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze: apt-get install systemd")
def test_the_time_is_one_that_systemd_understands() -> None:
    [when] = sections_of(ETC / UNITS[1])["Timer"]["OnCalendar"]
    done = subprocess.run(
        ["systemd-analyze", "calendar", when], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Next elapse" in done.stdout) == (0, True)
