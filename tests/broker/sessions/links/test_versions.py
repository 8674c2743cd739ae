"""The negotiation of MQTT versions, against its table."""

from __future__ import annotations

import pytest

from broker.sessions.links.versions import VERSIONS_TRIED, Evidence, VersionNegotiation

REFUSED, CLOSED, ACCEPTED = "refused", "closed", "accepted"

#: Evidence after which events, and of each further event: the version tried next, and the evidence then.
TABLE = {
    Evidence.NONE: ([], {REFUSED: (1, Evidence.REFUSED), CLOSED: (1, Evidence.NONE), ACCEPTED: (0, Evidence.NONE)}),
    Evidence.RETRYING: (
        [CLOSED, CLOSED, ACCEPTED],
        {REFUSED: (1, Evidence.REFUSED), CLOSED: (2, Evidence.CLOSED), ACCEPTED: (0, Evidence.NONE)},
    ),
    Evidence.CLOSED: (
        [CLOSED, CLOSED, ACCEPTED, CLOSED],
        {REFUSED: (0, Evidence.REFUSED), CLOSED: (0, Evidence.CLOSED), ACCEPTED: (2, Evidence.CLOSED)},
    ),
    Evidence.REFUSED: (
        [REFUSED],
        {REFUSED: (2, Evidence.REFUSED), CLOSED: (2, Evidence.REFUSED), ACCEPTED: (1, Evidence.REFUSED)},
    ),
}


def negotiated(events: list[str]) -> VersionNegotiation:
    versions = VersionNegotiation()
    for event in events:
        getattr(versions, event)()
    return versions


@pytest.mark.parametrize("event", [REFUSED, CLOSED, ACCEPTED])
@pytest.mark.parametrize("evidence", Evidence)
def test_each_answer_at_each_evidence(evidence: Evidence, event: str) -> None:
    before, after = TABLE[evidence]
    assert negotiated(before)._evidence is evidence
    versions = negotiated([*before, event])
    assert (VERSIONS_TRIED.index(versions.attempt), versions._evidence) == after[event]


@pytest.mark.parametrize("evidence", Evidence)
def test_a_connection_that_ends_begins_with_the_newest_version_unless_it_was_refused(evidence: Evidence) -> None:
    versions = negotiated(TABLE[evidence][0])
    versions.disconnected()
    assert VERSIONS_TRIED.index(versions.attempt) == (1 if evidence is Evidence.REFUSED else 0)


def test_an_earlier_version_is_kept_only_once_mqtt_5_was_closed_twice() -> None:
    versions = negotiated([CLOSED])
    assert not versions.accepted()
    versions.closed()
    assert versions.accepted()
