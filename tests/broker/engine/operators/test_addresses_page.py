"""docs/addresses.md refuses what the configuration refuses, and its evidence names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from broker.config.addresses import REFUSED_SETTINGS
from broker.engine.model.attributes import FIELDS
from broker.engine.model.row import kebab
from broker.engine.model.settings import SETTINGS

ROOT = Path(__file__).parents[4]
ARTEMIS = """
    dead-letter-address auto-create-dead-letter-resources dead-letter-queue-prefix dead-letter-queue-suffix
    expiry-address auto-create-expiry-resources expiry-queue-prefix expiry-queue-suffix no-expiry expiry-delay
    min-expiry-delay max-expiry-delay redelivery-delay redelivery-delay-multiplier
    redelivery-collision-avoidance-factor max-redelivery-delay max-delivery-attempts send-to-dla-on-no-route
    max-size-bytes max-size-messages max-size-bytes-reject-threshold address-full-policy disk-full-policy
    page-size-bytes page-max-cache-size max-read-page-messages max-read-page-bytes prefetch-page-messages
    prefetch-page-bytes page-limit-bytes page-limit-messages page-full-policy message-counter-history-day-limit
    default-last-value-queue last-value-queue default-last-value-key default-non-destructive default-exclusive-queue
    default-group-rebalance default-group-rebalance-pause-dispatch default-group-buckets default-group-first-key
    default-consumers-before-dispatch default-delay-before-dispatch default-max-consumers
    default-purge-on-no-consumers default-ring-size default-queue-routing-type default-address-routing-type
    default-consumer-window-size redistribution-delay slow-consumer-threshold
    slow-consumer-threshold-measurement-unit slow-consumer-check-period slow-consumer-policy auto-create-queues
    auto-create-addresses auto-delete-queues auto-delete-addresses auto-delete-created-queues
    auto-delete-queues-delay auto-delete-addresses-delay auto-delete-queues-message-count
    auto-delete-queues-skip-usage-check auto-delete-addresses-skip-usage-check config-delete-queues
    config-delete-addresses config-delete-diverts management-browse-page-size
    management-message-attribute-size-limit retroactive-message-count enable-metrics enable-ingress-timestamp
    id-cache-size initial-queue-buffer-size queue-prefetch auto-create-jms-queues auto-create-jms-topics
    auto-delete-jms-queues auto-delete-jms-topics
"""
PAGE = (ROOT / "docs" / "addresses.md").read_text("utf-8")
EVIDENCE = (ROOT / "docs" / "dev" / "addresses-evidence.md").read_text("utf-8")


def test_every_test_of_the_table_exists() -> None:
    rows = re.findall(r"`([a-z_/0-9]+\.py)::(test_\w+)`", EVIDENCE)
    assert len(rows) > 50
    sources = {file: (ROOT / "tests" / "broker" / file).read_text("utf-8") for file, _ in rows}
    assert [(file, name) for file, name in rows if f"def {name}(" not in sources[file]] == []


def section(page: str, heading: str) -> str:
    """A section of a page."""
    return page.partition(f"## {heading}")[2].partition("\n## ")[0]


def named(text: str) -> list[str]:
    """What the first columns of its tables name."""
    return [
        name for row in re.findall(r"^\| (`.*?`) +\|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]


def test_refused_settings_are_those_of_the_configuration() -> None:
    assert sorted(named(section(PAGE, "Settings that are refused"))) == sorted(REFUSED_SETTINGS)


def test_every_setting_and_attribute_has_a_test() -> None:
    settings, _, attributes = section(EVIDENCE, "Settings and the tests that show them").partition(
        "And every [attribute"
    )
    assert sorted(named(settings)) == sorted(map(kebab, SETTINGS))
    assert sorted(named(attributes)) == sorted(map(kebab, FIELDS))


def test_every_setting_of_artemis_is_taken_or_refused() -> None:
    """The list is that of the manual's chapter on address settings, of version 2.57."""
    known = set(map(kebab, SETTINGS)) | set(REFUSED_SETTINGS)
    assert set(ARTEMIS.split()) - known == {"last-value-queue"}, "a name that Artemis itself has given up"
    assert known - set(ARTEMIS.split()) == {"delivery-count-persistence", "max-redelivery-records"}
