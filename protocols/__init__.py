"""The protocol codecs: bytes to events and back.  No sockets, no clock, no broker."""
