"""The open loop: what it counts, and what it does not let pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.generator import Target
from bench.latency import DISK_BYTES, Percentiles, probe_disk, run
from bench.link import BrokerFailed
from tests.bench.fake_broker import FakeBroker
from tests.bench.mqtt_toy import toy

RATE = 2_000


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.latency.DISK_WRITES", 5)
    monkeypatch.setattr("bench.latency.SETTLING_S", 0.05)


def test_percentiles() -> None:
    assert Percentiles.of(n / 1000 for n in range(1000)) == Percentiles(1000, 500.0, 990.0, 999.0)
    assert Percentiles.of([0.25]) == Percentiles(1, 250.0, 250.0, 250.0)


def test_stomp(tmp_path: Path) -> None:
    with FakeBroker() as fake:
        found = run(Target("127.0.0.1", fake.port), "stomp", RATE, 0.1, tmp_path)
    assert (found.latency.count, found.late.count, found.disk.count) == (200, 200, 5)
    assert found.latency.p50 > found.late.p50, "how late a message was sent is part of its latency"
    assert len(fake.acks) == 300
    assert found.cpu_us is None
    assert list(tmp_path.iterdir()) == []


def test_mqtt(tmp_path: Path) -> None:
    with toy() as target:
        found = run(target, "mqtt", RATE, 0.1, tmp_path)
    assert found.latency.count == 200


def test_a_pause_delays_all_messages_of_that_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker keeps everything for so long: it is no single wait, but as many as were due meanwhile."""
    monkeypatch.setattr("bench.latency.SETTLING_S", 0.0)
    kept: list[bytes] = []

    def pause(frames: list[bytes]) -> list[bytes]:
        kept.extend(frames)
        due, kept[:] = (kept.copy(), []) if len(seen) + len(kept) >= 200 else ([], kept.copy())
        seen.extend(due)
        return due

    seen: list[bytes] = []
    with FakeBroker(pause) as fake:
        found = run(Target("127.0.0.1", fake.port), "stomp", RATE, 0.2, tmp_path)
    assert found.latency.p99 >= 90, "200 messages at 2,000/s are due in 100 ms"
    assert found.latency.count == 400


def test_what_is_out_of_order_fails_the_run(tmp_path: Path) -> None:
    with FakeBroker(lambda frames: frames[::-1]) as fake, pytest.raises(BrokerFailed, match="is due"):
        run(Target("127.0.0.1", fake.port), "stomp", 100_000, 0.1, tmp_path)


def test_what_is_lost_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.latency.STALL_S", 5.0)  # a busy machine may be late
    with toy(lose=100) as target, pytest.raises(BrokerFailed, match="300 sent, 100 received"):
        run(target, "mqtt", RATE, 0.1, tmp_path)


def test_the_disk_is_timed_and_left_as_it_was(tmp_path: Path) -> None:
    found = probe_disk(tmp_path, 3)
    assert found.count == 3
    assert found.p50 > 0
    assert DISK_BYTES == 2048
    assert list(tmp_path.iterdir()) == []
