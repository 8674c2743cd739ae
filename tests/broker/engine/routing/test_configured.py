"""What the configuration had and has no more: kept or deleted, at a start and at a reload; queues made by hand."""

from __future__ import annotations

import pytest

from broker.config import AddressSetting
from broker.config.addresses import AddressSection
from broker.daemon.wiring import declare, settings_table
from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.errors import AlreadyInUse, EngineError
from broker.engine.model.message import RoutingType
from tests.broker.engine.engine_harness import Bench

ANYCAST = {"routing-type": "ANYCAST"}


def section(*queues: str) -> AddressSection:
    """An address with anycast queues."""
    return AddressSection.model_validate({"routing-types": ["ANYCAST"], "queues": dict.fromkeys(queues, ANYCAST)})


def bench_with(policy: dict[str, object]) -> Bench:
    """A broker whose configuration has the address a with the queues a1 and a2, each with a message."""
    bench = Bench({"match": "a"} | policy, addresses={"a": section("a1", "a2")})
    for queue in ("a1", "a2"):
        bench.sent(f"a::{queue}", b"1")
    return bench


def without(bench: Bench, addresses: dict[str, AddressSection], *, reload: bool) -> Bench:
    """The next configuration, at a restart or a reload."""
    config = bench.broker.config.model_copy(update={"addresses": addresses})
    bench.broker.config = config
    if not reload:
        return bench.restart()
    declare(bench.enter(), config)
    bench.run()
    return bench


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize(("policy", "left"), [("OFF", True), ("FORCE", False)])
def test_a_queue_that_left(policy: str, left: bool, reload: bool) -> None:
    bench = without(bench_with({"config-delete-queues": policy}), {"a": section("a1")}, reload=reload)
    assert set(bench.engine.queues) == ({"a1", "a2"} if left else {"a1"})
    assert bench.bodies("a1") == [b"1"]
    assert bench.broker.reported("config.deleted") == ([] if left else [{"queue": "a2", "messages": 1}])
    assert bench.restart().bodies("a1") == [b"1"]


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize(("policy", "left"), [("OFF", True), ("FORCE", False)])
def test_an_address_that_left(policy: str, left: bool, reload: bool) -> None:
    bench = without(bench_with({"config-delete-addresses": policy}), {}, reload=reload)
    assert ("a" in bench.engine.addresses) is left
    assert ("a1" in bench.engine.queues) is left


def test_its_consumers_are_told() -> None:
    bench = bench_with({"config-delete-queues": "FORCE"})
    taker = bench.take("a::a2")
    without(bench, {"a": section("a1")}, reload=True)
    assert taker.closed == ["queue a2 was deleted"]


def test_resources_that_the_configuration_never_had_stay() -> None:
    bench = bench_with({"config-delete-queues": "FORCE"})
    bench.sent("a::mine", b"1")
    bench = without(bench, {"a": section("a1", "a2")}, reload=False)
    assert bench.bodies("mine") == [b"1"]


def test_resources_that_existed_before_they_were_configured_count_as_configured() -> None:
    bench = Bench({"match": "a", "config-delete-queues": "FORCE"})
    bench.sent("a", b"1")
    bench = without(bench, {"a": section("a")}, reload=False)
    bench = bench.restart()
    assert bench.queue("a").configured
    bench = without(bench, {}, reload=False)
    assert "a" not in bench.engine.queues


@pytest.mark.parametrize(("created", "deleted"), [(False, False), (True, True)])
def test_queues_made_by_hand(created: bool, deleted: bool) -> None:
    """auto-delete-created-queues: unused and empty in two scans."""
    bench = Bench({"match": "a", "auto-delete-created-queues": created})
    state = bench.enter()._state
    state.registry.create_queue(
        state.registry.create_address("a", {RoutingType.ANYCAST}), "a", RoutingType.ANYCAST, durable=True
    )
    bench.run()
    bench.close(bench.take("a"), CLOSED)
    bench.broker.advance(61_000)
    assert ("a" not in bench.engine.queues) is deleted


def test_queues_of_the_configuration_are_never_deleted_automatically() -> None:
    bench = bench_with({"auto-delete-created-queues": True, "auto-delete-queues-message-count": -1})
    bench.close(bench.take("a::a1"), CLOSED)
    bench.broker.advance(90_000)
    assert "a1" in bench.engine.queues


@pytest.mark.parametrize("delay", [5_000, 10_000, 15_000])
def test_the_delay_example_of_the_seeds(delay: int) -> None:
    """A queue goes when it was unused for the delay and two scans (here each second) saw it so."""
    bench = Bench(
        {"match": "q", "auto-delete-queues": True, "auto-delete-queues-delay": delay},
        broker=Bench().broker.config.broker.model_copy(update={"address_queue_scan_period": 1_000}),
    )
    bench.close(bench.take("q"), CLOSED)
    bench.broker.advance(delay - 1)
    assert "q" in bench.engine.queues
    bench.broker.advance(2_001)
    assert "q" not in bench.engine.queues


def test_a_reload_makes_what_is_new(bench: Bench) -> None:
    without(bench, {"b": section("b1")}, reload=True)
    assert bench.queue("b1").configured


def test_a_queue_that_cannot_be_made_as_written_says_why_and_holds_up_no_other() -> None:
    bench = bench_with({})
    other = AddressSection.model_validate(
        {"routing-types": ["ANYCAST"], "queues": {"a1": ANYCAST | {"filter": "x = 1"}, "a2": ANYCAST, "a3": ANYCAST}}
    )
    config = bench.broker.config.model_copy(update={"addresses": {"a": other, "b": section("a2", "b1")}})
    refused: list[EngineError] = []
    declare(bench.enter(), config, refused.append)
    bench.run()
    assert [str(each) for each in refused] == [
        "queue a2 exists with address a, not b as configured: configure it as it is and start the broker; then stop its"
        " consumers, move its messages (`bartleby queue move a2 TARGET`), delete it (`bartleby queue delete a2`), and"
        " change the configuration",
    ]
    assert {"a1", "a2", "a3", "b1"} <= set(bench.engine.queues)
    with pytest.raises(AlreadyInUse):
        declare(bench.enter(), config)


def test_settings_come_before_deletions() -> None:
    """The very reload that says FORCE deletes."""
    bench = bench_with({"config-delete-queues": "OFF"})
    settings = [each for each in bench.broker.config.address_settings if each.match != "a"]
    settings.append(AddressSetting.model_validate({"match": "a", "config-delete-queues": "FORCE"}))
    config = bench.broker.config.model_copy(update={"addresses": {}, "address_settings": tuple(settings)})
    engine = bench.enter()
    engine.configuration.change_settings(settings_table(config))
    declare(engine, config)
    bench.run()
    assert not {"a1", "a2"} & set(engine.queues)
