"""What was said of dead letters, without what differs from one time to the next."""

from __future__ import annotations

import pytest

from broker.engine.moves.words import common_words

ID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (f"no customer {ID}", "no customer *"),
        (f"no customer {ID.upper()}", "no customer *"),
        (f"lost ID:{ID}:1:17", "lost ID:*"),
        (f"order_{ID}.json", "order_*.json"),
        ("container 4bf92f3577b3 is full", "container * is full"),
        ("trace 4BF92F3577B34DA6A3CE929D0E0E4736", "trace *"),
        ("fault at 0x7f3a", "fault at *"),
        ("cannot lock Order@1b2c3d", "cannot lock Order@*"),
        ("no route to 192.0.2.17", "no route to *"),
        ("no route to 192.0.2.17:5432, 192.0.2.18:5432", "no route to *, *"),
        ("no route to [2001:db8::17]:5432", "no route to *"),
        ("no route to 2001:db8::17 or fe80::1%eth0", "no route to * or *"),
        ("no route to 2001:db8:0:1:2:3:4:5", "no route to *"),
        ("no route to ::1", "no route to *"),
        ("db-1:54321 refused port 5432", "db-1:* refused port *"),
    ],
)
def test_identifiers_and_addresses_make_no_difference(said: str, words: str) -> None:
    assert common_words(said, "", "") == words


@pytest.mark.parametrize(
    "said",
    [
        "",
        "rejected by a consumer: total is negative",
        "HTTP 404: gone, error 12345",
        "order 17 is wrong",
        "at 12:30:45, line 17:4",
        "std::bad_alloc in decade::facade",
        "effaced deadbeef facade",
        "version 3.12.1",
        "Order2026Shipping failed",
        "é" * 1024,
        ":" * 1024,
    ],
)
def test_other_words_and_numbers_stay(said: str) -> None:
    assert common_words(said, "", "") == said


@pytest.mark.parametrize(
    ("said", "client", "remote", "words"),
    [
        ("rejected by w-1 at 192.0.2.1:4711: no", "w-1", "192.0.2.1:4711", "rejected by a consumer: no"),
        ("rejected by w-1: no", "w-1", "", "rejected by a consumer: no"),
        ("rejected by alice at 192.0.2.1:4711: no", "", "192.0.2.1:4711", "rejected by alice: no"),
        ("rejected by a consumer at 192.0.2.1:4711: no", "", "192.0.2.1:4711", "rejected by a consumer: no"),
        ("cannot be sent to w-1: w-1 takes no w-17", "w-1", "", "cannot be sent to a consumer: * takes no w-17"),
        ("rejected by e: ended", "e", "", "rejected by a consumer: ended"),
        ("delivered 10 times without success, last by w-1 at [::1]:7: no", "w-1", "[::1]:7",
         "delivered 10 times without success, last by a consumer: no"),
    ],
)  # fmt: skip
def test_which_consumer_it_was_makes_no_difference(said: str, client: str, remote: str, words: str) -> None:
    assert common_words(said, client, remote) == words
