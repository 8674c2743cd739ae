"""Limits on the size of a peer's packets, and on the memory that they may occupy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The least `packet_bytes_max`, so that a packet with a length of one byte is never too large.
PACKET_BYTES_MIN: Final = 256

#: The least `whole_bytes_max`, so that the payload of such a packet is never split into parts.
WHOLE_BYTES_MIN: Final = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """Each limit is inclusive: that much is allowed, one more is an error.

    In 5.0 the codec announces those that the peer must respect: Maximum Packet Size and Topic Alias Maximum.
    Raises ValueError if `packet_bytes_max` is below `PACKET_BYTES_MIN`, or `whole_bytes_max` below `WHOLE_BYTES_MIN`.
    """

    #: Bytes of a packet with its header: a message of 10 MiB with its topic and properties.  It must fit into one
    #: journal entry; larger ones belong in a file store.
    packet_bytes_max: int = (10 << 20) + (64 << 10)
    #: Bytes of a payload that is buffered whole; a larger one is passed on in parts, as its bytes arrive.  By default
    #: there is no larger one: a session that accepts parts sets it.
    whole_bytes_max: int = 1 << 28
    #: Bytes of a packet before login: the most that is buffered for an unknown client.  The largest passwords, which
    #: are tokens, fit several times.
    connect_bytes_max: int = 8 << 10
    #: Bytes of a client identifier.  It becomes a part of queue names; the cloud brokers allow 128 characters.
    client_id_bytes_max: int = 256
    #: Bytes of a topic name or topic filter.  It becomes an address, whose name has the same limit.
    topic_bytes_max: int = 1024
    #: Levels of a topic name or topic filter, a bound on the work of matching.  Names in use have fewer than 20.
    topic_levels_max: int = 128
    #: Topic filters of one SUBSCRIBE or UNSUBSCRIBE.  Clients that restore their subscriptions send hundreds.
    filters_max: int = 1024
    #: Bytes of one block of properties.  Traces and signatures take some hundreds.
    properties_bytes_max: int = 64 << 10
    #: User properties of one packet: each costs an object when the packet is read.
    user_properties_max: int = 256
    #: Topic aliases that a peer may define: each keeps a topic in memory as long as the connection lasts.
    topic_alias_max: int = 256
    #: Whether text may have control characters and non-characters, which 5.0 lets a receiver refuse (1.5.4, 5.4.9).
    #: Harmless devices send them in user names and topics.
    control_characters: bool = True

    def __post_init__(self) -> None:
        if self.packet_bytes_max < PACKET_BYTES_MIN:
            raise ValueError(f"packet_bytes_max is at least {PACKET_BYTES_MIN}, not {self.packet_bytes_max}")
        if self.whole_bytes_max < WHOLE_BYTES_MIN:
            raise ValueError(f"whole_bytes_max is at least {WHOLE_BYTES_MIN}, not {self.whole_bytes_max}")
