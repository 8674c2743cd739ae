"""MQTT 3.1, 3.1.1 and 5.0: bytes and packets, for either side of a connection."""
