"""Diverts: who gets what, chains and circles, limits, atomicity, restarts, and the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import ConfigError
from broker.config.diverts import DivertSection
from broker.engine.filter import compile_filter
from broker.engine.model.errors import AddressFull, AlreadyInUse, InvalidName, NotFound
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.publish import plan
from broker.engine.publish.send import Send
from broker.engine.queues.diverts import FORWARDS_MAX, HEADERS_MAX, AddressExtras, Divert, DivertRouting, read_divert
from broker.engine.routing import destinations
from tests.broker.engine.engine_harness import Bench, section
from tests.support.interpreted import interpreted

MULTICAST = RoutingType.MULTICAST


def bench_with(*settings: dict[str, object], **diverts: DivertSection) -> Bench:
    """A broker with diverts, and anycast queues of the names a, b and c."""
    bench = Bench(*settings, diverts=diverts)
    for name in ("a", "b", "c"):
        bench.enter().configuration.declare(name, {RoutingType.ANYCAST})
        destinations.destination(bench.engine._state, name, RoutingType.ANYCAST)
        bench.run()
    return bench


def test_a_divert_copies() -> None:
    bench = bench_with(d=section("a", "b"))
    (message,) = bench.sent("a", b"1", head=b"k:v\n", priority=7)
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"1"], [b"1"])
    (copy,) = bench.messages("b")
    assert copy.id != message.id
    assert (copy.header.address, copy.header.priority, copy.head) == ("b", 7, b"k:v\n")
    assert copy.header.annotations == {
        "_AMQ_ORIG_ADDRESS": "a",
        "_AMQ_ORIG_QUEUE": "d",
        "_AMQ_ORIG_MESSAGE_ID": message.id,
    }


def test_an_exclusive_divert_takes() -> None:
    bench = bench_with(d=section("a", "b", exclusive=True, filter="k = 'v'"))
    bench.sent("a", b"1", head=b"k:v\n")
    bench.sent("a", b"2")
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"2"], [b"1"])


def test_the_first_exclusive_divert_by_name_takes() -> None:
    bench = bench_with(
        z=section("a", "b", exclusive=True), y=section("a", "c", exclusive=True), x=section("a", "b", filter="k = 'v'")
    )
    bench.sent("a", b"1", head=b"k:v\n")
    assert (bench.bodies("a"), bench.bodies("b"), bench.bodies("c")) == ([], [], [b"1"])


def test_an_exclusive_divert_to_nowhere_takes_nothing() -> None:
    bench = bench_with(d=section("a", "nobody", exclusive=True))
    bench.sent("a", b"1")
    assert bench.bodies("a") == [b"1"]


def test_an_exclusive_divert_to_a_client_that_is_away_takes_durable_messages_only() -> None:
    bench = bench_with(d=section("a", "t", exclusive=True))
    bench.take("t", MULTICAST, durable_name="away")
    bench.queue("away").durable_only = True
    bench.sent("a", b"1")
    bench.sent("a", b"2", durable=False)
    assert (bench.bodies("a"), bench.bodies("away")) == ([b"2"], [b"1"])


def test_several_forwarding_addresses() -> None:
    bench = bench_with(d=section("a", "b, c"))
    bench.sent("a", b"1")
    assert (bench.bodies("b"), bench.bodies("c")) == ([b"1"], [b"1"])


def test_a_pattern_watches_several_addresses() -> None:
    bench = bench_with(d=section("orders.#", "b"))
    bench.sent("orders.eu", b"1")
    bench.sent("orders", b"2")
    bench.sent("c", b"3")
    assert bench.bodies("b") == [b"1", b"2"]


def test_chains_end_where_they_began() -> None:
    bench = bench_with(ab=section("a", "b"), bc=section("b", "c"), ca=section("c", "a"))
    bench.sent("a", b"1")
    assert [bench.bodies(name) for name in "abc"] == [[b"1", b"1"], [b"1"], [b"1"]]


@pytest.mark.parametrize(
    ("routing", "asked", "queues"),
    [
        ("STRIP", RoutingType.ANYCAST, {"any", "multi"}),
        ("STRIP", None, {"any", "multi"}),
        ("PASS", RoutingType.ANYCAST, {"any"}),
        ("PASS", RoutingType.MULTICAST, {"multi"}),
        ("PASS", None, {"any", "multi"}),
        ("ANYCAST", RoutingType.MULTICAST, {"any"}),
        ("MULTICAST", RoutingType.ANYCAST, {"multi"}),
    ],
)
def test_routing_types(routing: str, asked: RoutingType | None, queues: set[str]) -> None:
    bench = Bench(diverts={"d": section("a", "both", routing_type=routing)})
    engine = bench.enter()
    both = engine.configuration.declare("both", set(RoutingType))
    for name, kind in (("any", RoutingType.ANYCAST), ("multi", MULTICAST)):
        engine._state.registry.create_queue(both, name, kind, durable=True)
    bench.run()
    bench.sent("a", b"1", routing_type=asked)
    assert {name for name in ("any", "multi") if bench.bodies(name)} == queues


def test_a_transformer_changes_the_copy_only() -> None:
    bench = bench_with(d=section("a", "b", add_headers=["source: divert", "k: new"], remove_headers=["gone"]))
    bench.sent("a", b"1", head=b"k:old\ngone:1\nstays:2\n")
    heads = [message.head for name in "ab" for message in bench.messages(name)]
    assert heads == [b"k:old\ngone:1\nstays:2\n", b"stays:2\nsource:divert\nk:new\n"]


def test_expiration_and_schedule_are_kept() -> None:
    bench = bench_with(d=section("a", "b"))
    now = bench.broker.now
    bench.sent("a", b"1", expiration=now + 9_000, scheduled=now + 5_000)
    ((copy, place),) = bench.engine.messages.browse(bench.queue("b"))
    assert (copy.header.expiration, copy.header.scheduled, place) == (now + 9_000, now + 5_000, "scheduled")


def test_a_named_queue_is_not_diverted_and_neither_is_a_dead_letter() -> None:
    bench = bench_with(d=section("a", "b", exclusive=True), dlq=section("DLQ", "b", exclusive=True))
    bench.sent("a::a", b"1")
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"1"], [])
    taker = bench.take("a")
    bench.nack(taker, *taker.taken, requeue=False)
    assert (bench.bodies("DLQ"), bench.bodies("b")) == ([b"1"], [])


def test_a_full_forwarding_address_refuses_the_send() -> None:
    bench = bench_with({"match": "b", "max-size-messages": 1, "address-full-policy": "FAIL"}, d=section("a", "b"))
    bench.sent("a", b"1")
    with pytest.raises(AddressFull, match="an address that its diverts lead to is full"):
        bench.send("a", b"2")
    bench.run()
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"1"], [b"1"])


def test_messages_that_a_full_address_drops_are_not_diverted_and_the_rest_of_the_run_is() -> None:
    """The exclusive divert x leads to a queue, y to none."""
    bench = bench_with(
        {"match": "a", "address-full-policy": "DROP", "max-size-messages": 1},
        x=section("a", "b", exclusive=True, filter="k = 'x'"),
        y=section("a", "nowhere", exclusive=True, filter="k = 'y'"),
        z=section("a", "c"),
    )
    bench.enter().configuration.declare("nowhere", {RoutingType.MULTICAST})
    bench.sent("a", b"1")
    engine = bench.enter()
    header = bench.header("a")
    run = [Message(header, b"k:%b\n" % key, key) for key in (b"x", b"y")]
    engine.producers.publish([Send.at(engine.addresses["a"], None, RoutingType.ANYCAST, run)]).check()
    bench.run()
    assert [bench.bodies(name) for name in ("a", "b", "c")] == [[b"1"], [b"x"], [b"1"]]
    assert engine.addresses["a"].dropped == 1


def test_transactions_divert_at_their_commit() -> None:
    bench = bench_with(d=section("a", "b"))
    engine = bench.enter()
    tx = engine.transactions.begin(object())
    bench.send("a", b"1", tx=tx)
    bench.run()
    assert bench.bodies("b") == []
    bench.commit(tx)
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"1"], [b"1"])


def test_message_and_copies_are_one_entry() -> None:
    """Whatever byte a crash leaves the journal at: all of them are there, or none."""
    bench = Bench(diverts={"d": section("a", "b,c")}, lazy_disk=True)
    for name in ("a", "b", "c"):
        destinations.destination(bench.enter()._state, name, RoutingType.ANYCAST)
    bench.run()
    bench.broker.step()
    ticket = bench.enter().journal.ticket
    bench.send("a", b"1")
    bench.run()
    assert bench.engine.journal.ticket == ticket + 1


def test_diverts_survive_a_restart(bench: Bench) -> None:
    for name in ("a", "b"):
        destinations.destination(bench.enter()._state, name, RoutingType.ANYCAST)
    bench.engine._state.registry.add_divert(Divert("d", "a", ("b",), filter=compile_filter("k = 'v'"), add={"x": "y"}))
    bench.run()
    bench = bench.restart()
    bench.sent("a", b"1", head=b"k:v\n")
    assert bench.bodies("b") == [b"1"]
    bench.enter()._state.registry.remove_divert("d")
    bench.run()
    bench = bench.restart()
    assert not bench.engine._state.diverts.by_name
    bench.sent("a", b"2", head=b"k:v\n")
    assert bench.bodies("b") == [b"1"]


@pytest.mark.parametrize(("policy", "left"), [("OFF", True), ("FORCE", False)])
def test_a_divert_that_left_the_configuration(policy: str, left: bool) -> None:
    settings: dict[str, object] = {"match": "a", "config-delete-diverts": policy}
    bench = Bench(settings, diverts={"d": section("a", "b")})
    bench.run()
    bench.broker.config = bench.broker.config.model_copy(update={"diverts": {}})
    assert ("d" in bench.restart().engine._state.diverts.by_name) is left


def test_the_configuration_changes_its_diverts() -> None:
    bench = bench_with(d=section("a", "b"))
    state = bench.enter()._state
    before = state.diverts.get("d")
    bench.engine.configuration.declare_divert(section("a", "b").divert("d"))
    assert state.diverts.get("d") is before
    bench.engine.configuration.declare_divert(section("a", "c").divert("d"))
    bench.run()
    bench.sent("a", b"1")
    assert (bench.bodies("b"), bench.bodies("c")) == ([], [b"1"])


def test_errors_say_what_is_wrong() -> None:
    bench = bench_with(d=section("a", "b"))
    state = bench.enter()._state
    with pytest.raises(AlreadyInUse, match="divert d exists already"):
        state.registry.add_divert(Divert("d", "b", ("c",)))
    with pytest.raises(NotFound, match="divert e does not exist"):
        state.registry.remove_divert("e")
    with pytest.raises(InvalidName, match="forwards to its own address"):
        state.registry.add_divert(Divert("e", "a", ("a",)))
    state.registry.add_divert(Divert("f", "a", tuple(f"f{n}" for n in range(FORWARDS_MAX))))
    with pytest.raises(InvalidName, match="1 to 64 forwarding"):
        state.registry.add_divert(Divert("g", "a", tuple(f"f{n}" for n in range(FORWARDS_MAX + 1))))
    state.registry.add_divert(Divert("h", "a", ("b",), remove=[str(n) for n in range(HEADERS_MAX)]))
    with pytest.raises(InvalidName, match="64 headers"):
        state.registry.add_divert(Divert("i", "a", ("b",), remove=[str(n) for n in range(HEADERS_MAX + 1)]))
    bench.run()


def test_a_forwarding_address_that_may_not_be_made_is_told() -> None:
    bench = bench_with({"match": "none", "auto-create-addresses": False}, d=section("a", "none"))
    bench.sent("a", b"1")
    assert bench.bodies("a") == [b"1"]
    (told,) = bench.broker.reported("divert.no_address")
    assert (told["divert"], told["address"]) == ("d", "none")


def test_definitions_come_back() -> None:
    divert = section(
        "a.#", "b,c", exclusive=True, filter="k = 1", routing_type="PASS", add_headers=["a:b"], remove_headers=["c"]
    ).divert("d")
    again = read_divert(7, divert.definition())
    assert again.same(divert)
    assert (again.id, again.routing) == (7, DivertRouting.PASS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('address = "a"\nforwarding-address = "a"', "forwards to its own address"),
        ('address = "a"\nforwarding-address = "b.#"', "has a wildcard"),
        ('address = "a"\nforwarding-address = "b"\nfilter = "k ="', "correct the selector"),
        ('address = "a"\nforwarding-address = "b"\nadd-headers = ["x"]', "is not a header"),
        ('address = "a"\nforwarding-address = "b"\nadd-headers = ["_AMQ_DL_TEXT: x"]', "only the broker writes it"),
        ('address = "a"\nforwarding-address = "b"\nrouting-type = "ANY"', 'give one of "STRIP", "PASS"'),
        ('address = "a"\nforwarding-address = "b"\ntransformer-class-name = "x.Y"', "unknown setting"),
    ],
)
def test_the_configuration_is_checked(tmp_path: Any, text: str, problem: str) -> None:
    from broker.config import load

    path = tmp_path / "broker.toml"
    path.write_text(f"[diverts.d]\n{text}\n")
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert problem in str(refused.value)


@interpreted
def test_a_new_divert_looks_at_no_address_before_that_is_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 100,000 addresses: those that use it find it once, whatever else changes."""
    for name in "abcdefgh":
        bench.declare(name)
    state = bench.engine._state
    asked: list[str] = []
    find = state.diverts._find

    def noted(name: str, settings: AddressSettings) -> AddressExtras | None:
        asked.append(name)
        return find(name, settings)

    monkeypatch.setattr(state.diverts, "_find", noted)
    state.registry.add_divert(Divert("first", "a", ("b",)))
    state.registry.add_divert(Divert("second", "b", ("c",)))
    state.registry.add_divert(Divert("pattern", "*", ("x",)))
    assert not asked
    for _ in range(2):
        leads = state.diverts.extras(state.addresses["a"])
        assert leads is not None
        assert leads.reach == ("b", "x", "c")
    assert asked == ["a"]
    state.registry.remove_divert("second")
    state.registry.remove_divert("pattern")
    assert asked == ["a"]
    assert state.diverts.extras(state.addresses["b"]) is None
    leads = state.diverts.extras(state.addresses["a"])
    assert leads is not None
    assert leads.reach == ("b",)


def meshed(many: int, *, exclusive: bool) -> Bench:
    """A broker with addresses that divert to each other; nobody listens to them."""
    names = [f"m{n}" for n in range(many)]
    diverts = {
        f"d{n}": section(name, ",".join([other for other in names if other != name]), exclusive=exclusive)
        for n, name in enumerate(names)
    }
    bench = Bench(diverts=diverts)
    for name in names:
        bench.enter().configuration.declare(name, {MULTICAST})
        bench.run()
    return bench


@interpreted
@pytest.mark.parametrize("exclusive", [False, True])
def test_addresses_that_divert_to_each_other_make_a_copy_for_each_forwarding(
    exclusive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message along every path among nine addresses took 22 s."""
    many = 6
    bench = meshed(many, exclusive=exclusive)
    made: list[str] = []
    copy = plan._copy

    def counted(*args: Any) -> Message:
        made.append(args[2].name)
        return copy(*args)

    monkeypatch.setattr(plan, "_copy", counted)
    bench.sent("m0", b"1", b"2", routing_type=MULTICAST)
    assert len(made) == 2 * many * (many - 1)
    extras = bench.engine._state.diverts.extras(bench.engine.addresses["m0"])
    assert extras is not None
    assert extras.copies == many * (many - 1), "for which there is room"


def test_a_divert_that_copies_reach_in_two_ways_takes_all_of_them() -> None:
    """As in ActiveMQ Artemis: only a circle ends."""
    bench = bench_with(
        x=section("start", "left,right"), y=section("left", "a"), z=section("right", "a"), end=section("a", "b")
    )
    for name in ("start", "left", "right"):
        bench.enter().configuration.declare(name, {RoutingType.ANYCAST})
        bench.run()
    bench.sent("start", b"1", b"2", routing_type=None)
    assert bench.bodies("a") == [b"1", b"1", b"2", b"2"]
    assert bench.bodies("b") == [b"1", b"1", b"2", b"2"]
    extras = bench.engine._state.diverts.extras(bench.engine.addresses["start"])
    assert extras is not None
    assert extras.copies == 6, "for which there is room"
