"""The measurement of connections: it opens them, with TLS or without, and ends."""

from __future__ import annotations

import pytest

from bench import connections


@pytest.mark.parametrize("tls", [False, True])
def test_it_says_what_connections_cost(
    tls: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WARM_UP", 10)
    monkeypatch.setattr(connections, "PROBED_S", 0.2)
    monkeypatch.setattr(connections, "SETTLED_S", 0.0)
    assert connections.main(["--connections", "120", *(["--tls"] if tls else [])]) == 0
    said = capsys.readouterr().out
    probes = [] if tls else ["another client, all idle", "another client, all busy"]
    assert [line.partition("  ")[0] for line in said.splitlines()] == [
        "connected",
        "memory of an idle one",
        *probes,
        "closed",
    ]
