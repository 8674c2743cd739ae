"""The only sockets: listeners, connections, back-pressure, timers."""
