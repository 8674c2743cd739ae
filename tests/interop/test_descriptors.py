"""A limit of open files that strangers use up: the journal, the health probes and those who log in have theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.descriptors import LARGE, PAGED, limited, outlive

#: Handshakes that strangers begin: more than either limit permits.
STRANGERS = 1_100


@pytest.mark.parametrize("limit", [128, 1_024])
def test_handshakes_that_are_never_finished_stop_nothing(tmp_path: Path, limit: int) -> None:
    """`make strangers` does the same with as many descriptors as the machine permits."""
    with limited(tmp_path, limit) as broker:
        assert broker.log.count("descriptors.few") == 1
        outlive(broker, STRANGERS)
        assert len(broker.bodies) == LARGE
        broker.restart()
        assert (broker.queue("rolling")["messages"], broker.queue("paging")["messages"]) == (LARGE + 1, PAGED)
