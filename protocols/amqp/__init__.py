"""AMQP 1.0, both roles: the server's, and the client's as far as tests and tools need it."""
