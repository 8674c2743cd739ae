"""The metrics as a scraper reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.broker.management.harness import Client

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(client: Client) -> Samples:
    answer = await client.call("GET", "/metrics", token=None)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, /, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]
