"""The files by which the command line finds the broker."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from broker.management.runtime import (
    RUNTIME_FILE,
    TOKEN_FILE,
    Listening,
    NotRunning,
    Runtime,
    create_token,
    read_runtime_file,
    read_token,
    remove_runtime_file,
    write_private,
    write_runtime_file,
)

STOMP = Listening("stomp", "stomp", "0.0.0.0", 61613)


def test_a_written_file_is_read(tmp_path: Path) -> None:
    http = Listening("http", "http", "127.0.0.1", 40001)
    write_runtime_file(tmp_path, pid=os.getpid(), started=17, listening=[STOMP, http])
    runtime = read_runtime_file(tmp_path)
    assert runtime == Runtime(os.getpid(), 17, (STOMP, http))
    assert runtime.alive
    assert runtime.management == ("http://127.0.0.1:40001", "")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("10.1.2.3", "http://10.1.2.3:1"),
    ],
)
def test_the_management_address_can_be_connected_to(host: str, url: str) -> None:
    assert Runtime(1, 0, (STOMP, Listening("web", "http", host, 1))).management == (url, "")


def test_an_acceptor_with_tls_is_the_second_choice() -> None:
    secure = Listening("far", "http", "0.0.0.0", 2, "/etc/tls.pem")
    assert Runtime(1, 0, (secure,)).management == ("https://127.0.0.1:2", "/etc/tls.pem")
    plain = Listening("near", "http", "127.0.0.1", 1)
    assert Runtime(1, 0, (secure, plain)).management == ("http://127.0.0.1:1", "")


def test_without_an_http_acceptor_there_is_no_management_address() -> None:
    assert Runtime(1, 0, (STOMP,)).management is None


@pytest.mark.parametrize("unnoticed_by_its_parent", [0, os.WNOWAIT])
def test_a_broker_that_died_is_noticed(tmp_path: Path, unnoticed_by_its_parent: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | unnoticed_by_its_parent)
    write_runtime_file(tmp_path, pid=child.pid, started=0, listening=[])
    assert not read_runtime_file(tmp_path).alive
    child.wait()


def test_no_file_means_no_broker(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="no broker runs on"):
        read_runtime_file(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "7", '{"pid": 1}', '{"pid": "x", "started": 1, "listening": []}'])
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / RUNTIME_FILE).write_text(content)
    with pytest.raises(NotRunning, match=RUNTIME_FILE):
        read_runtime_file(tmp_path)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        token = create_token(tmp_path)
        write_runtime_file(tmp_path, pid=1, started=0, listening=[])
    finally:
        os.umask(before)
    for name in (TOKEN_FILE, RUNTIME_FILE):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert read_token(tmp_path) == token
    assert sorted(path.name for path in tmp_path.iterdir()) == [RUNTIME_FILE, TOKEN_FILE]


def test_every_start_has_another_token(tmp_path: Path) -> None:
    first = create_token(tmp_path)
    second = create_token(tmp_path)
    assert first != second
    assert len(second) >= 43
    assert read_token(tmp_path) == second


def test_a_private_file_replaces_a_readable_one_and_what_a_crash_left(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_text("old")
    target.chmod(0o644)
    (tmp_path / "secret.new").write_text("half")
    (tmp_path / "secret.new").chmod(0o666)
    write_private(target, "new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_disk_without_room_keeps_the_file_and_is_named(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="secret") as failed:
            write_private(target, "x" * 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert failed.value.filename == str(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_takes_the_new_file_where_the_old_one_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "secret"
    target.write_text("an older and longer one")
    target.chmod(0o644)

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", refuse)
    write_private(target, "new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(OSError, match="No space left") as failed:
        write_private(tmp_path / "other", "new")
    assert failed.value.filename == str(tmp_path / "other")
    assert list(tmp_path.iterdir()) == [target]


def test_nothing_is_left_of_a_broker_that_stopped(tmp_path: Path) -> None:
    create_token(tmp_path)
    write_runtime_file(tmp_path, pid=1, started=0, listening=[])
    remove_runtime_file(tmp_path)
    assert list(tmp_path.iterdir()) == []
    remove_runtime_file(tmp_path)
