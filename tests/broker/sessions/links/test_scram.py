"""How a link with a user logs in: by the strongest mechanism that both brokers know, and only at the right broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramException, ScramMechanism

from broker.sessions.links.model import State
from broker.sessions.sasl import SCRAMS
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import (
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslOutcome,
    SaslResponse,
)
from tests.broker.sessions.links.pairs import SEND, bodies, send
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked

PASSWORD = "correct horse"
ITERATIONS = 4_096

#: The schemes and hosts of links, and whether others can read what they send.
SECURE, LOCAL, READABLE = "amqps://b:5671", "amqp://localhost:5672", "amqp://b:5672"


class Server:
    """Another broker: offers mechanisms, and speaks SCRAM as its attributes say.

    `inits` and `secrets`: the mechanisms that the link began, and what it sent by PLAIN.
    """

    def __init__(self, *offered: str, password: str = PASSWORD, iterations: int = ITERATIONS) -> None:
        self.offered: Sequence[str] = offered or (*SCRAMS, "PLAIN")
        self.password = password
        self.iterations = iterations
        self.first = ""  # its first message, instead of the right one
        self.final: bytes | None = None  # its signature, instead of the right one
        self.early = False  # it lets the link in without an exchange
        self.unknown = False  # the user has no keys for SCRAM
        self.challenges = False  # its signature comes before the outcome
        self.inits: list[str] = []
        self.secrets: list[bytes] = []

    def accept(self, remote: str, heard: list[bytes]) -> Conversation:
        return Conversation(self, heard)

    def run(self) -> None:
        """It answers at once."""

    def advance(self, ms: int) -> None:
        """It has no clock."""


class Conversation:
    """One connection to it."""

    def __init__(self, server: Server, heard: list[bytes]) -> None:
        self.closed = False
        self._server = server
        self._heard = heard
        self._codec = AmqpConnection(Limits(), container_id="other", mechanisms=server.offered)
        self._scram: Any = None
        self._final = b""
        self._proved = False

    def raw(self, data: bytes) -> None:
        codec = self._codec
        codec.receive_data(data)
        while events := codec.events():
            for event in events:
                if isinstance(event, SaslInit):
                    self._init(event)
                elif isinstance(event, SaslResponse):
                    self._response(event.response)
                elif isinstance(event, Open):
                    codec.send_open()
        if sent := codec.data_to_send():
            self._heard.append(sent)

    def abort(self) -> None:
        self.closed = True

    def _init(self, init: SaslInit) -> None:
        server, message = self._server, init.initial_response or b""
        server.inits.append(init.mechanism)
        if init.mechanism not in SCRAMS:
            server.secrets.append(message)
            right = message.split(b"\0")[2:] == [server.password.encode()]
            self._outcome(SaslCode.OK if right else SaslCode.AUTH)
        elif server.early:
            self._outcome(SaslCode.OK)
        else:
            mechanism = ScramMechanism(init.mechanism)
            keys = mechanism.make_auth_info(server.password, server.iterations, b"salt" * 4)
            self._scram = mechanism.make_server(lambda _: keys)
            self._scram.set_client_first(message.decode())
            first = server.first or self._scram.get_server_first()
            self._codec.send_sasl(SaslChallenge(first.encode()))

    def _response(self, response: bytes) -> None:
        server = self._server
        if self._proved:
            self._outcome(SaslCode.OK)
            return
        try:
            self._scram.set_client_final(response.decode())
            final = self._scram.get_server_final().encode()
        except ScramException:
            final = b"v=AAAA"
            if server.final is None:
                self._outcome(SaslCode.AUTH)
                return
        final = final if server.final is None else server.final
        if server.unknown:
            self._outcome(SaslCode.AUTH)
        elif server.challenges:
            self._proved = True
            self._codec.send_sasl(SaslChallenge(final))
        else:
            self._outcome(SaslCode.OK, final)

    def _outcome(self, code: SaslCode, data: bytes | None = None) -> None:
        self._codec.send_sasl(SaslOutcome(code, data))


def linked_to(
    server: Server | SimBroker,
    tmp_path: Path,
    *,
    password: str | bytes = PASSWORD,
    url: str = READABLE,
    allowed: Sequence[str] = (),
    scram_iterations_max: int = 10_000,
) -> SimLinks:
    """A link that has tried once to log in."""
    file = tmp_path / "password"
    file.write_bytes(password if isinstance(password, bytes) else password.encode())
    settings: dict[str, Any] = {"user": "link", "password-file": str(file), "url": url}
    settings |= {"scram-iterations-max": scram_iterations_max}
    if allowed:
        settings["sasl-mechanisms"] = allowed
    links = SimLinks(SimBroker(linked(**settings, send=SEND["send"])), {"b": server})
    links.run()
    return links


def error(links: SimLinks) -> str:
    """Why the link did not log in, which the log has too."""
    assert links.link().state is State.RETRYING
    lost = links.broker.reported("link.lost")
    assert [each["error"] for each in lost][-1:] == [links.link().error]
    return links.link().error


@pytest.mark.parametrize("url", [READABLE, LOCAL, SECURE])
def test_two_bartlebys_use_the_strongest_mechanism(tmp_path: Path, url: str) -> None:
    b = SimBroker(configured(), users={"link": PASSWORD})
    links = linked_to(b, tmp_path, url=url)
    assert links.link().state is State.RUNNING
    assert [each["how"] for each in b.reported("login.accepted")] == ["scram"]
    send(links.broker, "orders.out", "1")
    links.run()
    assert bodies(b, "orders") == ["1"]


@pytest.mark.parametrize(
    ("offered", "allowed", "mechanism"),
    [
        (("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), (), "SCRAM-SHA-512"),
        (("PLAIN", "SCRAM-SHA-256"), (), "SCRAM-SHA-256"),
        (("SCRAM-SHA-1", "SCRAM-SHA-256"), (), "SCRAM-SHA-256"),
        (("EXTERNAL", "ANONYMOUS", "PLAIN"), (), "PLAIN"),
        (("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), ("PLAIN", "SCRAM-SHA-256"), "SCRAM-SHA-256"),
        (("PLAIN", "SCRAM-SHA-256"), ("PLAIN",), "PLAIN"),
    ],
)
@pytest.mark.parametrize("url", [READABLE, LOCAL, SECURE])
def test_the_mechanism_is_the_strongest_that_both_know(
    tmp_path: Path, url: str, offered: tuple[str, ...], allowed: tuple[str, ...], mechanism: str
) -> None:
    server = Server(*offered)
    assert linked_to(server, tmp_path, url=url, allowed=allowed).link().state is State.RUNNING
    assert server.inits == [mechanism]


@pytest.mark.parametrize(
    ("offered", "allowed", "words"),
    [
        (("ANONYMOUS",), (), "offers only ANONYMOUS: the link uses SCRAM-SHA-512 or SCRAM-SHA-256 or PLAIN"),
        (("PLAIN",), ("SCRAM-SHA-512",), "offers only PLAIN: the link uses SCRAM-SHA-512"),
        (("SCRAM-SHA-1", "PLAIN"), (), "has offered SCRAM, and now offers only SCRAM-SHA-1, PLAIN"),
        (("SCRAM-SHA-256", "PLAIN"), ("SCRAM-SHA-512", "PLAIN"), "has offered SCRAM, and now offers only"),
    ],
)
def test_without_a_common_mechanism_nothing_is_sent(
    tmp_path: Path, offered: tuple[str, ...], allowed: tuple[str, ...], words: str
) -> None:
    server = Server(*offered)
    assert words in error(linked_to(server, tmp_path, allowed=allowed))
    assert server.inits == []


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize("challenges", [False, True])
def test_the_signature_may_come_before_the_outcome(tmp_path: Path, mechanism: str, challenges: bool) -> None:
    server = Server(mechanism)
    server.challenges = challenges
    assert linked_to(server, tmp_path).link().state is State.RUNNING


@pytest.mark.parametrize("url", [READABLE, LOCAL, SECURE])
@pytest.mark.parametrize("final", [b"v=" + b"A" * 86 + b"==", b"v=AAAA", b"v=!", b"", b"v", b"e=other-error", b"\xff"])
@pytest.mark.parametrize("challenges", [False, True])
def test_a_broker_that_does_not_know_the_password_is_refused(
    tmp_path: Path, url: str, final: bytes, challenges: bool
) -> None:
    server = Server(password="guess")
    server.final, server.challenges = final, challenges
    links = linked_to(server, tmp_path, url=url)
    expected = (
        "did not prove that it knows the password of user link" if final[:2] == b"v=" else "of SCRAM-SHA-512 cannot be"
    )
    assert expected in error(links)
    for _ in range(10):
        links.advance(1_000)
    assert len(server.inits) > 2
    assert server.secrets == [], "it never gets the password itself"


def test_a_broker_that_lets_in_without_an_exchange_is_refused(tmp_path: Path) -> None:
    server = Server()
    server.early = True
    assert "ended SCRAM-SHA-512 before its turn" in error(linked_to(server, tmp_path))


def test_a_wrong_password_is_refused_there_and_not_sent(tmp_path: Path) -> None:
    server = Server()
    links = linked_to(server, tmp_path, password="guess")
    assert error(links) == "login refused: the other broker rejected user link"
    for _ in range(10):
        links.advance(1_000)
    assert set(server.inits) == {"SCRAM-SHA-512"}


def test_an_offer_without_scram_is_a_downgrade_once_scram_was_offered(tmp_path: Path) -> None:
    server = Server()
    links = linked_to(server, tmp_path)
    assert links.link().state is State.RUNNING
    server.offered = ("PLAIN",)
    links.cut()
    for _ in range(10):
        links.advance(1_000)
    assert "has offered SCRAM, and now offers only PLAIN" in error(links)
    assert server.secrets == []
    server.offered = ("SCRAM-SHA-256", "PLAIN")
    links.mend(40_000)
    assert links.link().state is State.RUNNING


@pytest.mark.parametrize("url", [LOCAL, SECURE])
def test_where_nobody_can_read_it_plain_follows_on_a_refusal(tmp_path: Path, url: str) -> None:
    server = Server()
    server.unknown = True
    links = linked_to(server, tmp_path, url=url)
    assert "rejected user link" in error(links)
    links.advance(2_000)
    assert links.link().state is State.RUNNING
    assert server.inits == ["SCRAM-SHA-512", "PLAIN"]
    links.cut()
    links.advance(5_000)
    assert server.inits[2:] == ["PLAIN"], "it does not ask again what was refused"
    server.password, server.unknown = "another", False
    links.cut()
    links.advance(60_000)
    assert server.inits[3:6] == ["PLAIN", "SCRAM-SHA-512", "PLAIN"]


def test_where_others_can_read_it_plain_does_not_follow(tmp_path: Path) -> None:
    server = Server()
    server.unknown = True
    linked_to(server, tmp_path).advance(10_000)
    assert set(server.inits) == {"SCRAM-SHA-512"}


@pytest.mark.parametrize(("limit", "fits"), [(5_000, True), (4_999, False)])
def test_the_other_broker_may_ask_for_so_many_iterations(tmp_path: Path, limit: int, fits: bool) -> None:
    links = linked_to(Server(iterations=5_000), tmp_path, scram_iterations_max=limit)
    if fits:
        assert links.link().state is State.RUNNING
    else:
        words = "asks for 5000 iterations of SCRAM-SHA-512, and scram-iterations-max is 4999"
        assert words in error(links)


@pytest.mark.parametrize("iterations", ["1", "4095", "10000001", "99999999999", "0x1000", "-1"])
def test_too_few_iterations_and_absurd_ones_are_refused(tmp_path: Path, iterations: str) -> None:
    server = Server()
    server.first = f"r=nonce,s=c2FsdHNhbHRzYWx0c2FsdA==,i={iterations}"
    assert "the other broker's message of SCRAM-SHA-512 cannot be used" in error(linked_to(server, tmp_path))


@pytest.mark.parametrize("first", ["r=another,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096", "e=unknown-user", "x", ","])
def test_a_malformed_first_message_is_refused(tmp_path: Path, first: str) -> None:
    server = Server()
    server.first = first
    assert "cannot be used" in error(linked_to(server, tmp_path))


@pytest.mark.parametrize("password", ["bell\a", b"\xff\xfe"])
def test_a_password_that_scram_does_not_allow_is_not_told(tmp_path: Path, password: str | bytes) -> None:
    server = Server()
    words = 'does not allow a character of the user or of the password: change it, or set sasl-mechanisms = ["PLAIN"]'
    assert error(linked_to(server, tmp_path, password=password)) == f"SCRAM-SHA-512 {words}"
    assert server.inits == []


def test_a_connection_that_is_lost_while_the_proof_is_made(tmp_path: Path) -> None:
    server = Server()
    links = linked_to(server, tmp_path)
    links.cut()
    links.broker.advance(2_000)
    links.look()
    while not links.computing:
        links.wires["b"].carry()
        links.broker.run()
    links.cut()
    links.advance(5_000)
    assert links.link().state is State.RUNNING
