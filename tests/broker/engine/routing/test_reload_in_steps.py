"""A reload of a broker with many addresses is done in steps: the state is whole after each, and at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.config.addresses import AddressSection
from broker.config.diverts import DivertSection
from broker.daemon.wiring import Declarations, declaring, settings_table
from broker.engine.operators.configuration import DECLARE_COST
from broker.engine.queues.registry import SETTINGS_COST
from broker.engine.queues.steps import STEP
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import small

ANYCAST = {"routing-type": "ANYCAST"}

#: Addresses: three steps, of their settings or of declarations.
MANY = 3 * STEP // SETTINGS_COST
DECLARED = 3 * STEP // DECLARE_COST

#: The settings before and after a reload, with a divert's and a queue's side of them.
BEFORE = {"match": "*", "max-delivery-attempts": 3, "delivery-count-persistence": "on-return"}
AFTER = {"match": "*", "max-delivery-attempts": 7, "delivery-count-persistence": "strict"}
LAST = {"match": "*", "max-delivery-attempts": 9, "delivery-count-persistence": "on-return"}


def section(*queues: str) -> AddressSection:
    """An address with anycast queues."""
    return AddressSection.model_validate({"routing-types": ["ANYCAST"], "queues": dict.fromkeys(queues, ANYCAST)})


def sections(*names: str) -> dict[str, AddressSection]:
    """Addresses with a queue each."""
    return {name: section(name) for name in names}


@pytest.fixture
def many() -> Bench:
    """A broker with many addresses, and a step of a reload in each tick."""
    bench = Bench(BEFORE)
    engine = bench.enter()
    for number in range(MANY):
        engine.imports.address({"name": f"a{number}", "routing-types": ["ANYCAST"], "auto-created": False})
    bench.declare("first", "a0")
    bench.declare("last", f"a{MANY - 1}")
    bench.limit_ticks(1, least=1)
    return bench


def change(bench: Bench, settings: dict[str, object]) -> None:
    """Begin to change the settings."""
    bench.enter().configuration.change_settings(settings_table(small(settings)))


def ticks(bench: Bench) -> Iterator[None]:
    """Each tick until nothing goes on in steps."""
    while bench.engine.ticks.is_working:
        yield
        bench.engine.ticks.end()
        bench.broker.write()
        bench.engine.ticks.begin()


def changed(bench: Bench, attempts: int) -> int:
    """How many addresses have this setting."""
    return sum(each.settings.max_delivery_attempts == attempts for each in bench.engine.addresses.values())


def test_many_addresses_get_new_settings_in_steps_and_each_gets_all_of_them(many: Bench) -> None:
    change(many, AFTER)
    seen = []
    for _ in ticks(many):
        seen.append(changed(many, 7))
        for address in many.engine.addresses.values():
            assert address.settings.strict is (address.settings.max_delivery_attempts == 7)
            assert many.engine.operators.settings(address.name) is address.settings, "whoever asks"
    assert len(seen) >= 3
    assert seen == sorted(set(seen)), "more in each tick"
    assert changed(many, 7) == len(many.engine.addresses)
    assert many.queue("first").strict
    assert many.queue("last").strict


def test_addresses_created_during_a_reload_have_the_new_settings(many: Bench) -> None:
    change(many, AFTER)
    next(ticks(many))
    many.declare("new")
    assert many.queue("new").address.settings.max_delivery_attempts == 7
    assert many.queue("new").strict


def test_an_address_that_is_deleted_meanwhile_stays_deleted(many: Bench) -> None:
    change(many, AFTER)
    next(ticks(many))
    address = many.engine.operators.address(f"a{MANY - 1}")
    many.engine.operators.delete_address(address, with_queues=True)
    many.run()
    assert changed(many, 7) == len(many.engine.addresses)
    assert address.name not in many.engine.addresses


def test_the_last_of_several_reloads_counts(many: Bench) -> None:
    change(many, AFTER)
    next(ticks(many))
    change(many, LAST)
    many.run()
    assert changed(many, 9) == len(many.engine.addresses)
    assert not many.queue("first").strict
    assert not many.queue("last").strict


def test_a_queue_with_many_others_on_its_address_follows_in_steps() -> None:
    bench = Bench(BEFORE, addresses={"a": section(*[f"q{number}" for number in range(1_200)])})
    bench.limit_ticks(1, least=1)
    change(bench, AFTER)
    seen = []
    for _ in ticks(bench):
        assert bench.engine.addresses["a"].settings.strict
        seen.append(sum(queue.strict for queue in bench.engine.queues.values()))
    assert len(seen) >= 2
    bench.run()
    assert all(queue.strict for queue in bench.engine.queues.values())


def reload(bench: Bench, settings: dict[str, object], addresses: dict[str, AddressSection]) -> None:
    """Begin a whole reload: the next start has this configuration, too."""
    config = bench.broker.config = small(settings, addresses=addresses)
    configuration = bench.enter().configuration
    configuration.change_settings(settings_table(config))
    configuration.begin(declaring(bench.engine, Declarations(config)))


OLD = [f"old{number}" for number in range(DECLARED)]
NEW = [f"new{number}" for number in range(DECLARED)]
FORCE: dict[str, object] = {"match": "*", "config-delete-queues": "FORCE", "config-delete-addresses": "FORCE"}


def declared() -> Bench:
    """A broker that has the old addresses and queues, and a step of a reload in each tick."""
    bench = Bench(addresses=sections(*OLD))
    bench.sent(OLD[0], b"1")
    bench.limit_ticks(1, least=1)
    return bench


def test_many_declarations_are_made_in_steps() -> None:
    bench = declared()
    reload(bench, {"match": "*"}, sections(*NEW))
    seen = [len(bench.engine.queues) for _ in ticks(bench)]
    assert len(seen) >= 3
    assert set(bench.engine.queues) == {*OLD, *NEW}
    assert bench.restart().queue(NEW[-1]).configured


@pytest.mark.parametrize("after", range(1, 12, 2))
def test_the_next_start_completes_a_reload_that_a_crash_interrupts(after: int) -> None:
    bench = declared()
    reload(bench, FORCE, sections(*NEW))
    for number, _ in enumerate(ticks(bench)):
        if number == after:
            break
    bench = bench.restart()
    assert set(bench.engine.queues) == set(NEW)
    assert set(bench.engine.addresses) >= set(NEW)
    assert not set(bench.engine.addresses) & set(OLD)
    bench.sent(NEW[0], b"2")
    assert bench.restart().bodies(NEW[0]) == [b"2"]


def test_a_reload_that_follows_at_once_deletes_nothing_that_it_declares() -> None:
    """It may say FORCE: what only the first one lacks must stay, with its messages."""
    bench = declared()
    reload(bench, {"match": "*"}, {})
    next(ticks(bench))
    reload(bench, FORCE, sections(*OLD))
    bench.run()
    assert set(bench.engine.queues) == set(OLD)
    assert bench.bodies(OLD[0]) == [b"1"]


def test_resources_that_an_operator_deletes_during_a_reload_are_not_deleted_again() -> None:
    """Neither a divert, nor an address whose queues went before it."""
    forced: dict[str, object] = {**FORCE, "config-delete-diverts": "FORCE"}
    divert = DivertSection.model_validate({"address": "a", "forwarding-address": "b"})
    bench = Bench(forced, addresses=sections("a", "b"), diverts={"d": divert, "e": divert})
    engine = bench.enter()
    work = engine.configuration.delete_undeclared(addresses=(), queues=(), diverts=())
    next(work)
    assert [each["divert"] for each in bench.broker.reported("config.deleted")] == ["d"]
    engine.operators.remove_divert("e")
    engine.operators.delete_address(engine.operators.address("a"), with_queues=True)
    for _ in work:
        pass
    bench.run()
    assert not engine._state.diverts.by_name
    assert not {"a", "b"} & set(engine.addresses)
    deleted = bench.broker.reported("config.deleted")
    assert [(key, value) for each in deleted for key, value in each.items() if key != "messages"] == [
        ("divert", "d"),
        ("queue", "b"),
        ("address", "b"),
    ]
