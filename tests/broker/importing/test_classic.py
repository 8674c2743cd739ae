"""An ActiveMQ Classic activemq.xml as a broker.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.importing import Outcome
from broker.importing.classic_policies import match_of
from broker.importing.xml import read
from tests.broker.importing.harness import CLASSIC, broker, finding, imported, leaves, setting


def test_every_element_is_in_the_report(tmp_path: Path) -> None:
    _, found = imported(CLASSIC, tmp_path)
    told = {each.place.line for each in found.report.findings}
    # of some the element that they are in says it all, or what begins in the same place
    within = {"kahaDB", "queue", "topic"}
    missed = [leaf for leaf, parent in leaves(read(CLASSIC)) if not told & {leaf.line, parent.line}]
    assert [leaf for leaf in missed if leaf.name not in within] == []
    assert finding(found, "user ann").place.value == "roles drivers,clerks"


@pytest.mark.parametrize(("classic", "match"), [(">", "#"), ("a.>", "a.#"), ("a.*.b", "a.*.b"), ("a", "a")])
def test_wildcards(classic: str, match: str) -> None:
    assert match_of(classic) == match


def test_the_broker(tmp_path: Path) -> None:
    tables, found = imported(CLASSIC, tmp_path)
    assert tables["broker"]["name"] == "depot"
    assert tables["broker"]["address-queue-scan-period"] == "10s"
    assert tables["broker"]["global-max-size-percent"] == 70
    assert finding(found, "broker shoeSize").why.startswith("unknown to this importer")


def test_policies(tmp_path: Path) -> None:
    tables, found = imported(CLASSIC, tmp_path)
    everything = setting(tables, "#")
    assert everything["max-size-bytes"] == "1MiB"
    assert everything["address-full-policy"] == "BLOCK"
    assert everything["management-browse-page-size"] == 300
    assert everything["auto-delete-queues"] is False, "Classic deletes only when it is told to"
    trucks = setting(tables, "trucks.#")
    assert (trucks["auto-delete-queues"], trucks["auto-delete-queues-delay"]) == (True, "30s")
    assert finding(found, 'policyEntry "trucks.>": optimizedDispatch').outcome is Outcome.LEFT


def test_dead_letter_strategies(tmp_path: Path) -> None:
    tables, _ = imported(CLASSIC, tmp_path)
    individual = setting(tables, "#")
    assert individual["dead-letter-address"] == "ActiveMQ.DLQ"
    assert individual["auto-create-dead-letter-resources"] is True
    assert individual["dead-letter-queue-prefix"] == "DLQ."
    assert individual["expiry-address"] == "", "processExpired is false"
    shared = setting(tables, "trucks.#")
    assert (shared["dead-letter-address"], shared["expiry-address"]) == ("broken", "broken")
    assert setting(tables, "sand")["dead-letter-address"] == ""


def test_classics_own_dead_letter_queue_is_the_default(tmp_path: Path) -> None:
    tables, found = imported(broker(""), tmp_path)
    assert setting(tables, "#")["dead-letter-address"] == "ActiveMQ.DLQ"
    assert finding(found, "redelivery").outcome is Outcome.CHANGED


def test_a_policy_for_topics_does_not_overrule_one_for_queues(tmp_path: Path) -> None:
    entries = '<policyEntry queue=">" memoryLimit="1mb"/><policyEntry topic=">" memoryLimit="2mb"/>'
    policy = f"<policyMap><policyEntries>{entries}</policyEntries></policyMap>"
    tables, found = imported(broker(f"<destinationPolicy>{policy}</destinationPolicy>"), tmp_path)
    assert setting(tables, "#")["max-size-bytes"] == "1MiB"
    told = [each for each in found.report.findings if each.place.value == "2mb"]
    assert [each.outcome for each in told] == [Outcome.LEFT]
    assert 'already gives address-settings["#"].max-size-bytes, as 1048576, which stays' in told[0].why


def test_redelivery_policies(tmp_path: Path) -> None:
    tables, _ = imported(CLASSIC, tmp_path)
    policy = setting(tables, "trucks.in")
    assert policy["max-delivery-attempts"] == 5
    assert policy["redelivery-delay"] == "5s"
    assert policy["redelivery-delay-multiplier"] == 2.0
    assert policy["max-redelivery-delay"] == "1min"


def test_two_delays_become_one_and_that_is_told(tmp_path: Path) -> None:
    policy = (
        '<redeliveryPolicy queue="q" initialRedeliveryDelay="1000" redeliveryDelay="3000" maximumRedeliveries="-1"/>'
    )
    tables, found = imported(broker(f"<plugins><redeliveryPlugin>{policy}</redeliveryPlugin></plugins>"), tmp_path)
    assert setting(tables, "q") == {"match": "q", "max-delivery-attempts": -1, "redelivery-delay": "3s"}
    assert finding(found, 'redeliveryPolicy "q": delay').outcome is Outcome.CHANGED


def test_destinations_and_composites(tmp_path: Path) -> None:
    tables, _ = imported(CLASSIC, tmp_path)
    assert tables["addresses"]["trucks.in"]["queues"]["trucks.in"]["routing-type"] == "ANYCAST"
    assert tables["addresses"]["weather"]["routing-types"] == ["MULTICAST"]
    gate = tables["diverts"]["gate"]
    assert (gate["address"], gate["forwarding-address"], gate["exclusive"]) == ("gate", "trucks.in, arrivals", True)


def test_permissions(tmp_path: Path) -> None:
    tables, _ = imported(CLASSIC, tmp_path)
    (trucks,) = tables["security-settings"]
    assert (trucks["match"], trucks["consume"], trucks["send"]) == ("trucks.#", ["drivers"], ["clerks", "drivers"])


def test_transport_connectors(tmp_path: Path) -> None:
    tables, found = imported(CLASSIC, tmp_path)
    acceptors = tables["acceptors"]
    assert acceptors.keys() == {"amqp", "stomp", "safe", "http"}
    assert (acceptors["amqp"]["port"], acceptors["amqp"]["connections-allowed"]) == (5672, 50)
    assert acceptors["stomp"]["heart-beat-to-connection-ttl-modifier"] == 1.5
    assert acceptors["safe"]["enabled"] is False, "TLS does not become plain text"
    assert "does not speak OpenWire" in finding(found, "transportConnector openwire").why


def test_auto_connectors_share_a_port(tmp_path: Path) -> None:
    connector = '<transportConnector name="a" uri="auto+nio://127.0.0.1:61616"/>'
    tables, _ = imported(broker(f"<transportConnectors>{connector}</transportConnectors>"), tmp_path)
    assert tables["acceptors"]["a"]["protocol"] == "amqp"
    assert "a-stomp" in tables["acceptors"]["a"]["also"]


@pytest.mark.parametrize(("text", "outcome"), [("true", Outcome.CHANGED), ("false", Outcome.TAKEN)])
def test_delivery_counts_that_survive_a_crash(text: str, outcome: Outcome, tmp_path: Path) -> None:
    store = f'<persistenceAdapter><kahaDB rewriteOnRedelivery="{text}"/></persistenceAdapter>'
    tables, found = imported(broker(store), tmp_path)
    assert finding(found, "kahaDB rewriteOnRedelivery").outcome is outcome
    kept = setting(tables, "#").get("delivery-count-persistence")
    assert kept == ("strict" if text == "true" else None)
    assert finding(found, "persistenceAdapter").outcome is Outcome.LEFT
