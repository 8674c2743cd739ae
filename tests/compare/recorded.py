"""What the brokers answered: asked, kept, compared.  A key is `scenario protocol: name`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.compare.clients import PEERS
from tests.compare.scenarios import SCENARIOS

RECORDED: Final = Path(__file__).with_name("recorded.json")
DIFFERENCES: Final = Path(__file__).parents[2] / "docs" / "artemis-differences.md"

Answers = dict[str, Any]


def observe(
    ports: Mapping[str, int], quiet_s: float, only: Collection[str] = (), protocols: Collection[str] = tuple(PEERS)
) -> Answers:
    """Run scenarios against a broker; what was seen, by key."""
    seen: Answers = {}
    for name, run in SCENARIOS.items():
        if only and name not in only:
            continue
        for protocol in protocols:
            peer = PEERS[protocol](ports[protocol], quiet_s)
            try:
                answers = run(peer)
            except Exception as error:  # what a broker answers may be anything: it is an observation
                answers = {"failed": f"{type(error).__name__}: {error}".split("\n")[0]}
            finally:
                peer.close()
            seen |= {f"{name} {protocol}: {what}": value for what, value in answers.items()}
    return seen


def differences(one: Answers, other: Answers) -> Iterator[tuple[str, Any, Any]]:
    """Where two differ, of what both were asked or failed to answer."""
    scenarios = {key.partition(":")[0] for key in one} & {key.partition(":")[0] for key in other}
    for key in sorted(one.keys() | other.keys()):
        if key.partition(":")[0] in scenarios and one.get(key) != other.get(key):
            yield key, one.get(key), other.get(key)


def load() -> dict[str, Any]:
    """The recorded answers: `version`, `artemis`, `bartleby`."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


def save(version: str, *, artemis: Answers, bartleby: Answers) -> None:
    """Record them."""
    text = json.dumps({"version": version, "artemis": artemis, "bartleby": bartleby}, indent=1, sort_keys=True)
    RECORDED.write_text(text + "\n")
