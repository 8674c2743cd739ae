"""Which entry of the permissions decides, and what a wildcard address needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.names import DEFAULT_SYNTAX
from broker.engine.model.permissions import TABLES_MAX, Permission, PermissionTable
from broker.engine.model.settings_match import InvalidMatch
from broker.engine.model.topics import Topics

CONSUME, SEND = Permission.CONSUME, Permission.SEND
ROLES = frozenset({"r"})
YES = {CONSUME: ROLES, SEND: ROLES}
NO: dict[Permission, frozenset[str]] = {CONSUME: frozenset(), SEND: frozenset({"other"})}


def table(**entries: bool) -> PermissionTable:
    return PermissionTable([(match, YES if granted else NO) for match, granted in entries.items()])


def allowed(table: PermissionTable, address: str, queue: str = "", *, user: str = "", client: str = "") -> bool:
    return table.rights(user, client).grants(ROLES, SEND, address, queue)


def test_the_most_specific_entry_decides_alone() -> None:
    rights = table(**{"#": True, "a.#": False, "a.b": True, "a.b::q": False, "a.*.c": True})
    assert allowed(rights, "x")
    assert not allowed(rights, "a")
    assert not allowed(rights, "a.x")
    assert allowed(rights, "a.b")
    assert allowed(rights, "a.b", "other")
    assert not allowed(rights, "a.b", "q")
    assert allowed(rights, "a.x.c")


def test_a_permission_that_the_deciding_entry_does_not_give_is_denied() -> None:
    rights = PermissionTable([("#", {SEND: ROLES}), ("a", {CONSUME: ROLES})]).rights("", "")
    assert rights.grants(ROLES, CONSUME, "a")
    assert not rights.grants(ROLES, SEND, "a"), "nothing is merged"
    assert not PermissionTable([]).rights("", "").grants(ROLES, SEND, "a"), "no entry: denied"


@pytest.mark.parametrize(
    ("entries", "everywhere"),
    [
        ({"#": True}, True),
        ({"#": True, "a.b": True}, True),
        ({"#": True, "a.b": False}, False),
        ({"#": False, "a.b": True}, False),
        ({"a.b": True, "a.#": True}, False),
        ({}, False),
    ],
)
def test_everywhere_is_granted_by_every_entry_of_which_one_fits_all(entries: dict[str, bool], everywhere: bool) -> None:
    assert table(**entries).rights("", "").grants_everywhere(ROLES, SEND) is everywhere


def test_user_and_client_are_filled_in_literally() -> None:
    rights = table(**{"u.%u.#": True, "c.%c": True, "%u.%c": True})
    assert allowed(rights, "u.alice.x", user="alice")
    assert not allowed(rights, "u.bob.x", user="alice")
    assert allowed(rights, "c.7", user="alice", client="7")
    assert allowed(rights, "alice.7", user="alice", client="7")
    assert allowed(rights, "u.alice@example.org.x", user="alice@example.org")
    assert not allowed(rights, "u.%u.x", user="alice")
    assert not allowed(rights, "u.x.y", user="%c", client="x")


@pytest.mark.parametrize("name", ["", "*", "#", "a*", "a.#", "\\*", "a::b"])
def test_a_name_cannot_widen_a_match(name: str) -> None:
    """CVE-2026-44838: the client id in a pattern of its own."""
    rights = table(**{"c.%c": True, "u.%u.#": True})
    for address in ("c.x", "c.*", "c.#", "c.", f"c.{name}", "c"):
        assert not allowed(rights, address, client=name)
        assert not rights.rights("", name).grants_reading(ROLES, CONSUME, address)
    for address in ("u.x.y", "u.*.y", "u.#", f"u.{name}.y"):
        assert not allowed(rights, address, user=name)


@pytest.mark.parametrize("name", ["a\\", "\\a", "a\\.b", "\\"])
def test_a_name_with_an_escape_fits_nothing(name: str) -> None:
    """Escaped, a dot is no end of a word: `c.a\\.#` would be the one word `a.#`, and its own wildcard gone."""
    rights = table(**{"c.%c": True, "u.%u.#": True, "%u.%c": True})
    for address in (f"c.{name}", f"u.{name}.x", f"u.{name}", f"{name}.{name}", "c.a", "c.a.b", "u.a.x", "u.a.b"):
        assert not allowed(rights, address, user=name, client=name)
        assert not rights.rights(name, name).grants_reading(ROLES, CONSUME, address)


def test_a_literal_entry_comes_before_a_filled_in_one() -> None:
    rights = table(**{"a.%u": True, "a.alice": False})
    assert not allowed(rights, "a.alice", user="alice")
    assert allowed(rights, "a.bob", user="bob")


def test_of_two_matches_that_are_filled_in_alike_the_first_decides() -> None:
    assert allowed(table(**{"a.%u": True, "a.%c": False}), "a.x", user="x", client="x")
    assert not allowed(table(**{"a.%u": False, "a.%c": True}), "a.x", user="x", client="x")


def test_the_tables_of_users_are_kept_up_to_a_limit() -> None:
    entries = table(**{"u.%u": True})
    first = entries.rights("0", "")
    assert entries.rights("0", "") is first
    for number in range(TABLES_MAX):
        entries.rights(str(number), "")
    assert entries.rights("0", "") is first, "as many as are kept"
    entries.rights(str(TABLES_MAX), "")
    assert len(entries._tables) == TABLES_MAX
    assert entries.rights("0", "") is not first, "the oldest goes"


def test_all_entries_as_written() -> None:
    given = [("a.%u", YES), ("#", NO), ("a.b", YES)]
    assert PermissionTable(given).entries == [("#", NO), ("a.b", YES), ("a.%u", YES)]
    assert PermissionTable([]).entries == []


def test_somewhere_is_where_any_entry_grants_it() -> None:
    assert table(**{"#": False, "a": True}).rights("", "").grants_somewhere(ROLES, SEND)
    assert not table(**{"#": False, "a": False}).rights("", "").grants_somewhere(ROLES, SEND)


@pytest.mark.parametrize("permission", list(Permission))
def test_seeing_messages_needs_the_right_to_every_address_that_a_wildcard_address_matches(
    permission: Permission,
) -> None:
    given = [("#", dict.fromkeys(Permission, ROLES)), ("a.b", dict[Permission, frozenset[str]]())]
    sees = permission in (Permission.CONSUME, Permission.BROWSE, Permission.MANAGE)
    assert PermissionTable(given).rights("", "").allows(ROLES, permission, "a.*") is not sees


def test_a_queue_of_its_full_name_decides_for_itself_alone() -> None:
    rights = table(**{"a.#": True, "a.b::q": False, "b.#": False, "b.*::q": True}).rights("", "")

    def reads(address: str, queue: str = "") -> bool:
        return rights.grants_reading(ROLES, CONSUME, address, queue)

    assert reads("a.b")
    assert not reads("a.b", "q")
    assert reads("a.b", "p")
    assert reads("a.*"), "no queue's entry forbids its address"
    assert reads("b.*", "q"), "nor its address's the queue"
    assert not reads("b.*")
    assert not reads("b.*", "p")
    assert not reads("b.x", "q"), "it is another address"


def test_naming_a_queue_of_a_wildcard_address_reads_no_more_than_the_address() -> None:
    """The queue has messages of all addresses that match, also those that its reader may not read."""
    rights = table(**{"a.#": True, "a.secret": False}).rights("", "")
    assert rights.grants_reading(ROLES, CONSUME, "a.b", "q")
    assert not rights.grants_reading(ROLES, CONSUME, "a.*", "q")
    assert not rights.grants_reading(ROLES, CONSUME, "a.#", "q")


@pytest.mark.parametrize("match", ["a.#.b", "#.%u"])
def test_matches_that_cannot_be(match: str) -> None:
    with pytest.raises(InvalidMatch):
        table(**{match: True})


@pytest.mark.parametrize(
    ("wildcard", "readable"),
    [
        ("#", False),  # a.secret is in it
        ("a.#", False),
        ("a.*", False),
        ("a.open.*", True),
        ("a.open.#", True),
        ("b.#", True),
        ("*.secret", False),
        ("*.open", False),  # x.open is in it, and a.open
        ("c.*", False),  # nobody said anything of it
        ("b.*.c", True),
    ],
)
def test_reading_a_wildcard_address_is_reading_all_that_it_matches(wildcard: str, readable: bool) -> None:
    rights = table(**{"a.#": True, "a.secret": False, "b.#": True, "x.#": False}).rights("", "")
    assert rights.grants_reading(ROLES, CONSUME, wildcard) is readable


_WORDS = st.sampled_from(["a", "b", "ab"])
_NAMES = st.lists(_WORDS, min_size=1, max_size=4).map(".".join)
_WILDCARDS = st.lists(st.sampled_from(["a", "b", "ab", "*", "#"]), min_size=1, max_size=4).map(".".join)
_MATCHES = st.lists(st.sampled_from(["a", "b", "*", "a*", "*b"]), max_size=3).flatmap(
    lambda words: st.booleans().map(lambda more: ".".join([*words, "#"] if more or not words else words))
)


@given(st.dictionaries(_MATCHES, st.booleans(), max_size=5), _WILDCARDS, st.lists(_NAMES, min_size=1, max_size=8))
def test_no_wildcard_reads_what_its_reader_may_not(
    entries: dict[str, bool], wildcard: str, addresses: list[str]
) -> None:
    """Against the bindings' own matching: whoever may read a wildcard may read each address that it matches."""
    rights = table(**entries).rights("", "")
    if not DEFAULT_SYNTAX.is_wildcard(wildcard) or not rights.grants_reading(ROLES, CONSUME, wildcard):
        return
    topics: Topics[int] = Topics()
    topics.add(wildcard, 1)
    for address in addresses:
        if list(topics.match(address)):
            assert rights.grants(ROLES, CONSUME, address), f"{wildcard} reads {address} by {entries}"
