"""Locations: what is one, what is in it; on the local disk and in a file system of fsspec.  S3: test_object_store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from spark_jobs.journal import files
from spark_jobs.journal.files import BadLocation, Found


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/var/lib/bartleby", "/var/lib/bartleby"),
        ("/var/lib/bartleby/", "/var/lib/bartleby"),
        ("/var/lib/../lib/bartleby", "/var/lib/bartleby"),
        ("file:///var/lib/bartleby/", "/var/lib/bartleby"),
        ("file:/var/lib/bartleby", "/var/lib/bartleby"),
        ("file://localhost/var/lib", "/var/lib"),
        ("file:///a%2Cb%20c", "/a,b c"),
        ("/a%2Cb", "/a%2Cb"),
        ("s3://bucket/journal/", "s3://bucket/journal"),
        ("s3a://bucket/journal", "s3://bucket/journal"),
        ("s3n://bucket", "s3://bucket"),
        ("s3://bucket/j?region=eu-west-1", "s3://bucket/j?region=eu-west-1"),
        ("s3a://bucket/j/?region=eu-west-1", "s3://bucket/j?region=eu-west-1"),
        ("abfss://container@account.dfs.core.windows.net/j", "abfss://container@account.dfs.core.windows.net/j"),
        ("hdfs://name:8020/j", "hdfs://name:8020/j"),
        ("hdfs:///j/", "hdfs:///j"),
        ("memory:///a/j", "memory:///a/j"),
        ("S3A://Bucket//a//J/", "s3://Bucket/a/J"),
        ("s3://bucket/a%2Cb/c d?region=r", "s3://bucket/a%2Cb/c d?region=r"),
    ],
)
def test_a_path_or_uri_becomes_a_location(path: str, place: str) -> None:
    assert files.location(path) == place
    assert files.location(place) == place, "a location is one already"


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.location("var/journal") == str(tmp_path / "var" / "journal")
    assert files.location("a:b") == str(tmp_path / "a:b"), "a colon alone makes no URI"


@pytest.mark.parametrize(
    "path",
    [
        "s3://AKIA:hush@bucket/j",
        "s3a://AKIA:hush@bucket/j",
        "s3://bucket/j?secret_key=hush",
        "s3://bucket/j?region=r&Session_Token=hush",
        "abfss://:hush@account.dfs.core.windows.net/j",
    ],
)
def test_credentials_in_a_location_are_refused_and_not_repeated(path: str) -> None:
    with pytest.raises(BadLocation, match="environment") as refused:
        files.location(path)
    assert "hush" not in str(refused.value)


def test_a_place_that_is_no_uri_is_refused() -> None:
    with pytest.raises(BadLocation, match="this is not a valid URI"):
        files.location("http://[::1")


@pytest.mark.parametrize("path", ["file:journal", "file://host/journal"])
def test_a_file_uri_without_an_absolute_path_is_refused(path: str) -> None:
    with pytest.raises(BadLocation, match="absolute"):
        files.location(path)


def test_a_list_of_locations() -> None:
    assert files.locations("/a, file:///b%2Cc ,s3a://d/e,") == ["/a", "/b,c", "s3://d/e"]
    assert files.locations("") == []


@pytest.mark.parametrize("place", ["/data/journal", "s3://bucket/journal", "s3://bucket/journal?region=r"])
def test_names_in_a_location(place: str) -> None:
    inside = files.join(place, "date=2026-01-01")
    assert files.name_of(inside) == "date=2026-01-01"
    assert files.parent_of(inside) == place
    assert inside.endswith("?region=r") == place.endswith("?region=r")


# -- the local disk ----------------------------------------------------------------------------------------------------


def test_a_local_directory(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    assert files.list_dir(str(tmp_path)) == [Found("a", 0, True), Found("b", 5, False)]
    assert files.read(str(tmp_path / "b")) == b"12345"
    assert files.read(str(tmp_path / "b"), 3) == b"123"
    assert files.read(str(tmp_path / "b"), 9) == b"12345"


def test_absent_local_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        files.list_dir(str(tmp_path / "no"))
    with pytest.raises(NotADirectoryError):
        files.list_dir(str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):
        files.read(str(tmp_path / "no"))


def test_a_name_that_goes_while_it_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "there").touch()
    assert files.list_dir(str(tmp_path)) == [Found("there", 0, False)]


# -- other file systems ------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[str]:
    """A directory in fsspec's file system in memory, with a file in it."""
    disk = fsspec.filesystem("memory")
    disk.pipe("/store/a b/0000000001.journal", b"12345")
    disk.makedirs("/store/a b/retention")
    yield "memory://store/a%20b"
    disk.rm("/store", recursive=True)


def test_a_file_system_of_fsspec(memory: str) -> None:
    place = files.location(memory)
    assert files.list_dir(place) == [Found("0000000001.journal", 5, False), Found("retention", 0, True)]
    assert files.read(files.join(place, "0000000001.journal")) == b"12345"
    assert files.read(files.join(place, "0000000001.journal"), 2) == b"12"
    with pytest.raises(FileNotFoundError):
        files.read(files.join(place, "no"))
    with pytest.raises(FileNotFoundError):
        files.list_dir(files.join(place, "no"))


@pytest.mark.parametrize("place", ["nosuch://a/b", "hf://datasets/a", "abfss://container/j"])
def test_a_file_that_cannot_be_opened_here_is_reported(place: str) -> None:
    with pytest.raises(BadLocation, match=place.partition(":")[0]):
        files.list_dir(place)
