"""Stored sessions of clients that come back, and how the journal has them."""
