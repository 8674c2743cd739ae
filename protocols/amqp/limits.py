"""Limits on what a peer may send, checked before the contents are looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Each limit is inclusive: that much is allowed, one more is an error."""

    #: Bytes of one frame, announced as max-frame-size.  Artemis's figure; most messages fit, and messages of several
    #: frames leave gaps for others on the connection.
    frame_bytes_max: int = 128 << 10
    #: Bytes of a SASL frame, of OPEN, and of anything received before a login is answered: the most that is buffered
    #: for a peer that has not logged in.  The specification says 512, but tokens and some clients' OPEN are longer.
    handshake_bytes_max: int = 8 << 10
    #: Challenges and responses of one SASL exchange.  SCRAM needs two.
    sasl_rounds_max: int = 8
    #: Highest channel number, announced as channel-max: one less than the number of sessions of one connection.
    #: Connection pools of JMS clients open some hundreds.
    channel_max: int = 1023
    #: Highest handle, announced as handle-max: one less than the number of links of one session.
    handle_max: int = 1023
    #: Links of one connection over all its sessions.  Each holds some kilobytes.
    links_max: int = 2048
    #: Bytes of their ATTACH frames together: some of what these say is held as long as the link.  Most have some
    #: hundred bytes, so it is enough for all links even if each has a long filter.
    attach_bytes_max: int = 8 << 20
    #: Bytes of a TRANSFER before its payload.  The state in it is held until the message is whole, on each link; that
    #: of a sender is the id of a transaction, or the outcome of a delivery that it resumes.
    transfer_head_bytes_max: int = 8 << 10
    #: TRANSFER frames that a peer may send on one session before we extend its window: enough for the frames of two
    #: hundred of the largest messages, so that credit is the effective limit, not this.
    incoming_window: int = 16384
    #: Bytes of one message with all its sections.  It must fit into one journal entry; larger ones belong in a file
    #: store.
    message_bytes_max: int = 10 << 20
    #: Bytes of a message in several frames above which a link that `streams` reports it in portions, as they arrive.
    #: The sections before the body must fit.
    whole_bytes_max: int = 100 << 10
    #: Bytes of one such message.
    streamed_bytes_max: int = 8 << 30
    #: Bytes of the incomplete messages of one connection, over all its links.
    partial_bytes_max: int = 32 << 20
    #: Deliveries of one session that were received and not yet settled.  Credit keeps it far below.
    unsettled_max: int = 1 << 16
    #: Nesting of lists, maps, arrays and described types in one value.  Real messages have three or four levels.
    depth_max: int = 32
    #: Values in a section of a message before the body, or in all sections of the body and its footer: their values and
    #: all values in these.  A map of 4,000 entries fits.  Each may take one byte on the wire, and up to 4 us to decode
    #: and write for a receiver of another protocol, in which all other connections wait.
    values_max: int = 1 << 13
    #: Sections of a body, within its first bytes that a receiver of another protocol may get converted.  Most messages
    #: have one, and those that are sent as a stream one for each frame.
    sections_max: int = 1 << 10
    #: The same in a frame body: fields, and the values of maps in them.  They are held as long as the link or session;
    #: the largest are the unsettled deliveries of an ATTACH, two to four values each.
    performative_values_max: int = 1 << 13
