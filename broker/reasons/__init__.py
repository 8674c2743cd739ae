"""Everything that Bartleby says in a word or a number: what it means, and what to do.

`table.reasons()` is all of it; `bartleby explain`, docs/reasons.md and the management API show it.  Where a meaning
stands next to the code (log events, the engine's errors), it is taken from there; the other modules hold the rest, one
for each place where a word is seen.
"""
