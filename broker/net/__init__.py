"""All sockets of the broker: listeners, connections, back-pressure, timers."""
