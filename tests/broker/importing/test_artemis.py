"""An Artemis broker.xml as a broker.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.importing import Outcome
from broker.importing.xml import read
from tests.broker.importing.harness import ARTEMIS, core, finding, imported, leaves, setting


def test_every_element_is_in_the_report(tmp_path: Path) -> None:
    _, found = imported(ARTEMIS, tmp_path)
    told = {each.place.line for each in found.report.findings}
    # of some the element that they are in says it all
    assert [leaf for leaf, parent in leaves(read(ARTEMIS)) if not told & {leaf.line, parent.line}] == []
    assert all(each.why for each in found.report.findings if each.outcome is not Outcome.TAKEN)
    assert finding(found, "cluster-password").place.value == "(not shown)"


def test_settings_of_the_broker(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    assert tables["broker"]["name"] == "shop"
    assert "the system property shop.broker.name" in finding(found, "name").why
    assert tables["broker"]["message-expiry-scan-period"] == "10s"
    assert tables["broker"]["global-max-size"] == "256MiB"
    assert tables["broker"]["max-disk-usage"] == 85
    assert tables["broker"]["disk-scan-period"] == "2s"
    assert tables["journal"]["segment-size"] == "32MiB"
    assert tables["journal"]["retention"] == {"enabled": True, "max-age": "3d", "max-bytes": "2GiB"}
    assert finding(found, "persistence-enabled").outcome is Outcome.TAKEN
    assert finding(found, "no-such-element").why.startswith("unknown to this importer")


def test_values_that_the_models_refuse_are_left_out_and_reported(tmp_path: Path) -> None:
    tables, found = imported(core("<journal-file-size>1M</journal-file-size><name></name>"), tmp_path)
    assert "journal" not in tables
    assert finding(found, "journal-file-size").outcome is Outcome.LEFT
    assert "the default stays" in finding(found, "journal-file-size").why
    assert finding(found, "name").outcome is Outcome.LEFT


def test_a_clash_with_a_default_is_told_as_one(tmp_path: Path) -> None:
    tables, found = imported(core("<journal-file-size>10M</journal-file-size>"), tmp_path)
    assert "journal" not in tables
    assert finding(found, "journal-file-size").why.startswith("it clashes with limits.body-bytes-max")


@pytest.mark.parametrize("element", ["persistence-enabled", "journal-datasync", "journal-sync-transactional"])
def test_promises_that_cannot_be_switched_off(element: str, tmp_path: Path) -> None:
    _, found = imported(core(f"<{element}>false</{element}>"), tmp_path)
    assert finding(found, element).outcome is Outcome.LEFT


def test_address_settings(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    assert setting(tables, "#")["dead-letter-address"] == "DLQ"
    assert setting(tables, "#")["persist-delivery-count-before-delivery"] is True
    orders = setting(tables, "orders.#")
    assert orders["redelivery-delay"] == "5s"
    assert orders["redelivery-delay-multiplier"] == 1.5
    assert orders["max-size-bytes"] == "10MiB"
    assert orders["max-delivery-attempts"] == 3, "the first of two with one match"
    assert orders["default-queue-routing-type"] == "ANYCAST"
    assert finding(found, 'address-setting "orders.#": max-size-messages').why.startswith("this is not an integer")
    assert "older name" in finding(found, 'address-setting "orders.#": auto-create-jms-queues').why


def test_paging_is_taken(tmp_path: Path) -> None:
    settings = (
        '<address-setting match="a"><address-full-policy>PAGE</address-full-policy>'
        "<page-limit-messages>5</page-limit-messages><page-size-bytes>1M</page-size-bytes></address-setting>"
    )
    tables, found = imported(core(f"<address-settings>{settings}</address-settings>"), tmp_path)
    assert setting(tables, "a") == {"match": "a", "address-full-policy": "PAGE", "page-limit-messages": 5}
    assert finding(found, 'address-setting "a": address-full-policy').outcome is Outcome.TAKEN
    assert "paged messages stay in the journal" in finding(found, 'address-setting "a": page-size-bytes').why


def test_seconds_of_artemis_are_durations(tmp_path: Path) -> None:
    settings = '<address-setting match="a"><slow-consumer-check-period>5</slow-consumer-check-period></address-setting>'
    tables, _ = imported(core(f"<address-settings>{settings}</address-settings>"), tmp_path)
    assert setting(tables, "a")["slow-consumer-check-period"] == "5s"


OWN = {"match": "#", "dead-letter-address": "DLQ", "expiry-address": "ExpiryQueue", "auto-delete-queues": True}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ("", OWN),
        ("<address-settings/>", OWN),
        (
            '<address-settings><address-setting match="orders.#"><dead-letter-address>D</dead-letter-address>'
            "</address-setting></address-settings>",
            OWN,
        ),
        (
            '<address-settings><address-setting match="#"><dead-letter-address>D</dead-letter-address>'
            "<auto-delete-queues>false</auto-delete-queues></address-setting></address-settings>",
            OWN | {"dead-letter-address": "D", "auto-delete-queues": False},
        ),
    ],
)
def test_settings_that_the_file_does_not_give_for_all_addresses_are_written_and_reported(
    settings: str, kept: dict[str, object], tmp_path: Path
) -> None:
    tables, found = imported(core(settings), tmp_path)
    assert setting(tables, "#") == kept
    for name, value in kept.items():
        if OWN[name] == value and name != "match":
            assert finding(found, f"no {name} for all addresses").outcome is Outcome.CHANGED


def test_addresses_and_queues(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    addresses = tables["addresses"]
    new = addresses["orders.new"]["queues"]
    assert new["orders.new"]["routing-type"] == "ANYCAST"
    assert new["orders.new"]["durable"] is True
    assert new["orders.large"]["filter"] == "pieces > 100"
    assert addresses["news"] == {"routing-types": ["MULTICAST"]}
    assert addresses["both"]["routing-types"] == ["ANYCAST"]
    assert addresses["both"]["queues"]["both.copy"]["durable"] is False
    assert "again" not in addresses, "its queue is another address's"
    assert "nothing" not in addresses
    assert finding(found, "address nothing").outcome is Outcome.LEFT
    assert "the expression ends too early" in finding(found, "queue badly.filtered: filter").why


def test_the_older_form_of_queues_is_multicast(tmp_path: Path) -> None:
    queues = (
        '<queues><queue name="q"><address>a</address><filter string="x = 1"/><durable>false</durable></queue></queues>'
    )
    tables, _ = imported(core(queues), tmp_path)
    assert tables["addresses"]["a"]["queues"]["q"] == {"routing-type": "MULTICAST", "durable": False, "filter": "x = 1"}


def test_a_default_ring_does_not_reach_configured_queues(tmp_path: Path) -> None:
    text = core(
        '<address-settings><address-setting match="#"><default-ring-size>3</default-ring-size></address-setting>'
        '</address-settings><addresses><address name="a"><anycast><queue name="a"/></anycast></address></addresses>'
    )
    tables, found = imported(text, tmp_path)
    if "default-ring-size" in setting(tables, "#"):
        assert tables["addresses"]["a"]["queues"]["a"]["ring-size"] == -1
        assert finding(found, "queue a: no ring-size").outcome is Outcome.CHANGED


def test_a_divert_goes_with_all_it_says_or_not_at_all(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    assert tables["diverts"] == {
        "prices": {"address": "news", "forwarding-address": "prices", "filter": "kind = 'price'", "exclusive": False}
    }
    assert finding(found, "divert foreign: transformer").outcome is Outcome.LEFT
    assert "not without divert foreign: transformer" in finding(found, "divert foreign: exclusive").why


def test_the_transformer_that_adds_headers(tmp_path: Path) -> None:
    name = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"
    text = core(
        '<diverts><divert name="d"><address>a</address><forwarding-address>b</forwarding-address><transformer>'
        f'<class-name>{name}</class-name><property key="from" value="a"/></transformer></divert></diverts>'
    )
    tables, _ = imported(text, tmp_path)
    assert tables["diverts"]["d"]["add-headers"] == ["from: a"]


def test_permissions(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    assert tables["security-settings"] == [{"match": "#", "send": ["clerks", "drivers"], "consume": ["drivers"]}]
    assert [each.why for each in found.report.findings if each.place.what == 'security-setting "#"'] == [
        "this match appeared before: the first applies"
    ]
    assert finding(found, "role-mapping").outcome is Outcome.LEFT


def test_limits_of_users(tmp_path: Path) -> None:
    text = """<resource-limit-settings>
        <resource-limit-setting match="alice"><max-connections>5</max-connections><max-queues>3</max-queues>
        </resource-limit-setting>
        <resource-limit-setting match="alice"><max-queues>4</max-queues></resource-limit-setting>
        <resource-limit-setting match="bob"><max-sessions>many</max-sessions><max-queues>-1</max-queues>
        </resource-limit-setting></resource-limit-settings>"""
    tables, found = imported(core(text), tmp_path)
    assert tables["resource-limit-settings"] == [
        {"match": "alice", "max-connections": 5, "max-queues": 3},
        {"match": "bob", "max-queues": -1},
    ]
    assert finding(found, 'resource-limit-setting "alice"').outcome is Outcome.LEFT
    assert finding(found, 'resource-limit-setting "bob": max-sessions').outcome is Outcome.LEFT


def test_security_switched_off_lets_everybody_in(tmp_path: Path) -> None:
    tables, found = imported(core("<security-enabled>false</security-enabled>"), tmp_path)
    assert tables["security"] == {"anonymous": True}
    assert finding(found, "security-enabled").outcome is Outcome.CHANGED


def test_settings_of_the_broker_go_to_everything_in_the_characters_of_the_file(tmp_path: Path) -> None:
    """The AMQ Broker manual's example."""
    wildcards = "<delimiter>,</delimiter><any-words>@</any-words><single-word>$</single-word>"
    counts = "<persist-delivery-count-before-delivery>true</persist-delivery-count-before-delivery>"
    inner = f"<wildcard-addresses>{wildcards}</wildcard-addresses>{counts}"
    tables, _ = imported(core(inner), tmp_path)
    assert setting(tables, "@")["persist-delivery-count-before-delivery"] is True
    tables, found = imported(core(f"{inner}<security-settings>{EVERYBODY}</security-settings>"), tmp_path)
    assert finding(found, 'security-setting "@": send').outcome is Outcome.TAKEN


EVERYBODY = '<security-setting match="@"><permission type="send" roles="amq"/></security-setting>'


@pytest.mark.parametrize("missing", ["address", "forwarding-address"])
def test_a_divert_that_lacks_what_it_needs_is_left(missing: str, tmp_path: Path) -> None:
    given = "".join(f"<{name}>a</{name}>" for name in ("address", "forwarding-address") if name != missing)
    tables, _ = imported(core(f'<diverts><divert name="d">{given}</divert></diverts>'), tmp_path)
    assert "diverts" not in tables
