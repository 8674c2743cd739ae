"""What a broker answers to the first message of a SCRAM login."""

from __future__ import annotations

import socket

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import SaslChallenge, SaslInit, SaslMechanisms


def salt_and_iterations(port: int, user: str, mechanism: str = "SCRAM-SHA-256") -> tuple[str, int]:
    """The salt and the iterations that a broker names for a user, over AMQP."""
    codec = AmqpConnection(Limits(), container_id="stranger", server=False, mechanisms=(mechanism,))
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        while True:
            peer.sendall(codec.data_to_send())
            data = peer.recv(4_096)
            assert data, "the broker has hung up"
            codec.receive_data(data)
            for event in codec.events():
                if isinstance(event, SaslMechanisms):
                    codec.send_sasl(SaslInit(mechanism, f"n,,n={user},r=nonce".encode()))
                elif isinstance(event, SaslChallenge):
                    fields = dict(each.split("=", 1) for each in event.challenge.decode().split(","))
                    return fields["s"], int(fields["i"])
