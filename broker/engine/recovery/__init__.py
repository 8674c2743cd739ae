"""Restoring the engine from the journal, cleaning of segments, jumps of the clock."""
