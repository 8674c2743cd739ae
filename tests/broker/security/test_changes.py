"""What is taken away from a user while a client logs in, or is in."""

from __future__ import annotations

from broker.security.login import Policy
from tests.broker.security.verbs import NAME, PASSWORD, QUEUE, prepared
from tests.support.amqp_client import AmqpSim
from tests.support.sim_gate import cheap_user


class LosesItsRoles(AmqpSim):
    """A client whose user loses all roles between the outcome of SASL and OPEN."""

    said = 0

    def say(self) -> None:
        """See AmqpSim."""
        super().say()
        self.said += 1
        if self.said == 2:
            self.broker.parts.tick.enter()
            self.broker.gate.change(Policy({NAME: cheap_user(PASSWORD)}))
            self.broker.engine.secure(None)
            self.broker.run()


def test_the_roles_of_a_client_are_those_of_its_open_not_of_its_login() -> None:
    broker = prepared()
    client = LosesItsRoles(broker, login=(NAME, PASSWORD))
    assert client.sasl_code == 0
    link = client.receiver(f"queue://{QUEUE}", credit=0)
    assert client.refused(link).condition == "amqp:unauthorized-access"
