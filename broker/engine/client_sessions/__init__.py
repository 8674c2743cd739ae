"""Stored sessions of clients, and their form in the journal."""
