"""A story in ten seconds: what becomes of every message when some fail, some expire, and the broker is killed."""
