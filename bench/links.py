"""How fast a link passes messages on, beside a producer and a consumer at one broker.

    python -m bench.links [--rounds 3] [--duration 5] [--receive] [--artemis HOME]

Durable messages of 50 to 150 bytes to 16 queues, one producer and one consumer, in rounds that take turns:

    local    both at one broker
    link     the producer at one, the consumer at another, and a link with a route for each queue between them

With --receive also by a link of the consumer's broker, which fetches.
With --artemis the same between Artemis brokers, by a broker connection with a sender for each queue.  Every message is
counted and compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from bench import amqp_generator
from bench.amqp_messages import AmqpPool
from bench.brokers import Artemis, Bartleby, Measured
from bench.generator import Load, Outcome
from bench.messages import FrameTemplate

#: Queues, each with a route.
QUEUES: Final = 16

_ARTEMIS_XML: Final = """\
<?xml version="1.0"?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<name>bench</name><persistence-enabled>true</persistence-enabled><max-disk-usage>-1</max-disk-usage>
<critical-analyzer>false</critical-analyzer>
<acceptors><acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>
</acceptors>
{connection}
<security-settings><security-setting match="#"><permission type="send" roles="amq"/>
<permission type="consume" roles="amq"/><permission type="browse" roles="amq"/></security-setting></security-settings>
<addresses>{queues}</addresses>
</core></configuration>
"""
_ARTEMIS_QUEUE: Final = '<address name="{0}"><anycast><queue name="{0}"/></anycast></address>'
_ARTEMIS_CONNECTION: Final = (
    '<broker-connections><amqp-connection uri="tcp://127.0.0.1:{port}" name="other" user="bench" password="bench"'
    ' retry-interval="100">{senders}</amqp-connection></broker-connections>'
)

_ROUTE: Final = '[links.other.{1}."{0}"]\nqueue = "{0}"\naddress = "{0}"\n'


class Pair:
    """Two brokers, the first of which has a link to the second, and one that works alone."""

    def __init__(self, name: str, alone: Measured, first: Measured, second: Measured) -> None:
        self.name = name
        self.brokers = (alone, first, second)
        self.local: list[Outcome] = []
        self.linked: list[Outcome] = []

    def round(self, pools: tuple[AmqpPool, AmqpPool], load: Load, *, counts: bool) -> None:
        """One run alone, and one over the link."""
        alone, first, second = [broker.target("amqp") for broker in self.brokers]
        local = amqp_generator.run(alone, pools[0], load)
        linked = amqp_generator.run(first, pools[1], load, receiver=second)
        if counts:
            self.local.append(local)
            self.linked.append(linked)

    def told(self) -> str:
        """The medians of all rounds."""
        local, linked = (median(each.rate for each in runs) for runs in (self.local, self.linked))
        return f"{self.name:20} local {local:9,.0f}/s   link {linked:9,.0f}/s   ratio {linked / local:.2f}"


def names() -> list[str]:
    """The queues."""
    return [FrameTemplate(prefix="/queue/bench.", destinations=QUEUES).destination(at)[7:] for at in range(QUEUES)]


def bartlebys(directory: Path, config: Path, *, receiving: bool = False) -> Pair:
    """Three Bartlebys, started; the first of them sends, or the second is `receiving`."""
    alone, passive = Bartleby(directory, config), Bartleby(directory, config)
    for broker in (alone, passive):
        broker.start()
    url = f"amqp://127.0.0.1:{passive.target('amqp').port}"
    routes = "".join([_ROUTE.format(name, "receive" if receiving else "send") for name in names()])
    active = Bartleby(directory, config, settings=f'\n[links.other]\nurl = "{url}"\nwindow = 1000\n{routes}')
    active.start()
    if receiving:
        return Pair("bartleby, receiving", alone, passive, active)
    return Pair("bartleby", alone, active, passive)


def artemises(directory: Path, home: Path) -> Pair:
    """Three Artemis brokers, started."""
    queues = "".join(map(_ARTEMIS_QUEUE.format, names()))

    def started(connection: str = "") -> Artemis:
        def text(ports: dict[str, int]) -> str:
            return _ARTEMIS_XML.format(port=ports["amqp"], connection=connection, queues=queues)

        broker = Artemis(directory, home, "1g", broker_xml=text)
        broker.start()
        return broker

    alone, second = started(), started()
    senders = "".join([f'<sender queue-name="{name}"/>' for name in names()])
    first = started(_ARTEMIS_CONNECTION.format(port=second.target("amqp").port, senders=senders))
    return Pair("artemis", alone, first, second)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=5.0, help="seconds of a run")
    parser.add_argument("--config", type=Path, default=Path("etc/broker.toml"))
    parser.add_argument("--receive", action="store_true", help="also by a link of the consumer's broker")
    parser.add_argument("--artemis", type=Path, help="directory of ActiveMQ Artemis")
    options = parser.parse_args()
    shape = FrameTemplate(prefix="/queue/bench.", destinations=QUEUES, durable=True, size_min=50, size_max=150)
    pools = AmqpPool(shape), AmqpPool(shape)
    with tempfile.TemporaryDirectory(prefix="bench-links-") as directory:
        pairs = [bartlebys(Path(directory), options.config)]
        if options.receive:
            pairs.append(bartlebys(Path(directory), options.config, receiving=True))
        if options.artemis is not None:
            pairs.append(artemises(Path(directory), options.artemis))
        try:
            for number in range(options.rounds + 1):
                for pair in pairs:
                    pair.round(pools, Load(seconds=options.duration), counts=number > 0)  # the first one warms up
            for pair in pairs:
                sys.stdout.write(pair.told() + "\n")
        finally:
            for pair in pairs:
                for broker in pair.brokers:
                    broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
