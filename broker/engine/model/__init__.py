"""The types the rest of the engine builds on: messages, names, patterns, settings, permissions, errors."""

#: An exception of this package has changed nothing in the broker (`broker.sessions.tick`).
ONLY_READS = True
