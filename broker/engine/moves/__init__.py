"""Moves messages from one address to another: dead letters, expiry, retries, moves by operators."""
