"""A STOMP load generator and a runner that measure a broker from outside: `python -m bench --help`."""
