"""docs/monitoring.md tells of traces what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from broker.config import load
from broker.telemetry.export import CLOSE_SECONDS_MAX
from broker.telemetry.pending import TEXT_CHARS_MAX
from broker.telemetry.tracer import HEAD_BYTES_MAX

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "monitoring.md").read_text("utf-8").partition("\n## Traces\n")[2]
SOURCES: Final = "".join(path.read_text("utf-8") for path in sorted((ROOT / "broker" / "telemetry").glob("*.py")))


def test_the_broker_accepts_what_the_container_is_told() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    services = yaml.safe_load(text)["services"]
    assert load(None, services["broker"]["environment"]).telemetry.endpoint == "http://jaeger:4318/v1/traces"
    assert "broker" in yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]


def test_all_attributes_are_listed() -> None:
    told = set(re.findall(r"^\| `([a-z_]+(?:\.[a-z_]+)+)` \|", PAGE, re.MULTILINE))
    made = set(re.findall(r'"((?:messaging|network|error)\.[a-z_.]+)"', SOURCES))
    assert told == made


def test_all_operations_are_listed() -> None:
    told = set(re.findall(r"^\| `([a-z-]+)` \| (?:SERVER|INTERNAL) \|", PAGE, re.MULTILINE))
    assert told == set(re.findall(r'self\._notes\("([a-z-]+)"', SOURCES))


def test_limits_are_those_of_the_code() -> None:
    assert HEAD_BYTES_MAX == 4 << 10
    assert "at most 4 KiB" in PAGE
    assert f"{TEXT_CHARS_MAX:,} characters" in PAGE
    assert CLOSE_SECONDS_MAX == 2
    assert "two seconds longer at most" in PAGE
