"""Clients that know both brokers of a pair: the programs of docs/high-availability.md, as they stand there.

Each sends numbers and receives them, all at once, while the owner of the journal is killed and while it hands over.
Whatever the broker has confirmed to them has to arrive.
"""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Final

import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from protocols.mqtt.codes import V5
from protocols.mqtt.encode import encode
from tests.interop.programs import BUILD_S, HERE, RUN_S, java, node
from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess
from tests.support.mqtt_client import greeting
from tests.support.peers import free_port
from tests.support.postgresql import PostgreSQL
from tests.support.process import PATIENCE_S, NotAvailable
from tests.support.stomp_client import frame

pytestmark = pytest.mark.timeout(2 * BUILD_S + 2 * RUN_S)

PAGE: Final = HERE.parents[1] / "docs" / "high-availability.md"

#: How the page names where clients connect to.
ADDRESS: Final = re.compile(r'\b(one|two)\.example("?, (?:port: )?|:)(61613|5672|1883)')
ACCEPTORS: Final = {"61613": "stomp", "5672": "amqp", "1883": "mqtt"}

#: What the programs say.
SAID: Final = re.compile(r"(confirmed|received) (\d+)")

#: Messages that each client has to have confirmed before a fault and after it.
ENOUGH: Final = 20

#: What a standby answers at, by plain TCP, by TLS and by WebSocket.
PLAIN: Final = {each: each for each in ("stomp", "amqp", "mqtt", "http")}
SECURE: Final = {"stomps": "stomp", "amqps": "amqp", "mqtts": "mqtt"}
WEB: Final = {"stompws": "stomp", "amqpws": "amqp", "mqttwss": "mqtt"}

#: The same, but these wait only a moment for a client that says nothing; the others have time on a busy machine too.
HASTY: Final = {"hasty": "stomp", "hastys": "stomp"}

#: OPEN of the container `me`.
OPEN: Final = b"\0\0\0\x12\x02\0\0\0\0\x53\x10\xc0\x05\x01\xa1\x02me"

Ports = Mapping[str, int]


class Client:
    """A program of the page, and what it has said."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.confirmed: list[tuple[float, str]] = []
        self.received: set[str] = set()
        self._errors: list[str] = []
        self._changed = threading.Condition()
        pipes = ((self._process.stdout, self._hear), (self._process.stderr, self._errors.append))
        self._readers = [threading.Thread(target=self._read, args=each) for each in pipes]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], hear: Callable[[str], None]) -> None:
        with pipe:
            for line in pipe:
                with self._changed:
                    hear(line)
                    self._changed.notify_all()

    def _hear(self, line: str) -> None:
        for word, number in SAID.findall(line):  # two threads may share a line
            if word == "confirmed":
                self.confirmed.append((time.monotonic(), number))
            else:
                self.received.add(number)

    def await_more(self) -> None:
        """Wait until more is confirmed."""
        enough = len(self.confirmed) + ENOUGH
        with self._changed:
            found = self._changed.wait_for(lambda: len(self.confirmed) >= enough, PATIENCE_S)
        assert found, f"{self.name} has had {len(self.confirmed)} messages confirmed:\n{self._told()}"

    def await_all(self) -> int:
        """Wait until all that is confirmed by now has come; how many that are."""
        sent = {number for _, number in self.confirmed}
        with self._changed:
            found = self._changed.wait_for(lambda: sent <= self.received, PATIENCE_S)
        assert found, f"{self.name} has lost {sorted(sent - self.received)} of {len(sent)}:\n{self._told()}"
        return len(sent)

    def longest_pause(self, since: float, until: float) -> float:
        """The longest time between two messages that were confirmed, in seconds."""
        times = [at for at, _ in self.confirmed if since <= at <= until]
        return max(after - before for before, after in pairwise([since, *times]))

    def _told(self) -> str:
        return "".join(self._errors[-40:])

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)


def programs() -> dict[str, tuple[str, str]]:
    """The page's programs: language and text, by the client's name."""
    text = PAGE.read_text("utf-8")
    section = text[text.index("\n## Clients\n") :].split("\n## ")[1]
    found = re.findall(r"\n### ([^\n]+)\n(?:(?!\n### ).)*?```(\w+)\n(.*?)```", section, re.DOTALL)
    return {name: (language, program) for name, language, program in found}


def addressed(program: str, ports: Mapping[str, Ports], name: str) -> str:
    """A program that finds these brokers, with an address of its own."""

    def address(found: re.Match[str]) -> str:
        return f"127.0.0.1{found[2]}{ports[found[1]][ACCEPTORS[found[3]]]}"

    changed, places = ADDRESS.subn(address, program)
    assert places, program
    return changed.replace('orders"', f'orders.{name}"')


def command(language: str, program: str, directory: Path) -> list[str]:
    """What runs a program.  Skips if that is not installed."""
    match language:
        case "python":
            return [sys.executable, "-c", program]
        case "javascript":
            interpreter, _ = node("")
            (directory / "node_modules").symlink_to(HERE / "node" / "node_modules")
            (directory / "orders.mjs").write_text(program)
            return [interpreter, "orders.mjs"]
        case "java":
            (directory / "Orders.java").write_text(program)
            return [*java("Failover")[:-1], "Orders.java"]
    raise KeyError(language)


@contextmanager
def pair(
    directory: Path, more: str = "", acceptors: Iterable[str] = PLAIN, lease: str = "1s"
) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    """Two brokers over one database, the first of which owns the journal; `more` are settings of that."""
    ports = {name: {each: free_port() for each in acceptors} for name in ("one", "two")}
    with PostgreSQL() as place, ExitStack() as stack:
        server = place.server()
        server.start()
        hosts = ", ".join(f'"127.0.0.1:{each["amqp"]}"' for each in ports.values())
        settings = f"""
[broker]
failover-hosts = [{hosts}]

[journal]
log = "postgresql"

[journal.postgresql]
dsn = "{server.dsn}"
single-copy = true
lease = "{lease}"
renewal = "200ms"
{more}
"""
        brokers = []
        for name, fixed in ports.items():
            (directory / name).mkdir()
            broker = DaemonProcess(directory / name, settings, fixed=fixed)
            stack.callback(broker.close)
            brokers.append(broker)
        one, two = brokers
        one.start()
        two.begin()
        two.await_standby()
        yield one, two


def test_clients_find_the_owner(tmp_path: Path) -> None:
    missing: list[str] = []
    clients: list[Client] = []
    with ExitStack() as stack:
        try:
            one, two = stack.enter_context(pair(tmp_path))
        except NotAvailable as absent:
            pytest.skip(str(absent))
        for name, (language, program) in known().items():
            directory = tmp_path / name
            directory.mkdir()
            text = addressed(program, {"one": one.ports, "two": two.ports}, name.replace(" ", "-"))
            try:
                client = Client(name, command(language, text, directory), directory)
            except pytest.skip.Exception as absent:
                missing.append(f"{name}: {absent}")
            else:
                stack.callback(client.close)
                clients.append(client)
        for client in clients:
            client.await_more()
        killed = time.monotonic()
        one.kill()
        for client in clients:
            client.await_more()
        one.begin()
        one.await_standby()
        asked = time.monotonic()
        two.post("failover")
        for client in clients:
            client.await_more()
        over = time.monotonic()
        for client in clients:
            counted = client.await_all()
            pauses = (client.longest_pause(killed, asked), client.longest_pause(asked, over))
            print(f"{client.name}: {counted} confirmed; paused {pauses[0]:.1f} s and {pauses[1]:.1f} s")
        two.await_standby()
    if missing:
        pytest.skip(f"others have found the owner; {', '.join(missing)}")


def redirecting(certificate: tuple[Path, Path]) -> str:
    """Settings of a standby that answers."""
    tls = 'tls.certificate = "{}"\ntls.key = "{}"'.format(*certificate)
    sections = ["redirect = true"]
    for number, (name, protocol) in enumerate((PLAIN | SECURE | WEB | HASTY).items(), start=1):
        sections += [f"[acceptors.{name}]", f'protocol = "{protocol}"', f"port = {number}"]
        sections += ['handshake-timeout = "500ms"'] if name in HASTY else []
        sections += [tls] if name in SECURE or name in ("mqttwss", "hastys") else []
        sections += ["websocket = true"] if name in WEB else []
    return "\n".join(sections)


def test_a_standby_says_where_to_go(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    settings, context = redirecting(authority.issue("broker")), authority.client()
    with ExitStack() as stack:
        try:
            # The lease is long enough for a busy machine: the standby must remain one until the owner is killed.
            one, two = stack.enter_context(pair(tmp_path, settings, PLAIN | SECURE | WEB | HASTY, lease="5s"))
        except NotAvailable as absent:
            pytest.skip(str(absent))
        hosts = f"127.0.0.1:{one.ports['amqp']} 127.0.0.1:{two.ports['amqp']}".encode()
        stomp, amqp = frame("CONNECT", {"accept-version": "1.2"}), b"AMQP\0\1\0\0" + OPEN
        for suffix, secure in (("", None), ("s", context)) * 2:
            ask = partial(answer, context=secure)
            said = ask(two.ports[f"stomp{suffix}"], stomp)
            assert said.startswith(b"ERROR\n")
            assert b"\nredirect:" + hosts in said
            assert hosts in ask(two.ports[f"mqtt{suffix}"], encode(greeting("c"), V5))
            assert ask(two.ports[f"mqtt{suffix}"], encode(greeting("c", version=4), 4)) == b"\x20\x02\x00\x03"
            said = ask(two.ports[f"amqp{suffix}"], amqp)
            assert b"failover-server-list" in said
            assert (b"amqps" in said) is (secure is not None), "the scheme"
            assert b"amqp:connection:forced" in said
            assert ask(two.ports[f"hasty{suffix}"], b"CONNECT") == b"", "who does not introduce itself is cut off"
        assert "connection.foreign" not in two.log, "they speak what is served here"
        assert answer(two.ports["stomps"], stomp) == b"", "who does not speak TLS is cut off"
        for name in WEB:
            with pytest.raises(ConnectionRefusedError):
                answer(two.ports[name], b"GET / HTTP/1.1\r\n\r\n")
        one.kill()
        two.await_ready()
        assert answer(two.ports["stomp"], stomp, b"CONNECTED").startswith(b"CONNECTED\n")
        assert answer(two.ports["stomps"], stomp, b"CONNECTED", context=context).startswith(b"CONNECTED\n")
        for name, protocol in WEB.items():
            subprotocol = Subprotocol("v12.stomp" if protocol == "stomp" else protocol)
            secure = context if name == "mqttwss" else None
            address = f"{'wss' if secure else 'ws'}://127.0.0.1:{two.ports[name]}"
            with connect(address, subprotocols=[subprotocol], ssl=secure, proxy=None) as owner:
                assert owner.subprotocol == subprotocol


def answer(port: int, data: bytes, until: bytes = b"no end", *, context: ssl.SSLContext | None = None) -> bytes:
    """What a broker says to these bytes before it closes the connection, or has said `until`; by TLS with a context."""
    said = b""
    with ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        stack.enter_context(suppress(ConnectionResetError, ssl.SSLEOFError))
        if context is not None:
            client = stack.enter_context(context.wrap_socket(client, server_hostname="127.0.0.1"))
        client.sendall(data)
        while until not in said and (more := client.recv(65_536)):
            said += more
    return said


def known() -> dict[str, tuple[str, str]]:
    """Those of the page, and Qpid JMS that knows one broker at first, and is told of the other by that."""
    found = programs()
    assert len(found) == 6, list(found)
    language, program = found["Qpid JMS"]
    return {**found, "Qpid JMS told": (language, program.replace(",amqp://two.example:5672", ""))}
