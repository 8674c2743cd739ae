"""A short story: what becomes of every message when some fail, some expire, and the broker is killed; and its audit."""
