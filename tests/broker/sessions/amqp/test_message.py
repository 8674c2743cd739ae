"""What the parts of an AMQP message become for the engine."""

from __future__ import annotations

from broker.sessions.amqp.message import plain_header, read_header


def test_the_numbers_of_a_header_are_plain_ones() -> None:
    """Selectors compare plain integers: a priority that stayed an AMQP type fitted no selector."""
    durable, priority, ttl = read_header(plain_header(True, 5, True))
    assert (durable, priority, ttl) == (True, 5, 0)
    assert (type(priority), type(ttl)) == (int, int)
