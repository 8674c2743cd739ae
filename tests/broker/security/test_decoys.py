"""SCRAM keys of users that do not exist: as stable as those of users, and with as many iterations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from broker.security import decoys
from broker.security.decoys import Decoys, make_secret, stored_secret
from broker.security.login_policy import Policy
from broker.security.passwords import SCRAM_ITERATIONS, scram_keys
from broker.security.users_file import StoredUser, UnusableFile
from broker.sessions.sasl import SCRAMS

SECRET = b"s" * 32
NAMES = [f"nobody{number}" for number in range(1_000)]


def users(**iterations: int) -> dict[str, StoredUser]:
    return {
        name: StoredUser(scram={each: scram_keys(each, "secret", b"salt" * 4, count) for each in SCRAMS})
        for name, count in iterations.items()
    }


def decoy_iterations(mechanism: str, **iterations: int) -> dict[str, int]:
    made = Decoys(Policy(users(**iterations), secret=SECRET))
    return {name: made.keys(mechanism, name)[3] for name in NAMES}


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_without_users_a_decoy_has_the_iterations_of_a_new_user(mechanism: str) -> None:
    assert Decoys(Policy({}, secret=SECRET)).keys(mechanism, "bob")[3] == SCRAM_ITERATIONS[mechanism]


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_decoys_have_each_number_of_iterations_as_often_as_users(mechanism: str) -> None:
    found = Counter(decoy_iterations(mechanism, a=4_096, b=4_096, c=4_096, d=5_000).values())
    assert set(found) == {4_096, 5_000}
    assert 650 < found[4_096] < 850


def test_an_upgrade_never_lowers_the_iterations_of_a_decoy() -> None:
    before = decoy_iterations("SCRAM-SHA-256", a=4_096, b=4_096, c=5_000)
    after = decoy_iterations("SCRAM-SHA-256", a=4_096, b=5_000, c=5_000)
    assert before != after
    assert all(before[name] <= after[name] for name in NAMES)


def test_a_decoy_gets_another_salt_with_its_upgrade_as_a_user_does() -> None:
    before, after = (Decoys(Policy(users(a=count), secret=SECRET)) for count in (4_096, 5_000))
    assert before.keys("SCRAM-SHA-256", "x")[0] != after.keys("SCRAM-SHA-256", "x")[0]


def test_the_secret_survives_and_is_private(tmp_path: Path) -> None:
    found = stored_secret(tmp_path / "etc", tmp_path / "data")
    assert stored_secret(tmp_path / "etc", tmp_path / "data") == found
    assert (tmp_path / "etc" / decoys.NAME).stat().st_mode & 0o777 == 0o600


def test_the_secret_beside_the_users_file_comes_first(tmp_path: Path) -> None:
    later, first = make_secret(tmp_path / "data"), make_secret(tmp_path / "etc")
    assert later != first
    assert stored_secret(tmp_path / "etc", tmp_path / "data") == first


def test_the_data_directory_has_the_secret_if_the_other_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = stored_secret(tmp_path / "file" / "etc", tmp_path / "data")
    assert make_secret(tmp_path / "data") == found


def test_without_a_place_to_write_the_broker_starts_nevertheless(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert len(stored_secret(tmp_path / "file" / "etc", tmp_path / "file" / "data")) == 32


@pytest.mark.parametrize("content", [b"", b"zz", b"00" * 31, b"\xff" * 64])
def test_a_damaged_secret_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / decoys.NAME
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UnusableFile, match="64 hexadecimal digits"):
        stored_secret(tmp_path)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_secret(tmp_path)
    (tmp_path / decoys.NAME).chmod(0o644)
    with pytest.raises(UnusableFile, match="chmod 600"):
        stored_secret(tmp_path)
