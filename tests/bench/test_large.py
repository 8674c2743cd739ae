"""The benchmark of large messages is a test too: a body larger than all limits of memory, in and out, unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.large import main

ROOT = Path(__file__).parents[2]

#: Bytes of the body, and of the broker's memory at its highest: it needs 60 to 75 MiB without any message.
BODY_BYTES = 160 << 20
PEAK_MIB = 150


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_in_and_out(protocol: str, tmp_path: Path) -> None:
    arguments = ["--bytes", str(BODY_BYTES), "--protocol", protocol]
    result = CliRunner().invoke(
        main, [*arguments, "--work-dir", str(tmp_path), "--config", str(ROOT / "etc" / "broker.toml")]
    )
    assert result.exit_code == 0, (result.output, result.exception)
    found = re.search(r"peak memory of the broker (\d+) MiB, files left 0", result.output)
    assert found is not None, result.output
    assert int(found[1]) < PEAK_MIB
