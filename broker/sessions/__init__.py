"""Sessions: one a protocol.  They translate codec events into engine verbs and deliveries into frames."""
