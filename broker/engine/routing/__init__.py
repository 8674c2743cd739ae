"""Finding, making and changing destinations, and which queues a message may enter."""
