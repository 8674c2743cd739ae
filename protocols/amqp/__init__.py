"""AMQP 1.0 in both roles: the server's, and the client's as far as links, tests and tools need it."""
