"""The audit log of a real broker: logins in a loop, and the last line of a clean stop."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.daemon import running
from tests.support.stomp_py import connected

LOGINS = 20


def test_a_clean_stop_loses_no_line(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with running(tmp_path, f'[security]\naudit-file = "{audit}"\n', users={"alice": "secret"}) as broker:
        for _ in range(LOGINS):
            with connected(broker.port, login=("alice", "secret")):
                pass
        broker.stop()
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
    logins = [line for line in lines if (line["code"], line.get("user")) == ("login.accepted", "alice")]
    assert [line.get("more") for line in logins] == [None, LOGINS - 1]
    assert [line["code"] for line in lines[-2:]] == ["stopped", "login.accepted"], "the numbers come last"
