"""What root does for a broker of another user, that broker can read afterwards."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.broker.cli.harness import invoke

SOMEBODY = 12345

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root works for others")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of somebody else's."""
    directory = tmp_path / "data"
    directory.mkdir()
    os.chown(directory, SOMEBODY, SOMEBODY)
    return directory


def owners(directory: Path) -> set[int]:
    return {path.lstat().st_uid for path in directory.rglob("*")}


def test_a_directory_of_somebody_else_is_denied_and_not_a_slip() -> None:
    """That is status 4, with what to do, not 2.  Imported before: what root has installed he may be unable to read."""
    with TemporaryDirectory() as directory:  # not below pytest's own, which he cannot even see
        invoke("status", "--data", directory)
        os.setresuid(SOMEBODY, SOMEBODY, 0)
        try:
            denied = invoke("status", "--data", directory)
        finally:
            os.setresuid(0, 0, 0)
    assert denied.exit_code == 4, denied.output
    assert "run this as the broker's user, or log in with --user and --url" in denied.stderr


def test_users(data: Path) -> None:
    for name in ("alice", "bob"):
        added = invoke("user", "add", name, "--role", "amq", "--no-scram", "--data", str(data), input="secret12345\n")
        assert added.exit_code == 0, added.output
        assert owners(data) == {SOMEBODY}


def test_a_users_file_elsewhere_stays_whose_it_is(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    added = invoke("user", "add", "alice", "--role", "amq", "--no-scram", "--file", str(file), input="secret12345\n")
    assert added.exit_code == 0, added.output
    assert file.stat().st_uid == 0


def test_an_import_and_a_repair(data: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(
        '{"kind":"journal","version":1}\n{"kind":"address","name":"a","routing-types":["ANYCAST"],"auto-created":false}\n'
    )
    taken = invoke("journal", "import", str(lines), "--data", str(data))
    assert taken.exit_code == 0, taken.output
    assert owners(data) == {SOMEBODY}
    segment = data / "journal" / "0000000001.journal"
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)
    repaired = invoke("journal", "repair", str(data), "--backup", str(tmp_path / "before"), "--yes")
    assert repaired.exit_code == 0, repaired.output
    assert owners(data) == {SOMEBODY}
