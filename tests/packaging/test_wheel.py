"""A wheel has all that a broker needs, and its broker runs in any directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("broker", "protocols", "spark_jobs", "store")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plain wheel of these sources."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps"]
    environment = {**os.environ, "BARTLEBY_COMPILE": "0"}
    subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(directory), str(ROOT)],
        env=environment,
        check=True,
        timeout=120,
    )
    [path] = directory.glob("bartleby-*-py3-none-any.whl")
    return path


def test_every_file_of_the_packages_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - names == set()
    pages = {f"share/man/man1/{page.name}" for page in (ROOT / "etc" / "man").iterdir()}
    assert {name.partition(".data/data/")[2] or name for name in names if ".dist-info/" not in name} - files == pages


def test_its_broker_runs_in_any_directory(wheel: Path, tmp_path: Path) -> None:
    """With the configuration as shipped, and the data in the directory that it was started in."""
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere.mkdir()
    script = site / "bartleby.py"  # beside the packages, so that Python finds these before any others
    script.write_text(f"import broker.__main__ as m\nassert m.__file__.startswith({str(site)!r})\nm.main()\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BARTLEBY_")}
    environment["BARTLEBY_BROKER__MAX_DISK_USAGE"] = "-1"  # how full this machine's disk is, is no matter of the test
    command = [sys.executable, str(script)]
    listen = [part for name in ("stomp", "amqp", "mqtt", "http") for part in ("--listen", f"{name}=127.0.0.1:0")]
    broker = subprocess.Popen(
        [*command, "run", *listen],
        cwd=elsewhere,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert broker.stdout is not None
    try:
        assert broker.stdout.readline().startswith("READY stomp=")
        status = subprocess.run([*command, "status"], cwd=elsewhere, env=environment, timeout=30, check=False)
        assert status.returncode == 0
        assert (elsewhere / "var" / "journal").is_dir()
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=30)
    assert broker.returncode == 0
    trace = [*command, "audit", "trace", "1", "--format", "html", "--out", str(elsewhere / "trace.html")]
    subprocess.run(trace, cwd=elsewhere, env=environment, timeout=60, check=True)
    assert (elsewhere / "trace.html").read_text().startswith("<!DOCTYPE html>"), "the template is in the wheel"
