"""Logins by every mechanism, right and wrong."""

from __future__ import annotations

import pytest
from scramp import ScramClient

from broker.engine.model.access import Identity
from broker.engine.model.report import Report
from broker.security.certificates import Rule
from broker.security.login import UserGate
from broker.security.login_policy import Policy
from broker.security.throttle import Throttle
from broker.sessions.login import Peer
from broker.sessions.sasl import REFUSED, Answer, Challenge, Exchange, Granted, begin
from tests.support.sim_gate import InlineRunner, cheap_user

BOB = Identity("bob", frozenset({"clerks"}))
USERS = {"bob": cheap_user("secret", "clerks"), "eve": cheap_user("other", "clerks")}
RULES = [Rule("CN=*,O=Example", "%cn")]
PEER = Peer("1.2.3.4:5", "1.2.3.4")
CERTIFIED = Peer("1.2.3.4:6", "1.2.3.4", True, (("CN", "bob"), ("O", "Example")))


def unheard(code: str, /, **fields: str | int) -> None:
    """Nobody reads the log."""


def gate(*, users: bool = True, anonymous: frozenset[str] | None = None, report: Report = unheard) -> UserGate:
    policy = Policy(USERS if users else None, anonymous, RULES)
    return UserGate(policy, runner=InlineRunner(), throttle=Throttle(lambda: 0, 0), report=report, secret=b"x" * 32)


def step(exchange: Exchange, message: bytes) -> Answer:
    answers: list[Answer] = []
    exchange.step(message, answers.append)
    [answer] = answers
    return answer


def scram(exchange: Exchange, mechanism: str, name: str, password: str) -> Answer:
    client = ScramClient([mechanism], name, password)
    challenge = step(exchange, client.get_client_first().encode())
    assert isinstance(challenge, Challenge)
    client.set_server_first(challenge.data.decode())
    final = step(exchange, client.get_client_final().encode())
    if isinstance(final, Granted):
        assert final.data is not None
        client.set_server_final(final.data.decode())  # the client checks that the server knows the password
    return final


def test_offered_mechanisms() -> None:
    assert gate(users=False, anonymous=frozenset()).mechanisms(PEER) == ("ANONYMOUS", "PLAIN")
    assert gate().mechanisms(PEER) == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    assert gate().mechanisms(CERTIFIED) == ("EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    assert gate(anonymous=frozenset()).mechanisms(PEER)[-1] == "ANONYMOUS"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(mechanism: str) -> None:
    right = scram(begin(mechanism, gate(), PEER), mechanism, "bob", "secret")
    assert isinstance(right, Granted)
    assert right.identity == BOB
    for name, password in (("bob", "wrong"), ("eve", "secret"), ("mallory", "secret")):
        assert scram(begin(mechanism, gate(), PEER), mechanism, name, password) == REFUSED


@pytest.mark.parametrize("message", [b"", b"n,,", b"\xff", b"n,,n=bob", b"p=tls-unique,,n=bob,r=x"])
def test_a_scram_message_that_is_none(message: bytes) -> None:
    assert step(begin("SCRAM-SHA-256", gate(), PEER), message) == REFUSED


@pytest.mark.parametrize("message", [b"\0bob\0secret", b"bob\0bob\0secret"])
def test_plain(message: bytes) -> None:
    assert step(begin("PLAIN", gate(), PEER), message) == Granted(BOB)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"bob\0secret",
        b"\0bob\0wrong",
        b"\0bob\0",
        b"\0\0",
        b"\0\0secret",
        b"\0eve\0secret",
        b"eve\0bob\0secret",
        b"\0\xff\0x",
        b"\0bob\0a\0b",
    ],
)
def test_plain_refused(message: bytes) -> None:
    assert step(begin("PLAIN", gate(anonymous=frozenset({"guests"})), PEER), message) == REFUSED
    assert step(begin("PLAIN", gate(), CERTIFIED), message) == REFUSED, "a certificate does not help a wrong password"


@pytest.mark.parametrize(("name", "granted"), [(b"", True), (b"bob", True), (b"eve", False), (b"\xff", False)])
def test_external(name: bytes, granted: bool) -> None:
    assert step(begin("EXTERNAL", gate(), CERTIFIED), name) == (Granted(BOB) if granted else REFUSED)


def test_external_needs_a_certificate_of_a_user() -> None:
    assert step(begin("EXTERNAL", gate(), PEER), b"") == REFUSED
    for subject in ((("CN", "mallory"), ("O", "Example")), (("CN", "bob"), ("O", "Else")), (("CN", "bob"),)):
        stranger = Peer("1.2.3.4:7", "1.2.3.4", True, subject)
        assert step(begin("EXTERNAL", gate(), stranger), b"") == REFUSED


def test_without_users_anybody_comes_in_and_nobody_is_known() -> None:
    open_gate = gate(users=False, anonymous=frozenset({"amq"}))
    for mechanism, message in (("PLAIN", b"\0bob\0anything"), ("ANONYMOUS", b""), ("ANONYMOUS", b"trace")):
        answer = step(begin(mechanism, open_gate, PEER), message)
        assert answer == Granted(Identity("", frozenset({"amq"})))


def test_anonymous_where_it_is_allowed() -> None:
    allowed = gate(anonymous=frozenset({"guests"}))
    assert step(begin("ANONYMOUS", allowed, PEER), b"") == Granted(Identity("", frozenset({"guests"})))


@pytest.mark.parametrize(("mechanism", "users"), [("ANONYMOUS", True), ("SCRAM-SHA-256", False), ("GSSAPI", True)])
def test_a_mechanism_that_is_not_offered(mechanism: str, users: bool) -> None:
    heard: list[dict[str, str | int]] = []

    def hear(code: str, /, **fields: str | int) -> None:
        heard.append(fields)

    refusing = gate(users=users, anonymous=None if users else frozenset(), report=hear)
    assert step(begin(mechanism, refusing, PEER), b"") == REFUSED
    reason = f"the mechanism {mechanism} is not offered"
    assert heard == [{"remote": PEER.remote, "user": "", "reason": reason}], "only the log says why"
