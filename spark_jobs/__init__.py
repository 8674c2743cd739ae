"""Batch audits of a broker's journal: which messages died and why, which expired unread, whether the books balance."""
