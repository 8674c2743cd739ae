"""Logins: what is remembered, what waits, what is refused; users files; certificates' subjects."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from argon2.exceptions import InvalidHashError, VerificationError
from scramp import ScramClient

from broker.engine.model.access import Identity
from broker.security import passwords
from broker.security import throttle as throttle_module
from broker.security.certificates import Rule, subject_of, user_of
from broker.security.login_policy import Policy
from broker.security.password_checks import HASHES_WAITING_MAX
from broker.security.throttle import FORGET_MS, NAMES_MAX, ORIGINS_MAX, WAIT_MS_MAX, Throttle, block
from broker.security.users_file import StoredUser, UnusableFile, read_secret, read_users, with_password, write_users
from broker.sessions.login import Peer, call_all
from broker.sessions.sasl import SCRAMS, Answer, Challenge, Granted, begin
from tests.broker.security.logins import BOB, CLERK, Bench
from tests.support.sim_gate import cheap_user


def test_nobody_is_told_before_the_hash_is_done_and_then_it_is_remembered(bench: Bench) -> None:
    bench.login()
    assert bench.told == []
    bench.hash()
    assert bench.told == [CLERK]
    bench.login()
    assert len(bench.told) == 2, "the second time at once"
    bench.gate.change(Policy({"bob": cheap_user("other", "clerks")}))
    bench.enter()
    assert bench.told[2] is None, "what was remembered does not outlive a change"


def test_no_password_is_remembered_after_a_change_of_users(bench: Bench) -> None:
    """Not even one that still is right."""
    bench.enter()
    bench.gate.change(Policy({"bob": BOB}))
    bench.login()
    assert (len(bench.work), bench.told) == (1, [CLERK])


def test_the_same_login_many_times_is_one_hash(bench: Bench) -> None:
    for _ in range(100):
        bench.login()
    assert len(bench.work) == 1
    bench.hash()
    assert bench.told == [CLERK] * 100


def test_hashes_that_wait_are_bounded(bench: Bench) -> None:
    for number in range(HASHES_WAITING_MAX + 1):
        bench.login(password=b"%d" % number)
    assert bench.told == [None]
    assert len(bench.work) == bench.threads
    bench.hash()
    assert len(bench.told) == HASHES_WAITING_MAX + 1


def test_a_flood_from_one_address_does_not_delay_logins_from_others(bench: Bench) -> None:
    for number in range(HASHES_WAITING_MAX + 50):
        bench.login(password=b"%d" % number)
    assert len(bench.told) == 50, "its own are too many"
    for number in range(50):
        bench.login("bob", b"secret", f"2.2.2.{number}")
    assert bench.told.count(None) == len(bench.told) == 51, "one place for all who have the same password"
    for _ in range(bench.threads + 2):
        bench.work.pop(0)()
    assert bench.told.count(CLERK) == 50, "after two hashes of the flood, and one that was its turn"


def test_addresses_share_the_places_of_waiting_hashes(bench: Bench) -> None:
    """Any number of IPv6 addresses of one network count as one."""
    for number in range(HASHES_WAITING_MAX):
        bench.login(password=b"%d" % number, origin=f"2001:db8::{number:x}")
    for number in range(HASHES_WAITING_MAX):
        bench.login(password=b"-%d" % number, origin="1.1.1.1")
    assert bench.reports.count("login.refused") == HASHES_WAITING_MAX
    bench.login("alice", b"other", origin="3.3.3.3")
    for _ in range(bench.threads + 3):
        bench.work.pop(0)()
    told = len(bench.told)
    bench.hash()
    assert len(bench.told) - told == HASHES_WAITING_MAX - bench.threads - 3
    assert len(bench.told) == 2 * HASHES_WAITING_MAX + 1, "everybody is answered, once"


def test_a_password_that_waits_behind_a_flood_has_a_turn_of_its_own(bench: Bench) -> None:
    """The same one from another address: it is checked when the first of both has its turn."""
    for number in range(100):
        bench.login(password=b"%d" % number)
    bench.login()
    bench.login(origin="2.2.2.2")
    for _ in range(bench.threads + 2):
        bench.work.pop(0)()
    assert bench.told.count(CLERK) == 2
    bench.hash()
    assert len(bench.told) == 102


def test_a_user_who_changes_while_the_hash_is_made_is_refused(bench: Bench) -> None:
    bench.login()
    bench.gate.change(Policy({}))
    bench.hash()
    assert bench.told == [None]


def test_an_old_password_does_not_join_a_hash_from_before_the_change(bench: Bench) -> None:
    """The first login began with the old hash; a verdict about that one says nothing about the new one."""
    bench.login()
    bench.gate.change(Policy({"bob": cheap_user("new", "clerks")}))
    bench.enter()
    assert bench.told == [None, None]
    bench.enter()
    assert bench.told == [None] * 3, "nor is it remembered"
    bench.enter(password=b"new")
    assert bench.told[-1] is not None


def test_a_login_behind_many_others_is_of_the_password_of_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, through the queue of the threads and with the password that was right."""
    monkeypatch.setattr(passwords, "DECOY", BOB.password)  # is quick to check
    for number in range(60):
        bench.login("junk", b"%d" % number)
    bench.login()
    for password in ("new", "newer", "secret"):
        bench.gate.change(Policy({"bob": cheap_user(password, "clerks", password)}))
        bench.login()
    bench.hash()
    assert [identity for identity in bench.told if identity is not None] == [
        Identity("bob", frozenset({"clerks", "secret"}))
    ], "the password of now, with the roles of now"


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize(
    ("users", "granted"),
    [
        ({"bob": BOB}, True),
        ({"bob": cheap_user("secret", "clerks", "more")}, True),
        ({"bob": cheap_user("new", "clerks")}, False),
        ({"bob": StoredUser(frozenset({"clerks"}), BOB.password)}, False),
        ({}, False),
    ],
    ids=["nothing", "roles", "password", "no SCRAM any more", "removed"],
)
def test_a_scram_proof_is_for_the_keys_of_its_end(
    bench: Bench, mechanism: str, users: dict[str, StoredUser], granted: bool
) -> None:
    """The user changes between the server's first message and the client's last."""
    peer = Peer("1.1.1.1:1", "1.1.1.1")
    answers: list[Answer] = []
    exchange = begin(mechanism, bench.gate, peer)
    client = ScramClient([mechanism], "bob", "secret")
    exchange.step(client.get_client_first().encode(), answers.append)
    assert isinstance(answers[0], Challenge)
    client.set_server_first(answers[0].data.decode())
    bench.gate.change(Policy(users))
    exchange.step(client.get_client_final().encode(), answers.append)
    assert isinstance(answers[1], Granted) is granted
    if isinstance(answers[1], Granted):
        assert answers[1].identity.roles == users["bob"].roles


def test_a_login_whose_client_has_gone_takes_no_place() -> None:
    bench = Bench(per_user=1)
    peer = bench.login()
    bench.gate.left(peer)
    bench.hash()
    assert bench.told == [None]
    bench.login()
    assert bench.told[-1] is not None


def test_a_connection_that_logs_in_again_has_one_place() -> None:
    """A connection of HTTP may be another user's with each call."""
    bench = Bench(per_user=1)
    bench.gate.change(Policy({"bob": BOB, "eve": BOB}, per_user=1))
    peer = Peer("1.1.1.1:1", "1.1.1.1")
    for name in ("bob", "bob", "eve"):
        bench.gate.login(peer, name, b"secret", bench.told.append)
        bench.hash()
    bench.enter()
    assert None not in bench.told
    bench.enter("eve")
    assert bench.told[-1] is None


def test_unknown_users_are_hashed_too(bench: Bench) -> None:
    bench.login(name="mallory")
    assert len(bench.work) == 1
    bench.hash()
    assert bench.told == [None]


@pytest.mark.parametrize(("name", "password"), [("bob", b""), ("", b"secret"), ("", b"")])
def test_half_a_login_is_refused_without_a_hash(bench: Bench, name: str, password: bytes) -> None:
    """CVE-2016-9877: a user name alone."""
    bench.login(name, password)
    assert (bench.told, bench.work) == ([None], [])


def test_failed_logins_make_their_origin_wait_and_nobody_else() -> None:
    bench = Bench(delay=100)
    for expected in (100, 200, 400):
        bench.enter(password=b"wrong")
        [(ms, call)] = bench.waiting
        assert ms == expected
        bench.waiting.clear()
        bench.now += ms
        call()
    assert bench.told == [None] * 3
    bench.login(password=b"wrong")  # in time: looked at at once, and the next one waits
    bench.login()
    [(ms, _)] = bench.waiting
    assert 0 < ms <= WAIT_MS_MAX
    bench.login(origin="2.2.2.2")
    assert len(bench.work) == 2, "somebody else does not wait"
    for _ in range(100):
        bench.login(password=b"guess")
    assert bench.told.count(None) > 90, "who would wait too long is refused unseen"
    bench.now += 10 * 60_000 + 1
    bench.waiting.clear()
    bench.enter()
    assert bench.told[-1] is not None, "after a while all is forgotten"


def test_a_right_login_forgets_the_failures_of_its_own_name_only() -> None:
    throttle = Throttle(lambda: 0, 100)
    for _ in range(2):
        throttle.failed("a", "bob")
    throttle.failed("a", "eve")
    throttle.succeeded("a", "eve")
    assert throttle.reserve("a", "eve") == 0
    assert throttle.reserve("a", "bob") == 200
    throttle.succeeded("a", "bob")
    assert throttle.reserve("a", "bob") == 0
    assert throttle.failed("a", "bob") == 100


@pytest.mark.parametrize("names", [["eve"], [f"user{n}" for n in range(1_000)]], ids=["one name", "many names"])
def test_a_flood_of_wrong_passwords_keeps_nobody_else_behind_its_address_out(names: list[str]) -> None:
    throttle = Throttle(lambda: 0, 1_000)
    for name in names * (1_000 // len(names)):
        if throttle.reserve("a", name) is not None:
            throttle.failed("a", name)
    assert throttle.reserve("a", "bob") == 0, "the right password is checked at once"
    assert throttle.failed("a", "bob") == WAIT_MS_MAX, "a wrong one is answered late"


def test_names_that_are_tried_once_do_not_displace_one_that_is_tried_often() -> None:
    throttle = Throttle(lambda: 0, 1_000)
    for _ in range(4):
        throttle.failed("a", "bob")
    for n in range(NAMES_MAX * 3):
        throttle.failed("a", f"user{n}")
    assert throttle.reserve("a", "bob") == WAIT_MS_MAX


def test_a_name_that_has_not_been_tried_for_long_is_displaced_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "NAMES_MAX", 2)
    now = 0
    throttle = Throttle(lambda: now, 1_000)
    for _ in range(4):
        throttle.failed("a", "bob")
    now = FORGET_MS // 2
    throttle.failed("a", "eve")
    now = FORGET_MS + WAIT_MS_MAX
    throttle.failed("a", "ann")
    assert throttle._origins["a"].names.keys() == {hash("bob"), hash("ann")}, "not for long enough"
    now += 2 * WAIT_MS_MAX
    throttle.failed("a", "ann")
    throttle.failed("a", "eve")
    assert throttle._origins["a"].names.keys() == {hash("ann"), hash("eve")}


def test_names_without_passwords_displace_none() -> None:
    """They cost no hash."""
    bench = Bench(delay=1_000)
    bench.enter(password=b"wrong")
    for n in range(NAMES_MAX + 1):
        bench.login(f"user{n}", b"")
    bench.waiting.clear()
    bench.login(password=b"guess")
    assert [ms for ms, _ in bench.waiting] == [1_000]


@pytest.mark.parametrize(("guesses", "often"), [(1, 2), (5, 6)])
def test_a_name_is_guessed_no_faster_behind_names_that_are_tried_to_displace_it(guesses: int, often: int) -> None:
    """A hundred hashes a second, seven times what two threads make, in whichever way they are used."""
    now = checked = turn = 0
    throttle = Throttle(lambda: now, 1_000)
    while now < 20 * 60_000:
        for name in ["bob"] * guesses + [f"user{turn}"] * often:
            if throttle.reserve("a", name) == 0:
                throttle.failed("a", name)
                checked += name == "bob"
        turn += 1
        now += 10 * (guesses + often)
    assert checked <= 300


def test_names_of_all_origins_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "ALL_NAMES_MAX", 10)
    throttle = Throttle(lambda: 0, 100)
    for n in range(10):
        throttle.failed("flood", f"user{n}")
    throttle.failed("a", "bob")
    throttle.failed("a", "bob")
    for n in range(10):
        throttle.failed("flood", f"another{n}")
    assert throttle.reserve("a", "bob") == 200
    assert throttle._names == 10
    throttle.succeeded("a", "bob")
    assert throttle._names == 9


def test_ones_own_logins_between_guesses_do_not_help() -> None:
    """Six in ten seconds, whether or not the guesser logs in as itself in between."""
    now = checked = 0
    throttle = Throttle(lambda: now, 1_000)
    for now in range(0, 10_000, 100):  # noqa: B007 - the throttle reads it
        throttle.succeeded("a", "eve")
        if throttle.reserve("a", "bob") == 0:
            throttle.failed("a", "bob")
            checked += 1
    assert checked <= 6


def test_origins_with_failures_are_limited() -> None:
    """The one whose last failure is the longest ago is forgotten, with its names."""
    throttle = Throttle(lambda: 0, 100)
    throttle.failed("first", "bob")
    throttle.failed("second", "bob")
    throttle.failed("first", "eve")
    for n in range(ORIGINS_MAX - 1):
        throttle.failed(f"10.0.{n >> 8}.{n & 255}", "bob")
    assert [throttle.reserve(origin, "bob") for origin in ("first", "second", "10.0.0.0")] == [100, 0, 100]
    assert (len(throttle._origins), throttle._names) == (ORIGINS_MAX, ORIGINS_MAX + 1)


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_whose_an_address_is(address: str, whose: str) -> None:
    assert block(address) == whose


def test_connections_of_one_user_are_counted() -> None:
    bench = Bench(per_user=2)
    first = bench.login()
    bench.enter()
    bench.login()
    assert [identity is not None for identity in bench.told] == [True, True, False]
    assert "login.too_many" in bench.reports
    bench.gate.left(first)
    bench.gate.left(first)
    bench.login()
    assert bench.told[-1] is not None


def test_a_user_with_another_number_of_connections() -> None:
    bench = Bench(per_user=0)
    bench.gate.change(Policy({"bob": BOB, "eve": BOB}, per_user=0, allowed={"bob": 1}))
    for name in ("bob", "bob", "eve"):
        bench.enter(name)
    assert [identity is not None for identity in bench.told] == [True, False, False]


def test_a_client_that_is_gone(bench: Bench) -> None:
    peer = bench.enter()
    assert not bench.gate.peers.gone(peer)
    bench.gate.change(Policy({"bob": StoredUser()}))
    assert not bench.gate.peers.gone(peer)
    bench.gate.change(Policy({}))
    assert bench.gate.peers.gone(peer)


def test_a_certificate_lets_in_no_other_user_than_its_own(bench: Bench) -> None:
    bench.gate.change(Policy({"bob": BOB, "eve": BOB}, rules=[Rule("CN=bob", "bob")]))
    peer = Peer("1.1.1.1:1", "1.1.1.1", True, (("CN", "bob"),))
    assert bench.gate.external(peer, "eve") is None
    assert bench.reports == ["login.refused"]
    assert bench.gate.external(peer, "bob") == CLERK


def test_a_certificate_without_its_rule_is_gone(bench: Bench) -> None:
    rules = [Rule("CN=bob", "bob")]
    bench.gate.change(Policy({"bob": BOB, "eve": BOB}, rules=rules))
    peer = Peer("1.1.1.1:1", "1.1.1.1", True, (("CN", "bob"),))
    assert bench.gate.external(peer, "") is not None
    bench.gate.change(Policy({"bob": BOB}, rules=rules))
    assert not bench.gate.peers.gone(peer)
    for policy in (
        Policy({"bob": BOB}),
        Policy({"bob": BOB, "eve": BOB}, rules=[Rule("CN=bob", "eve")]),
        Policy({"eve": BOB}, rules=rules),
    ):
        bench.gate.change(policy)
        assert bench.gate.peers.gone(peer)


# -- the users file ----------------------------------------------------------------------------------------------------


def test_a_file_of_secrets_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.touch(0o600)
    path.write_bytes(b"x" * 10)
    assert read_secret(path, "the key", 10) == b"x" * 10
    with pytest.raises(UnusableFile, match="the key has more than 9 bytes"):
        read_secret(path, "the key", 9)


def test_users_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    user = with_password(StoredUser(frozenset({"a", "b c"})), "pässword", salts={"SCRAM-SHA-256": b"s" * 16})
    users = {"bob": BOB, 'eve "x" ü.y': user, "cert": StoredUser(frozenset({"r"}))}
    write_users(path, users)
    assert read_users(path) == users
    assert path.stat().st_mode & 0o777 == 0o600
    assert passwords.fits("pässword".encode(), user.password)
    assert not passwords.fits(b"password", user.password)
    assert "ssword" not in path.read_text().replace("password =", "")


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "bob = 3",
        "[bob]\nrole = []",
        '[bob]\nroles = "x"',
        '[bob]\npassword = "geheim"',
        '[bob]\npassword = ""',
        '[bob]\nscram-sha-256 = "geheim"',
        '["a\\nb"]\nroles = []',
        "[bob]\nroles = " + "[" * 5_000,
        '[" bob"]\nroles = []',
    ],
)
def test_a_users_file_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UnusableFile) as caught:
        read_users(path)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "usable"), [(0o600, True), (0o640, True), (0o644, False), (0o620, False), (0o601, False)]
)
def test_readers_of_the_users_file(tmp_path: Path, mode: int, usable: bool) -> None:
    path = tmp_path / "users.toml"
    write_users(path, {"bob": BOB})
    path.chmod(mode)
    if usable:
        assert read_users(path)
    else:
        with pytest.raises(UnusableFile, match="chmod 600"):
            read_users(path)


def test_a_users_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="cannot be read"):
        read_users(tmp_path / "users.toml")


# -- certificates ------------------------------------------------------------------------------------------------------


def test_subjects() -> None:
    shown = {"subject": ((("countryName", "CH"),), (("organizationName", "A, B"),), (("commonName", "x"),))}
    assert subject_of(shown) == (("CN", "x"), ("O", "A, B"), ("C", "CH"))
    assert subject_of(None) == ()


@pytest.mark.parametrize(
    ("rule", "subject", "user"),
    [
        (Rule("CN=x, O=A\\, B", "u"), (("CN", "x"), ("O", "A, B")), "u"),
        (Rule("CN=*,O=A", "u-%cn"), (("CN", "a.b"), ("O", "A")), "u-a.b"),
        (Rule("CN=dev-*,O=A", "%cn"), (("CN", "dev-1"), ("O", "A")), "dev-1"),
        (Rule("CN=\\*,O=A", "u"), (("CN", "x"), ("O", "A")), None),
        (Rule("CN=*,O=A", "u"), (("CN", "x"), ("O", "B")), None),
        (Rule("CN=*,O=A", "u"), (("CN", "x,O=A"),), None),
        (Rule("CN=*,O=A", "u"), (("CN", "x"), ("OU", "o"), ("O", "A")), None),
        (Rule("CN=*,O=A", "u"), (("O", "A"), ("CN", "x")), None),
    ],
)
def test_rules(rule: Rule, subject: tuple[tuple[str, str], ...], user: str | None) -> None:
    assert user_of([rule], subject) == user


def test_the_first_rule_that_fits_decides() -> None:
    rules = [Rule("CN=a", "first"), Rule("CN=*", "second")]
    assert [user_of(rules, (("CN", name),)) for name in "ab"] == ["first", "second"]


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [MemoryError(), VerificationError("memory"), InvalidHashError("broken"), OSError()])
def test_a_hash_that_fails_refuses_all_who_wait_for_it(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def fails(password: bytes, stored: str) -> bool:
        raise fault

    bench = Bench(delay=1_000)
    with monkeypatch.context() as planted:
        planted.setattr(passwords, "fits", fails)
        for _ in range(3):
            bench.login()
        bench.hash()
    assert bench.told == [None] * 3
    assert bench.reports == ["login.failed"] + ["login.refused"] * 3
    assert bench.waiting == [], "it is nobody's failed login"
    bench.enter()
    assert bench.told[3:] == [CLERK], "the next one does not wait for it"


def test_a_hash_that_cannot_be_read_is_no_wrong_password(bench: Bench) -> None:
    bench.gate.change(Policy({"bob": StoredUser(frozenset(), "$argon2id$v=19$m=8,t=1,p=1$!!!!$!!!!")}))
    bench.enter()
    assert (bench.told, bench.reports) == ([None], ["login.failed", "login.refused"])


def test_one_who_fails_when_told_does_not_keep_the_others_from_it(bench: Bench) -> None:
    def fails(identity: Identity | None) -> NoReturn:
        raise RuntimeError("planted")

    bench.login()
    bench.gate.login(Peer("2.2.2.2:2", "2.2.2.2"), "bob", b"secret", fails)
    bench.login()
    with pytest.raises(RuntimeError, match="planted"):
        bench.hash()
    assert bench.told == [CLERK] * 2
    bench.login()
    assert len(bench.told) == 3, "it is remembered, and nothing waits"


def test_all_are_told_before_a_fault_goes_on() -> None:
    told: list[int] = []

    def fails() -> NoReturn:
        raise RuntimeError(f"after {len(told)}")

    with pytest.raises(RuntimeError, match="after 1"):
        call_all([lambda: told.append(1), fails, lambda: told.append(2), fails])
    assert told == [1, 2]
