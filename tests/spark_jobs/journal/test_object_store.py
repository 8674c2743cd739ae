"""A journal in an object store: S3, as moto's server on loopback speaks it, and pyarrow opens it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from moto.server import ThreadedMotoServer

from spark_jobs.journal import files
from spark_jobs.journal.files import Found
from spark_jobs.journal.segments import Vanished, read_segment
from spark_jobs.journal.snapshot import NoJournal, Snapshot, take
from store.manifest import MANIFEST
from store.retention import DIRECTORY
from tests.spark_jobs.journal.disks import kept, live, path_of, pinned, truth, write

BUCKET: Final = "archive"
REGION: Final = "eu-west-1"


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A client of an empty bucket; the environment is that of a process that may read it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        client = boto3.client("s3", region_name=REGION)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield client
        client.close()
    server.stop()


@pytest.fixture(scope="module")
def data(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory, of which the bucket has a copy under `prod 1/bartleby`."""
    directory = write(tmp_path_factory.mktemp("s3") / "data").data
    upload(store, directory)
    return directory


def upload(store: Any, data: Path) -> None:
    for path in data.rglob("*"):
        if path.is_file():
            store.put_object(Bucket=BUCKET, Key=key(data, path), Body=path.read_bytes())


def key(data: Path, path: Path) -> str:
    return f"prod 1/bartleby/{path.relative_to(data)}"


PLACE: Final = f"s3://{BUCKET}/prod%201/bartleby"


def remote(snapshot: Snapshot, data: Path, place: str) -> Snapshot:
    """A snapshot of the directory as it must be of the store."""
    segments = (replace(ref, uri=ref.uri.replace(str(data), PLACE) + place) for ref in snapshot.segments)
    gaps = (replace(gap, uri=gap.uri.replace(str(data), PLACE) + place) for gap in snapshot.missing)
    return replace(snapshot, segments=tuple(segments), missing=tuple(gaps), journals=(PLACE + place,))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize("settings", ["", f"?region={REGION}"])
def test_it_is_the_same_journal(data: Path, scheme: str, settings: str) -> None:
    local = pinned(data)
    snapshot = take([PLACE.replace("s3:", f"{scheme}:") + settings])
    assert snapshot == remote(local, data, settings)
    assert [read_segment(ref) for ref in snapshot.segments] == [read_segment(ref) for ref in local.segments]
    assert Snapshot.from_json(snapshot.to_json()) == snapshot


def test_settings_in_the_uri_are_enough(data: Path, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, _, host = store.meta.endpoint_url.partition("://")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    settings = f"?scheme={scheme}&endpoint_override={host}&region={REGION}"
    assert take([PLACE + settings]) == remote(pinned(data), data, settings)


def test_parts_of_it(data: Path) -> None:
    (day,) = (path.name for path in (data / "journal" / DIRECTORY).iterdir())
    for place in (f"{PLACE}/journal/{DIRECTORY}", f"{PLACE}/journal/{DIRECTORY}/{day}/"):
        assert [ref.number for ref in take([place]).segments] == kept(data)
    assert [ref.number for ref in take([f"{PLACE}/journal"]).segments] == [*truth(data)]


def test_a_directory_of_the_store(data: Path) -> None:
    (day,) = (path for path in (data / "journal" / DIRECTORY).iterdir())
    place = files.location(f"{PLACE}/journal/{DIRECTORY}/{day.name}")
    assert files.list_dir(place) == [Found(p.name, p.stat().st_size, False) for p in sorted(day.iterdir())]
    assert files.list_dir(files.parent_of(place)) == [Found(day.name, 0, True)]
    assert files.read(files.join(place, MANIFEST)) == (day / MANIFEST).read_bytes()
    assert files.read(files.join(place, MANIFEST), 10) == (day / MANIFEST).read_bytes()[:10]


@pytest.mark.parametrize("place", [f"s3://{BUCKET}/nothing", f"s3://{BUCKET}/prod%201/bartleby/journal/nothing"])
def test_absent_objects(data: Path, place: str) -> None:
    with pytest.raises(NoJournal, match="no such directory"):
        take([place])
    with pytest.raises(FileNotFoundError):
        files.read(place)


def test_a_bucket_that_is_not_there(data: Path) -> None:
    with pytest.raises(OSError, match="no-such-bucket"):
        take([f"s3://no-such-bucket/journal?region={REGION}"])


def test_an_object_that_moves_and_one_that_vanishes(data: Path, store: Any) -> None:
    """As on a disk; the store is put right again."""
    snapshot = take([PLACE])
    number = live(data)[0]
    (ref,) = [ref for ref in snapshot.segments if ref.number == number]
    path = path_of(data, number)
    day = path_of(data, kept(data)[0]).parent
    moved = key(data, day / path.name)
    try:
        store.put_object(Bucket=BUCKET, Key=moved, Body=path.read_bytes())
        store.delete_object(Bucket=BUCKET, Key=key(data, path))
        assert read_segment(ref) == path.read_bytes()
        assert [ref.kept for ref in take([PLACE]).segments if ref.number == number] == [True]
        store.delete_object(Bucket=BUCKET, Key=moved)
        with pytest.raises(Vanished, match=path.name):
            read_segment(ref)
        assert [gap.first_segment for gap in take([PLACE]).missing] == [number]
    finally:
        store.delete_object(Bucket=BUCKET, Key=moved)
        upload(store, data)
    assert take([PLACE]) == snapshot
