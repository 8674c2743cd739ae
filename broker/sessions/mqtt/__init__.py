"""MQTT 3.1, 3.1.1 and 5: connections, and the sessions of clients that outlive them."""
