"""Other brokers as the far end of a link: each with the same queues, one user, and its own format of addresses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support import peers
from tests.support.amqp_client import AmqpSocket
from tests.support.daemon import DaemonProcess
from tests.support.process import BrokerProcess, NotAvailable

#: With this in the environment a missing broker is a failure, and every test is run at length (`make link-tests`).
DEMANDED: Final = "BARTLEBY_LINK_TESTS"

#: The queues of each broker.  `full` holds FULL_MAX messages and refuses more; no client may read `forbidden`.
QUEUES: Final = ("orders", "invoices", "full", "forbidden")

FULL_MAX: Final = 5

#: The user and password of their clients.
USER: Final = ("link", "secret")

_ARTEMIS_XML: Final = """\
<?xml version="1.0"?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<name>peer</name><journal-type>NIO</journal-type><journal-datasync>false</journal-datasync>
<critical-analyzer>false</critical-analyzer><max-disk-usage>-1</max-disk-usage>
<acceptors><acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP</acceptor></acceptors>
<security-settings>
<security-setting match="#"><permission type="send" roles="amq"/><permission type="consume" roles="amq"/>
<permission type="createNonDurableQueue" roles="amq"/><permission type="deleteNonDurableQueue" roles="amq"/>
</security-setting>
<security-setting match="forbidden"><permission type="send" roles="none"/><permission type="consume" roles="none"/>
</security-setting>
</security-settings>
<address-settings>
<address-setting match="#"><auto-create-queues>false</auto-create-queues>
<auto-create-addresses>false</auto-create-addresses><max-delivery-attempts>-1</max-delivery-attempts></address-setting>
<address-setting match="full"><max-size-messages>{full}</max-size-messages>
<address-full-policy>FAIL</address-full-policy></address-setting>
</address-settings>
<addresses>{queues}<address name="news"><multicast/></address></addresses>
</core></configuration>
"""


@dataclass(frozen=True)
class LinkPeer:
    """A broker at the far end; `pattern` is the format of a queue's address.

    `drains`: it answers a FLOW with drain; `confirms`: it settles consumed messages once that is durable.
    """

    process: BrokerProcess
    pattern: str
    login: tuple[str, str] | None = USER
    drains: bool = True
    confirms: bool = False

    @property
    def url(self) -> str:
        """Its URL."""
        return f"amqp://127.0.0.1:{self.process.ports['amqp']}"

    def address(self, queue: str) -> str:
        """Return the address of a queue."""
        return self.pattern.format(queue)

    def client(self) -> AmqpSocket:
        """Connect a client, logged in."""
        return AmqpSocket(self.process.ports["amqp"], login=self.login)

    def settings(self, directory: Path, name: str = "far") -> str:
        """Return the section of a link to it, without routes, in TOML; the password file is in `directory`."""
        lines = [f"[links.{name}]", f'url = "{self.url}"', 'retry-interval = "100ms"', 'retry-interval-max = "500ms"']
        if self.login is not None:
            user, password = self.login
            file = directory / f"{name}.password"
            file.write_text(password)
            lines += [f'user = "{user}"', f'password-file = "{file}"']
        return "\n".join(lines) + "\n"


def bartleby(process: DaemonProcess) -> LinkPeer:
    """Return a Bartleby as a peer, with anonymous clients."""
    return LinkPeer(process, "queue://{}", None, confirms=True)


def _artemis(directory: Path) -> LinkPeer:
    home = os.environ.get("ARTEMIS_HOME")
    queues = "".join(f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>' for name in QUEUES)

    def broker_xml(ports: dict[str, int]) -> str:
        return _ARTEMIS_XML.format(port=ports["amqp"], queues=queues, full=FULL_MAX)

    options = ("--java-memory", "512M", "--nio", "--no-autotune", "--role", "amq")
    process = peers.Artemis(directory, Path(home) if home else None, *options, user=USER, broker_xml=broker_xml)
    return LinkPeer(process, "{}")


def _rabbitmq(directory: Path, pattern: str, program: Path | None = None, *, drains: bool = True) -> LinkPeer:
    user, password = USER
    definitions = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": user, "password": password, "tags": []}],
        "permissions": [{"user": user, "vhost": "/", "configure": "", "write": ".*", "read": "^(?!forbidden).*"}],
        "queues": [_rabbitmq_queue(name) for name in QUEUES],
    }
    file = directory / "definitions.json"
    file.write_text(json.dumps(definitions))
    process = peers.RabbitMQ(directory, f"load_definitions = {file}", program=program)
    return LinkPeer(process, pattern, drains=drains)


def _rabbitmq_queue(name: str) -> dict[str, object]:
    full = {"x-max-length": FULL_MAX, "x-overflow": "reject-publish"}
    arguments = full if name == "full" else {}
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": arguments}


def _rabbitmq_3(directory: Path) -> LinkPeer:
    return _rabbitmq(directory, "/amq/queue/{}", drains=False)


def _rabbitmq_4(directory: Path) -> LinkPeer:
    program = os.environ.get("RABBITMQ_4")
    if program is None:
        raise NotAvailable("no RabbitMQ 4: name its sbin/rabbitmq-server in RABBITMQ_4")
    return _rabbitmq(directory, "/queues/{}", Path(program))


def _proton(directory: Path) -> LinkPeer:
    return LinkPeer(peers.ProtonBroker(directory, *QUEUES), "{}", None)


#: The makers of the peers, each given a directory.  May raise NotAvailable, as may a peer's start.
PEERS: Final[dict[str, Callable[[Path], LinkPeer]]] = {
    "proton": _proton,
    "artemis": _artemis,
    "rabbitmq-3": _rabbitmq_3,
    "rabbitmq-4": _rabbitmq_4,
}

#: Peers that are never demanded: not in Debian yet.
OPTIONAL: Final = ("rabbitmq-4",)


def demanded() -> bool:
    """Whether every peer must be available, and is tested at length."""
    return os.environ.get(DEMANDED) == "1"


def missing(name: str, why: object) -> None:
    """Skip the test, as a peer is not available; or fail it if the peer is demanded."""
    if demanded() and name not in OPTIONAL:
        pytest.fail(f"{name}: {why}")
    pytest.skip(f"{name}: {why}; make link-tests demands it")
