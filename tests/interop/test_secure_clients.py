"""TLS by WebSocket and on a shared port, and client certificates, with clients of Node.js, Java and Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from broker.security.users_file import StoredUser, with_password
from broker.sessions.sasl import SCRAMS
from tests.interop.programs import BUILD_S, RUN_S, java, node_suite, run, tool
from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.issuer import AUDIENCE, ISSUER, fresh_token, key_set, public_jwk
from tests.support.paho_client import connected

PLAIN = """
[security.jwt]
issuer = "{issuer}"
audience = "{audience}"
keys-file = "{keys}"
[acceptors.mqttweb]
protocol = "mqtt"
port = 0
websocket = true
[acceptors.amqpweb]
protocol = "amqp"
port = 0
websocket = true
[acceptors.stompweb]
protocol = "stomp"
port = 0
websocket = true
[acceptors.shared]
protocol = "stomp"
also = "amqp, mqtt"
[acceptors.amqp]
protocol = "amqp"
[acceptors.mqtt]
protocol = "mqtt"
[[certificate-users]]
subject = "CN=*,O=Example"
user = "%cn"
"""

TLS = """
[acceptors.{name}.tls]
certificate = "{certificate}"
key = "{key}"
client-ca = "{ca}"
want-client-auth = true
"""

PASSWORD = "changeit"


class Secured:
    """A broker on all of whose acceptors TLS is spoken."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory / "ca")
        certificate, key = self.authority.issue("broker")
        self.alice = self.authority.issue("alice", (NameOID.ORGANIZATION_NAME, "Example"))
        (directory / "jwks.json").write_bytes(key_set(public_jwk("ES256", "1")))
        names = ("mqttweb", "amqpweb", "stompweb", "shared", "amqp", "mqtt")
        secured = [TLS.format(name=name, certificate=certificate, key=key, ca=self.authority.path) for name in names]
        plain = PLAIN.format(issuer=ISSUER, audience=AUDIENCE, keys=directory / "jwks.json")
        self.settings = plain + "".join(secured)
        self.broker: DaemonProcess


def stored_as_today() -> StoredUser:
    """A user with as many SCRAM iterations as `bartleby user add` stores, which these clients must bear."""
    return with_password(StoredUser(frozenset({"amq"})), "secret", salts={each: b"salt" * 4 for each in SCRAMS})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker for all tests here."""
    directory = tmp_path_factory.mktemp("secured")
    found = Secured(directory)
    (directory / "broker").mkdir()
    users = {"bob": stored_as_today(), "alice": StoredUser(frozenset({"amq"}))}
    with running(directory / "broker", found.settings, stored=users) as broker:
        found.broker = broker
        yield found


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_clients_of_node(secured: Secured) -> None:
    ports, authority = json.dumps(secured.broker.ports), str(secured.authority.path)
    assert node_suite("secure.test.mjs", PORTS=ports, NODE_EXTRA_CA_CERTS=authority) == 6


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
@pytest.mark.parametrize("certified", [False, True])
def test_paho(secured: Secured, transport: Literal["tcp", "websockets"], certified: bool) -> None:
    context = secured.authority.client(secured.alice if certified else None)
    port = secured.broker.ports["mqtt" if transport == "tcp" else "mqttweb"]
    user = None if certified else ("bob", "secret")
    with connected(port, "", "3.1.1", tls=context, user=user, transport=transport) as client:
        assert client.subscribe("paho/tls", 1) == (1,)
        client.publish("paho/tls", b"hello", 1)
        assert client.payloads(1) == [b"hello"]


def stores(secured: Secured) -> tuple[Path, Path]:
    """Java's: the authority to trust, and alice's certificate with its key."""
    trusted, own = secured.directory / "trust.p12", secured.directory / "alice.p12"
    if not trusted.exists():
        imported = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(secured.authority.path)]
        kept = ["-keystore", str(trusted), "-storetype", "PKCS12", "-storepass", PASSWORD]
        subprocess.run([tool("keytool"), *imported, *kept], check=True, capture_output=True, timeout=RUN_S)
    certificate = load_pem_x509_certificate(secured.alice[0].read_bytes())
    key = load_pem_private_key(secured.alice[1].read_bytes(), None)
    encryption = BestAvailableEncryption(PASSWORD.encode())
    own.write_bytes(pkcs12.serialize_key_and_certificates(b"alice", key, certificate, None, encryption))  # type: ignore[arg-type]
    return trusted, own


def _certified(own: Path) -> tuple[str, list[str]]:
    options = f"&transport.keyStoreLocation={own}&transport.keyStorePassword={PASSWORD}"
    return f"{options}&amqp.saslMechanisms=EXTERNAL", []


LOGINS: dict[str, Callable[[Path], tuple[str, list[str]]]] = {
    "by password": lambda _: ("", ["bob", "secret"]),
    "by certificate": _certified,
    "by token": lambda _: ("&amqp.saslMechanisms=XOAUTH2", ["alice", fresh_token()]),
}


@pytest.mark.timeout(BUILD_S + 2 * RUN_S)
@pytest.mark.parametrize("login", LOGINS)
def test_qpid_jms(secured: Secured, login: str) -> None:
    trusted, own = stores(secured)
    options, arguments = LOGINS[login](own)
    trust = f"transport.trustStoreLocation={trusted}&transport.trustStorePassword={PASSWORD}"
    uri = f"amqps://localhost:{secured.broker.ports['amqp']}?{trust}{options}"
    assert run([*java("Secure"), uri, *arguments]).strip() == "hello"
