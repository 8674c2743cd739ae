"""The HTTP acceptor over TLS, with the broker's own users: a real broker, real clients, the command line."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from cryptography.x509.oid import NameOID

from broker.management.http import CONNECTIONS_MAX
from broker.security.users_file import StoredUser
from tests.broker.cli.harness import invoke
from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S
from tests.support.sim_gate import cheap_user

SETTINGS = """
[security]
login-failure-delay = 0
audit-file = "{directory}/audit.jsonl"
[acceptors.stomp]
protocol = "stomp"
[acceptors.web]
protocol = "http"
open-metrics = false
[acceptors.web.tls]
certificate = "{certificate}"
key = "{key}"
client-ca = "{ca}"
want-client-auth = true
[[certificate-users]]
subject = "CN=*,O=Example"
user = "%cn"
"""


class Web:
    """A broker whose HTTP acceptor speaks TLS, and how to call it."""

    def __init__(self, directory: Path, authority: Authority, broker: DaemonProcess) -> None:
        self.directory = directory
        self.authority = authority
        self.broker = broker
        self.alice = authority.issue("alice", (NameOID.ORGANIZATION_NAME, "Example"))

    @property
    def url(self) -> str:
        return f"https://localhost:{self.broker.ports['web']}"

    def get(self, path: str, *, auth: tuple[str, str] | None = None, certified: bool = False) -> httpx.Response:
        """A GET on a connection of its own."""
        context = self.authority.client(self.alice if certified else None)
        return httpx.get(self.url + path, auth=auth, verify=context, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One broker for all tests here."""
    directory = tmp_path_factory.mktemp("https")
    authority = Authority(directory / "ca")
    certificate, key = authority.issue("broker", file="server")
    settings = SETTINGS.format(directory=directory, certificate=certificate, key=key, ca=authority.path)
    (directory / "broker").mkdir()
    with running(directory / "broker", settings, users={"bob": "secret"}) as broker:
        broker.set_users({"bob": cheap_user("secret", "amq"), "alice": StoredUser(frozenset({"amq"}))})
        broker.signal(signal.SIGHUP)
        broker.await_log("reload.done")
        yield Web(directory, authority, broker)


def test_users_by_password_and_by_certificate(web: Web) -> None:
    assert web.get("/api/v1/status", auth=("bob", "secret")).json()["ready"] is True
    assert web.get("/api/v1/status", certified=True).status_code == 200
    assert web.get("/api/v1/status", auth=("bob", "wrong"), certified=True).status_code == 401
    assert web.get("/api/v1/status").status_code == 401
    assert web.get("/metrics").status_code == 401
    assert web.get("/livez").status_code == 200
    audit = (web.directory / "audit.jsonl").read_text()
    assert '"login.refused"' in audit
    assert '"management.denied"' in audit
    assert "secret" not in audit + web.broker.log


def test_a_client_without_tls_gets_nothing(web: Web) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.get(web.url.replace("https", "http") + "/livez", timeout=PATIENCE_S)
    assert web.get("/livez").status_code == 200


def test_the_command_line_here_and_from_elsewhere(web: Web) -> None:
    here = invoke("status", "--data", str(web.broker.data))
    assert (here.exit_code, "ready" in here.stdout) == (0, True), here.output
    there = ["status", "--url", web.url, "--user", "bob"]
    with_password = {"BARTLEBY_PASSWORD": "secret"}
    assert invoke(*there, "--ca-file", str(web.authority.path), environment=with_password).exit_code == 0
    strange = invoke(*there, environment=with_password)
    assert (strange.exit_code, "certificate" in strange.stderr) == (3, True), "an authority that nobody knows"


def test_a_new_certificate_for_new_connections(web: Web) -> None:
    def shown() -> bytes | None:
        with (
            socket.create_connection(("127.0.0.1", web.broker.ports["web"]), PATIENCE_S) as raw,
            web.authority.client().wrap_socket(raw, server_hostname="localhost") as client,
        ):
            return client.getpeercert(binary_form=True)

    before = shown()
    web.authority.issue("broker renewed", file="server")
    count = web.broker.log.count("reload.done")
    web.broker.signal(signal.SIGHUP)
    web.broker.await_log("reload.done", times=count + 1)
    assert shown() != before


def test_handshakes_that_never_end_are_counted_and_keep_nobody_out(web: Web) -> None:
    """As many as there may be connections: the first of them makes room for somebody else."""
    with ExitStack() as held:
        strangers = [
            held.enter_context(socket.create_connection(("127.0.0.1", web.broker.ports["web"]), PATIENCE_S))
            for _ in range(CONNECTIONS_MAX)
        ]
        assert web.get("/livez").status_code == 200
        with suppress(ConnectionResetError):
            assert strangers[0].recv(1) == b""
        strangers[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            strangers[-1].recv(1)
        for _ in range(3):
            assert web.get("/api/v1/status", auth=("bob", "secret")).status_code in (200, 403)
