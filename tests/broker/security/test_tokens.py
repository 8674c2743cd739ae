"""Tokens of an issuer: what has to hold before one is believed, where they are taken, and how keys are renewed."""

from __future__ import annotations

import base64
import hmac
import json
import math
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPException
from typing import Any, NoReturn

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from broker.engine.model.access import Identity
from broker.security.keys import UNKNOWN_MS, WAITING_MAX, FetchedKeys
from broker.security.login_policy import Policy
from broker.security.password_checks import HASHES_WAITING_MAX
from broker.security.tokens import (
    ALGORITHMS,
    KEYS_MAX,
    ROLES_MAX,
    TOKEN_BYTES_MAX,
    BadToken,
    KeySet,
    TokenRules,
    Tokens,
    UnknownKey,
    looks_like_token,
)
from broker.sessions.login import Peer
from broker.sessions.sasl import OAUTHBEARER, PLAIN, XOAUTH2, Granted, begin
from tests.broker.security.logins import BOB, CLERK, Bench
from tests.support.issuer import AUDIENCE, ISSUER, key_set, private_key, public_jwk, token
from tests.support.sim_gate import outcome

NOW = 1_700_000_000_000
RULES = TokenRules(ISSUER, AUDIENCE, leeway_ms=10_000)
KEYS = KeySet(key_set(public_jwk("ES256", "1"), public_jwk("RS256", "2")))


def tokens(*, now: int = NOW, keys: KeySet | None = KEYS, **rules: Any) -> Tokens:
    """What checks tokens at a time."""
    return Tokens(replace(RULES, **rules), lambda: keys, lambda: now)


def part(value: object) -> bytes:
    """A part of a token."""
    return base64.urlsafe_b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).rstrip(b"=")


# -- one token ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(algorithm: str) -> None:
    keys = KeySet(key_set(public_jwk(algorithm, "k")))
    found = tokens(keys=keys).check(token(algorithm, id="k"))
    assert (found.user, found.roles, found.expires) == ("alice", frozenset({"amq"}), NOW + 3_610_000)
    others = tuple(each for each in ALGORITHMS if each != algorithm)
    with pytest.raises(BadToken, match="not allowed"):
        tokens(keys=keys, algorithms=others).check(token(algorithm, id="k"))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://issuer.example.org/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": ["other", "bartleby2"]}, "audience"),
        ({"aud": None}, "audience"),
        ({"exp": None}, "never expires"),
        ({"exp": NOW // 1000 - 10}, "has expired"),
        ({"exp": "soon"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": math.inf}, "not a time"),
        ({"exp": math.nan}, "not a time"),
        ({"nbf": NOW // 1000 + 11}, "is not valid yet"),
        ({"iat": NOW // 1000 + 11}, "is not valid yet"),
        ({"sub": None}, "not a user name"),
        ({"sub": ""}, "not a user name"),
        ({"sub": "a\nb"}, "not a user name"),
        ({"sub": ["alice"]}, "not a user name"),
    ],
)
def test_required_claims(claims: dict[str, Any], reason: str) -> None:
    key = private_key("ES256")
    # the library would not write some of these
    every = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW // 1000 + 60, **claims}
    body = json.dumps({name: value for name, value in every.items() if value is not None}).encode()
    signed = jwt.PyJWS().encode(body, key, "ES256", {"kid": "1"}).encode()
    with pytest.raises(BadToken, match=reason):
        tokens().check(signed)


def test_the_clocks_may_be_apart_by_the_leeway() -> None:
    late = token(exp=NOW // 1000 - 9, iat=None)
    assert tokens().check(late).expires == NOW + 1_000
    assert tokens().check(token(nbf=NOW // 1000 + 10, iat=NOW // 1000 + 10)).user == "alice"
    with pytest.raises(BadToken):
        tokens(leeway_ms=0).check(late)


@pytest.mark.parametrize(
    ("claims", "claim", "roles"),
    [
        ({"roles": ["a", "b", 3]}, "roles", {"a", "b"}),
        ({"scope": "read write"}, "scope", {"read", "write"}),
        ({"realm_access": {"roles": ["x"]}}, "realm_access.roles", {"x"}),
        ({"https://a.b/roles": ["y"]}, "https://a.b/roles", {"y"}),
        ({"roles": None}, "roles", set()),
        ({"roles": {"a": 1}}, "roles.a.b", set()),
        ({"roles": [str(n) for n in range(ROLES_MAX + 1)]}, "roles", {str(n) for n in range(ROLES_MAX)}),
    ],
)
def test_roles(claims: dict[str, Any], claim: str, roles: set[str]) -> None:
    assert tokens(roles_claim=claim).check(token(**claims)).roles == roles


def test_a_token_that_nobody_signed_and_one_signed_with_the_public_key() -> None:
    """alg none, and HMAC with what everybody can know: the two classics."""
    body = token().split(b".")[1]
    for algorithm in ("none", "None", "NONE", "HS256", "", None, ["ES256"]):
        head = part({"alg": algorithm, "kid": "1"})
        secret = json.dumps(public_jwk("ES256", "1")).encode()
        for signature in (b"", part(hmac.digest(secret, head + b"." + body, "sha256"))):
            with pytest.raises(BadToken):
                tokens().check(head + b"." + body + b"." + signature)
    with pytest.raises(ValueError, match="no public key"):
        KeySet(key_set({"kty": "oct", "k": "c2VjcmV0", "kid": "1"}))


def test_a_key_is_for_its_own_algorithms_only() -> None:
    with pytest.raises(BadToken, match="does not match its key"):
        tokens().check(token("RS256", id="1"))
    only = KeySet(key_set(public_jwk("RS256", "2", alg="RS256")))
    assert tokens(keys=only).check(token("RS256", id="2")).user == "alice"
    with pytest.raises(BadToken, match="does not match its key"):
        tokens(keys=only).check(token("PS256", id="2", key=private_key("RS256")))


def test_no_key_comes_from_the_token() -> None:
    own = {"jwk": public_jwk("ES384", "1"), "jku": "https://evil.example/keys", "x5u": "https://evil.example/x"}
    with pytest.raises(BadToken):
        tokens().check(token("ES384", headers=own))
    with pytest.raises(BadToken):
        tokens().check(token(headers={"crit": ["exp"], "exp": 1}))
    with pytest.raises(BadToken, match="extensions"):
        tokens().check(part({"alg": "ES256", "kid": "1", "crit": ["b64"], "b64": True}) + b".e30." + part(b"x" * 64))


def test_changed_tokens_are_not_believed() -> None:
    good = token()
    assert tokens().check(good).user == "alice"
    for at in range(0, len(good), 7):
        changed = good[:at] + (b"A" if good[at : at + 1] != b"A" else b"B") + good[at + 1 :]
        with pytest.raises(BadToken):
            tokens().check(changed)
    head, body, signature = good.split(b".")
    for wrong in (
        b"",
        b".",
        b"..",
        head,
        head + b"." + body,
        head + b"." + body + b".",
        good + b".x",
        part([]) + b"." + body + b"." + signature,
        part(b"[" * 5_000) + b"." + body + b"." + signature,
        b"\xff" * 100,
        good + b"A" * TOKEN_BYTES_MAX,
    ):
        with pytest.raises(BadToken):
            tokens().check(wrong)


def test_tokens_without_a_key_id() -> None:
    with pytest.raises(BadToken, match="which key signed"):
        tokens().check(token(id=None))
    assert tokens(keys=KeySet(key_set(public_jwk("ES256", None)))).check(token(id=None)).user == "alice"
    with pytest.raises(UnknownKey):
        tokens().check(token(id="9"))
    with pytest.raises(UnknownKey):
        tokens(keys=None).check(token())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"keys": 5}',
        b'{"keys": []}',
        b'{"keys": [5, {}, {"kty": "RSA"}, {"kty": "EC", "crv": "P-256", "x": "!", "y": ""}]}',
        b"[" * 100_000,
        key_set(*[public_jwk("ES256", str(n)) for n in range(KEYS_MAX + 1)]),
        key_set(public_jwk("ES256", "1", use="enc")),
        key_set(public_jwk("ES256", "1", d="AAAA")),
    ],
    ids=["", "{", "[]", "bytes", "number", "none", "strange", "deep", "many", "enc", "private"],
)
def test_no_key_set(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"key"):
        KeySet(content)


def test_a_short_rsa_key_is_no_key() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
    with pytest.raises(ValueError, match="no public key"):
        KeySet(key_set(RSAAlgorithm.to_jwk(short, as_dict=True)))


# -- the gate ----------------------------------------------------------------------------------------------------------


def gate(
    *, users: bool = True, delay: int = 0, renew: Callable[[Callable[[], None]], None] | None = None, now: int = NOW
) -> Bench:
    """A gate that takes tokens; its users are bob, or nobody."""
    bench = Bench(delay=delay)
    bench.gate.change(Policy({"bob": BOB} if users else {}, tokens=tokens(now=now), renew=renew))
    return bench


ALICE = Identity("alice", frozenset({"amq"}))


@pytest.mark.parametrize("name", ["", "alice"])
def test_a_token_as_a_password(name: str) -> None:
    bench = gate()
    peer = bench.login(name, token())
    assert bench.told == [], "it is checked beside the event loop"
    bench.hash()
    assert bench.told == [ALICE]
    assert bench.told[0] is not None
    assert bench.told[0].lasting
    assert not bench.gate.peers.gone(peer), "though no users file knows him"
    assert not bench.gate.peers.expired(peer, NOW)
    assert bench.gate.peers.expired(peer, NOW + 3_610_000)
    assert bench.gate.peers.any_expired(NOW + 3_610_000)
    bench.gate.left(peer)
    assert not bench.gate.peers.any_expired(NOW + 3_610_000)


CHANGES: list[tuple[Tokens | None, bool]] = [
    (tokens(), True),
    (tokens(keys=KeySet(key_set(public_jwk("ES256", "another name")))), True),
    (tokens(keys=None), True),
    (tokens(keys=KeySet(key_set(public_jwk("ES384", "1")))), False),
    (tokens(audience="other"), False),
    (None, False),
]


@pytest.mark.parametrize(("checks", "stays"), CHANGES)
def test_a_user_of_a_token_goes_with_its_key_and_its_rules(checks: Tokens | None, stays: bool) -> None:
    bench = gate()
    peer = bench.enter("", token())
    bench.gate.change(Policy({}, tokens=checks))
    assert bench.gate.peers.gone(peer) is not stays


@pytest.mark.parametrize(("checks", "stays"), [each for each in CHANGES if each[0] is None or each[0].present])
def test_a_token_in_flight_is_checked_by_the_rules_of_its_end(checks: Tokens | None, stays: bool) -> None:
    bench = gate()
    bench.login("", token())
    bench.gate.change(Policy({}, tokens=checks))
    while bench.work:
        bench.hash()
    [told] = bench.told
    known = checks is None or (checks.present is not None and "1" in checks.present.keys)
    assert (told is not None) is (stays and known)


def test_keys_that_change_on_their_own() -> None:
    """An issuer that is asked by URL withdraws one."""
    keys = KEYS
    bench = Bench()
    bench.gate.change(Policy({}, tokens=Tokens(RULES, lambda: keys, lambda: NOW)))
    peer = bench.enter("", token())
    assert bench.gate.peers.any_withdrawn()
    assert not bench.gate.peers.any_withdrawn(), "told once"
    assert not bench.gate.peers.gone(peer)
    bench.login("", token())
    keys = KeySet(key_set(public_jwk("RS256", "2")))
    assert bench.gate.peers.any_withdrawn()
    assert bench.gate.peers.gone(peer)
    bench.hash()
    while bench.work:
        bench.hash()
    assert bench.told[-1] is None, "one that was on its way"


@pytest.mark.parametrize(
    ("name", "given"),
    [("bob", token()), ("", token(sub="")), ("", token()[:-9] + b"A" * 9)],
    ids=["of another", "of nobody", "changed"],
)
def test_a_token_that_does_not_count(name: str, given: bytes) -> None:
    bench = gate()
    bench.enter(name, given)
    assert bench.told == [None]
    assert "login.refused" in bench.reports


def test_wrong_tokens_slow_their_origin() -> None:
    bench = gate(delay=100)
    bench.enter("", token(aud="x"))
    assert [ms for ms, _ in bench.waiting] == [100]


def test_passwords_still_work_and_without_an_issuer_a_token_is_one() -> None:
    bench = gate()
    bench.enter()
    assert bench.told == [CLERK]
    bench = Bench()
    bench.login("bob", token())
    bench.login("", token())
    bench.gate.bearer(Peer("x", "y"), "", token(), bench.told.append)
    bench.hash()
    assert bench.told == [None, None, None]


@pytest.mark.parametrize(
    ("mechanism", "message", "user"),
    [
        (OAUTHBEARER, b"n,a=alice,\1host=h\1port=1\1auth=Bearer %b\1\1", "alice"),
        (OAUTHBEARER, b"n,,\1auth=bearer %b\1\1", "alice"),
        (OAUTHBEARER, b"n,a=bob,\1auth=Bearer %b\1\1", None),
        (OAUTHBEARER, b"n,,\1auth=Basic %b\1\1", None),
        (XOAUTH2, b"user=alice\1auth=Bearer %b\1\1", "alice"),
        (XOAUTH2, b"user=bob\1auth=Bearer %b\1\1", None),
        (XOAUTH2, b"user=\xff\1auth=Bearer %b\1\1", None),
        (PLAIN, b"\0alice\0%b", "alice"),
        (PLAIN, b"\0\0%b", "alice"),
        (OAUTHBEARER, b"", None),
        (OAUTHBEARER, b"\1", None),
    ],
)
def test_mechanisms(mechanism: str, message: bytes, user: str | None) -> None:
    bench = gate()
    answers: list[object] = []
    begin(mechanism, bench.gate, Peer("1.1.1.1:1", "1.1.1.1")).step(
        message % token() if b"%b" in message else message, answers.append
    )
    bench.hash()
    [answer] = answers
    assert (answer.identity.user if isinstance(answer, Granted) else None) == user


def test_they_are_offered_where_tokens_are_taken() -> None:
    peer = Peer("1.1.1.1:1", "1.1.1.1")
    assert {OAUTHBEARER, XOAUTH2} <= set(gate().gate.mechanisms(peer))
    assert not {OAUTHBEARER, XOAUTH2} & set(Bench().gate.mechanisms(peer))


def test_texts_that_look_like_a_token() -> None:
    assert looks_like_token(token())
    assert not any(map(looks_like_token, (b"", b"secret", b"eyJhbGciOi", b"eyJ.a", b"a.b.c", token() + b".d.e")))


# -- keys by URL -------------------------------------------------------------------------------------------------------


class Away:
    """Where keys are, reached by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.answer: bytes | Exception = key_set(public_jwk("ES256", "1"))
        self.fetches = 0
        self.pending: list[Callable[[], None]] = []
        self.reports: list[str] = []
        self.keys = FetchedKeys(self.fetch, self, report=self.report, now=lambda: self.now, refresh=300_000)

    def fetch(self) -> bytes:
        self.fetches += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def report(self, code: str, /, **fields: str | int) -> None:
        self.reports.append(code)

    def aside(self, work: Callable[[], bytes], then: Callable[[bytes | BaseException], None]) -> None:
        self.pending.append(lambda: then(outcome(work)))

    def land(self) -> None:
        """The fetches that are under way end."""
        pending, self.pending = self.pending, []
        for each in pending:
            each()


def test_keys_are_fetched_again_from_time_to_time_and_the_last_good_ones_stay() -> None:
    away = Away()
    away.keys.look()
    away.keys.look()
    assert (away.fetches, len(away.pending)) == (0, 1)
    away.land()
    first = away.keys.present
    assert isinstance(first, KeySet)
    for answer in (OSError("no route"), ValueError("too long"), b"<html>", b'{"keys": []}'):
        away.answer = answer
        away.now += 300_000
        away.keys.look()
        away.land()
        assert away.keys.present is first
    assert away.reports == ["security.keys_failed"] * 4
    away.answer = key_set(public_jwk("ES256", "2"))
    away.now += 299_999
    away.keys.look()
    assert not away.pending
    away.now += 1
    away.keys.look()
    away.land()
    assert away.keys.present is not first
    assert away.fetches == 6


def test_an_unknown_key_is_asked_for_once_and_all_wait_for_the_answer() -> None:
    away = Away()
    told: list[int] = []
    for number in range(WAITING_MAX):
        away.keys.renew(lambda number=number: told.append(number))  # type: ignore[misc]
    assert told == []
    away.keys.renew(lambda: told.append(-1))
    assert told == [-1], "too many wait"
    away.land()
    assert len(told) == WAITING_MAX + 1
    away.now += UNKNOWN_MS - 1
    away.keys.renew(lambda: told.append(-2))
    assert told[-1] == -2, "just now there was no such key"
    assert away.fetches == 1
    away.now += 1
    away.keys.renew(lambda: told.append(-3))
    away.land()
    assert (away.fetches, told[-1]) == (2, -3)


def test_a_fetch_that_fails_in_whatever_way_is_over() -> None:
    away = Away()
    told: list[int] = []

    def fails() -> NoReturn:
        raise RuntimeError("planted")

    away.answer = HTTPException("cut short")
    away.keys.renew(fails)
    away.keys.renew(lambda: told.append(1))
    with pytest.raises(RuntimeError, match="planted"):
        away.land()
    assert (told, away.reports) == ([1], ["security.keys_failed"])
    away.now = UNKNOWN_MS
    away.keys.look()
    assert away.pending, "the next one is tried"


def test_a_token_whose_check_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fault of the broker: it slows nobody, and is no token that waits for ever."""

    def fails(self: object, token: bytes) -> NoReturn:
        raise MemoryError

    bench = gate(delay=1_000)
    with monkeypatch.context() as planted:
        planted.setattr(Tokens, "check", fails)
        for _ in range(HASHES_WAITING_MAX):
            bench.login("", token())
        bench.hash()
    assert bench.told == [None] * HASHES_WAITING_MAX
    assert bench.reports == ["login.failed", "login.refused"] * HASHES_WAITING_MAX
    assert bench.waiting == []
    bench.enter("", token())
    assert bench.told[-1] == ALICE


def test_tokens_that_wait_are_bounded() -> None:
    bench = gate()
    for _ in range(HASHES_WAITING_MAX + 1):
        bench.login("", token())
    assert bench.told == [None]
    bench.hash()
    assert bench.told == [None] + [ALICE] * HASHES_WAITING_MAX
    bench.enter("", token())
    assert bench.told[-1] == ALICE, "those that were checked wait no more"


def test_a_token_that_is_no_longer_accepted_when_it_was_checked() -> None:
    told: list[str | int] = []

    def report(code: str, /, **fields: str | int) -> None:
        told.append(fields["reason"])

    bench = gate()
    bench.gate._report = report
    bench.login("", token())
    bench.gate.change(Policy({"bob": BOB}))
    bench.hash()
    assert (bench.told, told) == ([None], ["tokens are not accepted here"])


def test_a_key_that_is_new_lets_its_token_in() -> None:
    away = Away()
    away.answer = key_set(public_jwk("ES256", "1"))
    bench = Bench()
    checks = Tokens(RULES, lambda: away.keys.present, lambda: NOW)
    bench.gate.change(Policy({}, tokens=checks, renew=away.keys.renew))
    bench.enter("", token())
    assert bench.told == []
    away.land()
    bench.hash()
    assert bench.told == [ALICE]
    away.answer = key_set(public_jwk("ES256", "1"), public_jwk("ES384", "2"))
    away.now = UNKNOWN_MS
    bench.enter("", token("ES384", id="2"))
    away.land()
    bench.hash()
    bench.enter("", token(id="3"))
    bench.hash()
    assert bench.told == [ALICE, ALICE, None]
    assert away.fetches == 2
