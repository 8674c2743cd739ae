"""Queues, addresses and consumers: what they hold, and how messages enter and leave."""
