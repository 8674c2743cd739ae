"""MQTT 3.1, 3.1.1 and 5.0: packets to bytes and back, for either side of a connection."""
