"""Finds, creates and changes addresses and queues, and decides which queues a message may enter."""
