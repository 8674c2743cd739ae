"""pyproject.toml, its dependencies, the Makefile and what CI runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import click
import pytest

import broker
from broker.__main__ import main
from broker.cli.main import cli
from tests.packaging.project import PROJECT, PYPROJECT, ROOT


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", requirement)[0] for requirement in requirements}


def test_distribution() -> None:
    assert PROJECT["name"] == "bartleby"
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["requires-python"] == ">=3.11"
    assert (ROOT / PYPROJECT["tool"]["hatch"]["version"]["path"]).read_text().count(f'"{broker.__version__}"') == 1
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_command_exists() -> None:
    assert PROJECT["scripts"] == {"bartleby": "broker.__main__:main"}
    assert callable(main)
    assert {"run", "status", "queue", "journal", "config"} <= set(cli.list_commands(click.Context(cli)))


def test_every_package_is_in_the_wheel() -> None:
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert all((ROOT / package / "__init__.py").exists() for package in packages)


@pytest.mark.parametrize(
    ("heading", "requirements"),
    [("## To run", PROJECT["dependencies"])]
    + [(f"## `[{extra}]`", names) for extra, names in PROJECT["optional-dependencies"].items()],
)
def test_every_dependency_is_justified(heading: str, requirements: list[str]) -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    section = text.partition(f"\n{heading}")[2].partition("\n## ")[0]
    reasons = dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", section, re.MULTILINE))
    assert set(reasons) == _names(requirements)
    assert all(len(reason) > 10 for reason in reasons.values())


def test_every_runtime_dependency_is_imported() -> None:
    modules = {
        "Jinja2": "jinja2",
        "PyJWT": "jwt",
        "argon2-cffi": "argon2",
        "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "prometheus-client": "prometheus_client",
        "tomli-w": "tomli_w",
    }
    extras = PROJECT["optional-dependencies"]
    text = "\n".join(
        path.read_text() for room in ("broker", "store", "protocols") for path in (ROOT / room).rglob("*.py")
    )
    for name in _names([*PROJECT["dependencies"], *extras["import"], *extras["jwt"], *extras["otel"]]):
        assert re.search(rf"^\s*(import|from) {modules.get(name, name)}\b", text, re.MULTILINE), name


def _make(*arguments: str, directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-f", str(ROOT / "Makefile"), *arguments],
        cwd=directory,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "target",
    [
        "run",
        "test",
        "test-compiled",
        "check",
        "demo",
        "storm",
        "bench",
        "reference",
        "docs",
        "pyfiles",
        "wheel",
        "wheels",
        "clean",
    ],
)
def test_make_targets(target: str) -> None:
    done = _make("--dry-run", target)
    assert done.returncode == 0, done.stderr


def test_make_test_runs_linter_types_and_tests(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    lines = _make("--dry-run", "test", directory=tmp_path).stdout.splitlines()
    order = [command for line in lines for command in ("venv", "[test]", "ruff", "mypy", "pytest") if command in line]
    assert [command for n, command in enumerate(order) if command not in order[:n]] == [
        "venv",
        "[test]",
        "ruff",
        "mypy",
        "pytest",
    ]


def test_make_installs_again_when_the_project_changes(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv").mkdir()
    for stamp in (".made", ".installed-run", ".installed-test"):
        (tmp_path / ".venv" / stamp).touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    assert "--editable" not in _make("--dry-run", "run", directory=tmp_path).stdout
    os.utime(tmp_path / ".venv" / ".installed-run", (0, 0))
    os.utime(tmp_path / "pyproject.toml", (1, 1))
    again = _make("--dry-run", "run", directory=tmp_path).stdout
    assert "--editable ." in again
    assert "-m venv" not in again


@pytest.mark.parametrize(
    ("python", "complaint"),
    [
        (None, "is missing"),
        (
            '#!/bin/sh\ncase "$*" in *version_info*) exit 1;; *) echo "Python 3.9.2";; esac\n',
            "is Python 3.9.2, and 3.11",
        ),
        ('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\n', "has no venv module: install it"),
    ],
)
def test_make_says_what_is_missing(tmp_path: Path, python: str | None, complaint: str) -> None:
    (tmp_path / "pyproject.toml").touch()
    interpreter = tmp_path / "python"
    if python is not None:
        interpreter.write_text(python)
        interpreter.chmod(0o755)
    done = _make("run", f"PYTHON={interpreter}", directory=tmp_path)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines() == [
        "#!/usr/bin/env bash",
        "set -euo pipefail",
        'cd "$(dirname "$0")/.."',
        "exec make test",
    ]
