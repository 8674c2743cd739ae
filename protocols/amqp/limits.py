"""How much a peer may send before anybody looks at what it means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Each is inclusive: as much as this is allowed, one more is an error."""

    #: Bytes of one frame, announced as max-frame-size.  Artemis's figure; most messages fit, and a multi-frame message
    #: lets others of its connection through every so often.
    frame_bytes_max: int = 128 << 10
    #: Bytes of a SASL frame, of OPEN, and of what follows a login that is not answered: all that is kept for a peer
    #: that has not logged in.  The specification says 512, but tokens and some clients' OPEN are longer.
    handshake_bytes_max: int = 8 << 10
    #: Challenges and responses of one SASL exchange.  SCRAM needs two.
    sasl_rounds_max: int = 8
    #: Highest channel number, announced as channel-max: one less than the sessions of one connection.  Connection pools
    #: of JMS clients open some hundreds.
    channel_max: int = 1023
    #: Highest handle, announced as handle-max: one less than the links of one session.
    handle_max: int = 1023
    #: Links of one connection over all its sessions.  Each keeps its ATTACH, some kilobytes.
    links_max: int = 2048
    #: TRANSFER frames that a peer may send on one session before it hears from us again: two thousand of the largest
    #: messages' worth of frames would fit, so that credit rules and not this.
    incoming_window: int = 16384
    #: Bytes of one message with all its sections.  Larger ones belong into a file store; one journal entry has to hold
    #: it.
    message_bytes_max: int = 10 << 20
    #: Bytes of a message in several frames above which a link that `streams` tells it in portions, as they come.  The
    #: sections before the body have to fit.
    whole_bytes_max: int = 100 << 10
    #: Bytes of one such message.
    streamed_bytes_max: int = 8 << 30
    #: Bytes of the messages of one connection that have not come whole, over all its links.
    partial_bytes_max: int = 32 << 20
    #: Deliveries of one session that were received and not yet settled.  Credit keeps it far below.
    unsettled_max: int = 1 << 16
    #: Nesting of lists, maps, arrays and described types in one value.  Real messages have three or four.
    depth_max: int = 32
    #: Values in a section of a message, itself and all that it holds.  Each costs some tens of bytes of memory, many
    #: times the one byte that it may cost on the wire.
    values_max: int = 1 << 16
    #: The same in a frame body: fields, and what the maps in them hold.  They are kept as long as the link or session;
    #: the largest are the unsettled deliveries of an ATTACH, two to four values each.
    performative_values_max: int = 1 << 13
