"""TLS with real clients: with and without certificates, revoked ones, new ones; and those who never finish."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest
from cryptography.x509.oid import NameOID
from proton import Message, SSLDomain

from broker.security.users_file import StoredUser
from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S
from tests.support.proton_client import connected as proton
from tests.support.sim_gate import cheap_user
from tests.support.stomp_py import connected as stomp

CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n%b\n\0"
SETTINGS = """
[security]
login-failure-delay = 0
audit-file = "{directory}/audit.jsonl"
[limits]
connections-per-origin-max = 2200
[acceptors.stomp]
protocol = "stomp"
[acceptors.stomp.tls]
certificate = "{certificate}"
key = "{key}"
client-ca = "{ca}"
want-client-auth = true
crl = "{crl}"
sni-hosts = ["localhost"]
[acceptors.amqp]
protocol = "amqp"
[acceptors.amqp.tls]
certificate = "{certificate}"
key = "{key}"
client-ca = "{ca}"
need-client-auth = true
[acceptors.http]
protocol = "http"
[[certificate-users]]
subject = "CN=*,O=Example"
user = "%cn"
"""


class Secured:
    """A broker with TLS, and what its clients need."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ca")
        certificate, key = self.authority.issue("broker", file="server")
        self.alice = self.authority.issue("alice", (NameOID.ORGANIZATION_NAME, "Example"))
        self.mallory = self.authority.issue("mallory", (NameOID.ORGANIZATION_NAME, "Example"))
        self.revoked = self.authority.issue("revoked", (NameOID.ORGANIZATION_NAME, "Example"))
        self.settings = SETTINGS.format(
            directory=directory,
            certificate=certificate,
            key=key,
            ca=self.authority.path,
            crl=self.authority.revoke("revoked"),
        )
        self.audit = directory / "audit.jsonl"
        self.broker: DaemonProcess

    def open(self, context: ssl.SSLContext, *, host: str = "localhost", acceptor: str = "stomp") -> ssl.SSLSocket:
        """A connection to an acceptor."""
        raw = socket.create_connection(("127.0.0.1", self.broker.ports[acceptor]), PATIENCE_S)
        return context.wrap_socket(raw, server_hostname=host)

    def greeted(self, context: ssl.SSLContext, login: bytes = b"", *, acceptor: str = "stomp") -> bytes:
        """The first frame of the answer to CONNECT; nothing if there is none."""
        try:
            with self.open(context, acceptor=acceptor) as client:
                client.sendall(CONNECT % login)
                return client.recv(4096)
        except (ssl.SSLError, ConnectionError):
            return b""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker for all tests here."""
    directory = tmp_path_factory.mktemp("tls")
    found = Secured(directory)
    (directory / "broker").mkdir()
    with running(directory / "broker", found.settings, users={"bob": "secret"}) as broker:
        broker.set_users({"bob": cheap_user("secret", "amq"), "alice": StoredUser(frozenset({"amq"}))})
        broker.signal(signal.SIGHUP)
        broker.await_log("reload.done")
        found.broker = broker
        yield found


@pytest.mark.parametrize("certified", [False, True])
def test_stomp_py(secured: Secured, certified: bool) -> None:
    certificate, key = secured.alice if certified else (None, None)
    tls = {"ca_certs": str(secured.authority.path), "cert_file": certificate, "key_file": key}
    with stomp(secured.broker.port, tls=tls, login=None if certified else ("bob", "secret")) as client:
        assert client.connected.headers["user-name"] == ("alice" if certified else "bob")
        client.put("/queue/tls", "hello")
        client.leave()


def test_proton_comes_in_by_its_certificate(secured: Secured) -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(secured.authority.path))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    domain.set_credentials(str(secured.alice[0]), str(secured.alice[1]), None)
    with proton(secured.broker.ports["amqp"], ssl_domain=domain, allowed_mechs="EXTERNAL") as connection:
        connection.create_sender("queue://certified").send(Message("x"))
        receiver = connection.create_receiver("queue://certified")
        assert receiver.receive().body == "x"
        receiver.accept()


def test_goodbyes_are_no_lines_in_the_log(secured: Secured) -> None:
    with secured.open(secured.authority.client()) as client:
        client.sendall(CONNECT % b"login:bob\npasscode:secret\n")
        assert client.recv(4096).startswith(b"CONNECTED")
        client.unwrap()  # returns when the broker has answered
    reloads = secured.broker.log.count("reload.done")
    secured.broker.signal(signal.SIGHUP)
    secured.broker.await_log("reload.done", times=reloads + 1)
    assert "library.message" not in secured.broker.log


def test_clients_that_are_refused(secured: Secured) -> None:
    authority = secured.authority
    assert b"CONNECTED" in secured.greeted(authority.client(), b"login:bob\npasscode:secret\n")
    assert b"login refused" in secured.greeted(authority.client()), "neither certificate nor login"
    assert b"login refused" in secured.greeted(authority.client(secured.mallory)), "a certificate without a user"
    assert b"CONNECTED" in secured.greeted(authority.client(secured.alice))
    assert secured.greeted(authority.client(secured.revoked)) == b""
    stranger = Authority(authority.directory.parent / "other", "Other CA")
    context = authority.client(stranger.issue("alice", (NameOID.ORGANIZATION_NAME, "Example")))
    assert secured.greeted(context) == b"", "an authority that does not count"
    old = authority.client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert b"CONNECTED" in secured.greeted(old, b"login:bob\npasscode:secret\n")
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secured.open(unchecked, host="elsewhere.example.org")
    assert secured.greeted(authority.client(), acceptor="amqp") == b"", "without the certificate that is needed"
    assert "secret" not in secured.broker.log
    events = [json.loads(line) for line in secured.audit.read_text().splitlines()]
    assert {"login.accepted", "login.refused", "ready"} <= {event["code"] for event in events}
    assert secured.audit.stat().st_mode & 0o777 == 0o600


def _end(secured: Secured) -> float:
    """When the broker says that the certificate of STOMP's acceptor ends."""
    with urlopen(f"http://127.0.0.1:{secured.broker.ports['http']}/metrics") as answer:
        (line,) = re.findall(rb'broker_certificate_end_seconds{acceptor="stomp"} (.*)', answer.read())
    return float(line)


def test_a_new_certificate_for_new_connections(secured: Secured) -> None:
    end = _end(secured)
    with secured.open(secured.authority.client()) as before:
        first = before.getpeercert(binary_form=True)
        secured.authority.issue("broker renewed", file="server", age=timedelta(hours=1))
        count = secured.broker.log.count("reload.done")
        secured.broker.signal(signal.SIGHUP)
        secured.broker.await_log("reload.done", times=count + 1)
        with secured.open(secured.authority.client()) as after:
            assert after.getpeercert(binary_form=True) != first
        assert 3500 < end - _end(secured) < 3700
        before.sendall(CONNECT % b"login:bob\npasscode:secret\n")
        assert b"CONNECTED" in before.recv(4096), "who is there stays"


def test_a_key_that_others_can_read_is_refused_and_the_old_one_stays(secured: Secured) -> None:
    key = secured.authority.directory / "server.key"
    key.chmod(0o644)
    secured.broker.signal(signal.SIGHUP)
    secured.broker.await_log("chmod 600")
    key.chmod(0o600)
    assert b"CONNECTED" in secured.greeted(secured.authority.client(), b"login:bob\npasscode:secret\n")
