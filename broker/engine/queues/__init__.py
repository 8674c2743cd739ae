"""Queues, addresses and consumers: their state, and how messages enter and leave."""
