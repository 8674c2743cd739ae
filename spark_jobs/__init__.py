"""Batch audits over a broker's journal: who died and why, what expired unread, and whether the books balance."""
