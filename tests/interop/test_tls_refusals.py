"""What clients hear, and operators read, when a client's certificate is refused."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S

SETTINGS = """
[acceptors.amqp]
protocol = "amqp"
enabled = false
[acceptors.mqtt]
protocol = "mqtt"
enabled = false
[acceptors.stomp]
protocol = "stomp"
[acceptors.http]
protocol = "http"
"""
TLS = """
[acceptors.{name}.tls]
certificate = "{certificate}"
key = "{key}"
client-ca = "{ca}"
need-client-auth = true
crl = "{crl}"
"""
REQUESTS = {"stomp": b"CONNECT\naccept-version:1.2\nhost:h\n\n\0", "http": b"GET /livez HTTP/1.0\r\n\r\n"}
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
REFUSALS = {
    "expired": ("ALERT_CERTIFICATE_EXPIRED", "CERTIFICATE_VERIFY_FAILED: certificate has expired"),
    "revoked": ("ALERT_CERTIFICATE_REVOKED", "CERTIFICATE_VERIFY_FAILED: certificate revoked"),
    "strange": ("ALERT_UNKNOWN_CA", "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate"),
}


class Guarded:
    """A broker that asks for certificates, and those of its clients."""

    def __init__(self, directory: Path) -> None:
        self.authority = authority = Authority(directory / "ca")
        certificate, key = authority.issue("broker", file="server")
        self.certificates = {
            "good": authority.issue("alice"),
            "expired": authority.issue("old", age=timedelta(days=9)),
            "revoked": authority.issue("revoked"),
            "strange": Authority(directory / "other", "Other CA").issue("alice"),
        }
        crl = authority.revoke("revoked")
        self.settings = SETTINGS + "".join(
            TLS.format(name=name, certificate=certificate, key=key, ca=authority.path, crl=crl) for name in REQUESTS
        )
        self.broker: DaemonProcess

    def ask(self, acceptor: str, version: str, certificate: str) -> bytes:
        """The answer to a first request.  Raises SSLError: what the broker says against the certificate."""
        context = self.authority.client(self.certificates.get(certificate))
        context.minimum_version = context.maximum_version = VERSIONS[version]
        with (
            socket.create_connection(("127.0.0.1", self.broker.ports[acceptor]), PATIENCE_S) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as client,
        ):
            client.sendall(REQUESTS[acceptor])
            return client.recv(4096)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One broker for all tests here."""
    directory = tmp_path_factory.mktemp("refusals")
    found = Guarded(directory)
    (directory / "broker").mkdir()
    with running(directory / "broker", found.settings) as broker:
        found.broker = broker
        yield found


@pytest.mark.parametrize("acceptor", REQUESTS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("certificate", REFUSALS)
def test_the_alert_and_the_log_say_what_is_wrong_with_a_certificate(
    guarded: Guarded, acceptor: str, version: str, certificate: str
) -> None:
    alert, reason = REFUSALS[certificate]
    told = guarded.broker.log.count(f'reason="{reason}"')
    with pytest.raises(ssl.SSLError, match=alert):
        guarded.ask(acceptor, version, certificate)
    guarded.broker.await_log(f'reason="{reason}"', times=told + 1)


@pytest.mark.parametrize("acceptor", REQUESTS)
@pytest.mark.parametrize(("version", "alert"), [("1.2", "HANDSHAKE_FAILURE"), ("1.3", "CERTIFICATE_REQUIRED")])
def test_a_client_without_a_certificate_hears_that_it_needs_one(
    guarded: Guarded, acceptor: str, version: str, alert: str
) -> None:
    told = guarded.broker.log.count("PEER_DID_NOT_RETURN_A_CERTIFICATE")
    with pytest.raises(ssl.SSLError, match=f"ALERT_{alert}"):
        guarded.ask(acceptor, version, "none")
    guarded.broker.await_log("PEER_DID_NOT_RETURN_A_CERTIFICATE", times=told + 1)


@pytest.mark.parametrize("acceptor", REQUESTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_with_a_certificate_is_let_in(guarded: Guarded, acceptor: str, version: str) -> None:
    assert guarded.ask(acceptor, version, "good")


NODE = """
const tls = require("tls"), fs = require("fs"), [port, ca, cert, key] = process.argv.slice(1);
const [authority, own, secret] = [ca, cert, key].map((path) => fs.readFileSync(path));
const client = tls.connect({ port, host: "127.0.0.1", servername: "localhost", ca: authority, cert: own, key: secret });
client.on("error", (error) => console.log(error.code)).on("close", () => console.log("closed"));
client.write("x".repeat(1 << 20));
client.resume();
"""


def test_node_hears_it_even_while_it_sends(guarded: Guarded) -> None:
    certificate, key = guarded.certificates["expired"]
    command = ["node", "-e", NODE, str(guarded.broker.port), str(guarded.authority.path), str(certificate), str(key)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ended.stdout.split() == ["ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED", "closed"]


def send_for_ever(client: socket.socket) -> None:
    """Until it fails."""
    while True:
        client.sendall(bytes(65_536))


def test_a_client_that_does_not_close_after_an_alert_is_cut_off(guarded: Guarded) -> None:
    with socket.create_connection(("127.0.0.1", guarded.broker.port), PATIENCE_S) as client:
        client.sendall(b"\x16\x03\x01\0\5wrong")
        alert = client.recv(64)
        assert alert[:1] == b"\x15"
        assert client.recv(1) == b"", "the broker has closed its side at once"
        with pytest.raises(ConnectionError):
            send_for_ever(client)
