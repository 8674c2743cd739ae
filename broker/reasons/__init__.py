"""Every word and number by which Bartleby reports something: what it means, and what to do.

`table.reasons()` has them all; `bartleby explain`, docs/reasons.md and the management API show them.  Meanings that are
written beside the code (log events, the engine's errors) are taken from there; the other modules hold the rest, one for
each place where a word is seen.
"""
