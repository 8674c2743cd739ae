"""The alert rules and the dashboard of etc/ ask for metrics that there are, and fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from broker.engine import OUTCOMES, Action, DeadLetterRule
from broker.log_events import EVENTS
from broker.management.ports import Replicated
from broker.sessions.links.model import State
from tests.broker.management.harness import Client, TestBroker
from tests.broker.management.linked import Session, linked
from tests.broker.management.samples import scrape

ROOT: Final = Path(__file__).parents[3]
ALERTS: Final = ROOT / "etc" / "prometheus" / "alerts.yml"
DASHBOARD: Final = ROOT / "etc" / "grafana" / "bartleby.json"
PAGE: Final = (ROOT / "docs" / "monitoring.md").read_text("utf-8")

#: What Prometheus itself knows of a target.
OF_PROMETHEUS: Final = {"up": {"job", "instance"}}

_METRIC: Final = re.compile(r"\b(broker_\w+|process_\w+|up)\b(?:\{([^}]*)\})?")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    assert isinstance(group["rules"], list)
    return group["rules"]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


def dashboard_queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


def queries() -> list[str]:
    asked = [rule["expr"] for rule in rules()] + dashboard_queries()
    assert len(asked) > 50
    return asked


# -- against the broker ------------------------------------------------------------------------------------------------


async def test_queried_metrics_exist(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    broker.engine.usage.bytes_max = 1000
    broker.engine.dead_letter_rules.use([DeadLetterRule(name="once", action=Action.LEAVE)])
    linked(broker)
    Session(broker).lose("connection refused")
    broker.replication = Replicated("standby", 3, 1, 2.0)
    known = dict(OF_PROMETHEUS)
    for name, labels in await scrape(client):
        known.setdefault(name, {"job", "instance"}).update(label for label, _ in labels)
    for query in queries():
        asked = _METRIC.findall(query)
        assert asked, query
        for name, labels in asked:
            assert name in known, query
            assert set(re.findall(r"(\w+)(?:=|!=|=~|!~)\"", labels)) <= known[name], query
        for clause in re.findall(r"(?:by|without|on|ignoring) \(([^)]*)\)", query):
            assert set(clause.split(", ")) <= set().union(*(known[name] for name, _ in asked)), query


def test_values_of_labels_are_those_of_the_broker() -> None:
    values: dict[str, set[str]] = {}
    for query in queries():
        for label, listed in re.findall(r'(code|outcome|state|kind)=~?"([^"]+)"', query):
            values.setdefault(label, set()).update(listed.split("|"))
    assert values["code"] <= set(EVENTS)
    assert values["outcome"] <= set(OUTCOMES)
    assert values["kind"] == {"messages"}
    assert values["state"] <= {*State, "ready", "paged", "scheduled", "delivering", "landing"}


# -- the rules ---------------------------------------------------------------------------------------------------------


def test_each_alert_says_what_is_wrong_once() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["annotations"]["summary"].startswith("{{ $labels.instance }}: ")
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_the_page_says_what_to_do_about_each_alert() -> None:
    table = PAGE[PAGE.index("| alert |") :].partition("\n\n")[0]
    assert set(re.findall(r"`(Bartleby\w+)`", table)) == {rule["alert"] for rule in rules()}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Prometheus's own tool."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_prometheus_accepts_the_rules() -> None:
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def test_prometheus_accepts_the_dashboard_s_queries(tmp_path: Path) -> None:
    known = [re.sub(r"\$__\w+", "5m", query) for query in dashboard_queries()]
    written = [{"record": f"q{at}", "expr": query} for at, query in enumerate(known)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": written}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


class Case(NamedTuple):
    """Series, minute by minute as promtool writes them, after so many minutes of which an alert fires."""

    minutes: int
    series: dict[str, str]


def _event(code: str, count: int = 1) -> Case:
    return Case(20, {f'broker_events_total{{code="{code}"}}': f"0x14 {count}x10"})


_QUEUE: Final = 'broker_queue_messages{queue="orders",state="ready"}'

FIRING: Final = {
    "BartlebyDown": Case(5, {"up": "1 0x10"}),
    "BartlebyNotReady": Case(5, {"broker_ready": "1 0x10"}),
    "BartlebyRestarts": Case(40, {"broker_start_time_seconds": "1x10 2x10 3x10 4x20"}),
    "BartlebyRestarted": Case(15, {"broker_start_time_seconds": "1x10 2x10"}),
    "BartlebyFault": _event("broker.error"),
    "BartlebyNoOwner": Case(
        5,
        {
            'broker_replication_role{role="standby"}': "1x10",
            'broker_replication_role{role="owner",instance="two:8161"}': "1 0x10",
        },
    ),
    "BartlebyNoStandby": Case(
        10,
        {
            'broker_replication_role{role="owner"}': "1x20",
            'broker_replication_role{role="standby",instance="two:8161"}': "1 0x20",
        },
    ),
    "BartlebyStandbyBehind": Case(10, {"broker_replication_lag_seconds": "0+60x20"}),
    "BartlebyDiskFull": Case(1, {"broker_disk_full": "0 1x5", "broker_journal_full": "0x6"}),
    "BartlebyDiskWillFill": Case(420, {"broker_disk_free_bytes": "1000000-1000x500"}),
    "BartlebySlowDisk": Case(15, {"broker_journal_slow_fsyncs_total": "0+1x20"}),
    "BartlebyDiskLatency": Case(
        20, {"broker_journal_fsync_seconds_sum": "0+30x20", "broker_journal_fsync_seconds_count": "0+100x20"}
    ),
    "BartlebyDeadLetters": Case(15, {"broker_messages_dead_lettered_total": "0x14 1x5"}),
    "BartlebyDeadLettersStay": Case(1500, {'broker_queue_messages{queue="DLQ",state="paged"}': "1x1600"}),
    "BartlebyDeadLetterRuleRefused": Case(
        15, {'broker_dead_letter_rule_messages_total{rule="r",outcome="refused"}': "0x14 1x5"}
    ),
    "BartlebyMessagesLostByConfiguration": Case(
        15, {"broker_messages_killed_total": "0x20", "broker_messages_dropped_total": "0x14 5x5"}
    ),
    "BartlebyRefusedUnheard": _event("mqtt.publish_dropped"),
    "BartlebyMessagesUnreadable": _event("paging.failed"),
    "BartlebyLinkDown": Case(
        10,
        {
            'broker_link_state{link="paris",state="starting"}': "0 1 0 1 0 1 0 1 0 1 0 1",
            'broker_link_state{link="paris",state="retrying"}': "0 0 1 0 1 0 1 0 1 0 1 0",
        },
    ),
    "BartlebyLinkRouteWaits": Case(
        10, {'broker_link_route_state{link="paris",route="orders",state="retrying"}': "0 1x10"}
    ),
    "BartlebyLinkInDoubt": Case(2, {'broker_link_route_state{link="paris",route="orders",state="in-doubt"}': "0 1x5"}),
    "BartlebyLinkLost": Case(30, {'broker_link_up{link="paris"}': "1 0 1 0 1 0 1x30"}),
    "BartlebyOldestMessage": Case(30, {'broker_queue_oldest_message_age_seconds{queue="orders"}': "0+60x40"}),
    "BartlebyNoConsumer": Case(
        20,
        {
            _QUEUE: "1x30",
            'broker_queue_consumers{queue="orders"}': "0x30",
            'broker_queue_offline_sessions{queue="orders"}': "0x30",
        },
    ),
    "BartlebyBacklogGrows": Case(240, {_QUEUE: "1000+10x300"}),
    "BartlebyPaging": Case(90, {"broker_paged_messages": "5x100"}),
    "BartlebyMemory": Case(
        15, {'broker_memory_bytes{kind="messages"}': "95x20", "broker_memory_limit_bytes": "100x20"}
    ),
    "BartlebyProducersBlocked": _event("address.full.blocking"),
    "BartlebySlowConsumers": _event("consumer.slow"),
    "BartlebyLoginsRefused": _event("login.refused", 50),
    "BartlebyAccessDenied": _event("access.denied"),
    "BartlebyConnectionsRefused": Case(
        15, {'broker_connections_refused_total{acceptor="stomp",protocol="stomp"}': "0x14 3x5"}
    ),
    "BartlebyCertificateEnds": Case(1, {'broker_certificate_end_seconds{acceptor="stomp"}': "1000000x5"}),
    "BartlebyKeysOrCertificates": _event("security.refused"),
}

#: A broker that does its work for a day and two hours: it is busy, some logins fail, and backlogs come and go.
HEALTHY: Final = {
    "up": "1x1600",
    "broker_ready": "1x1600",
    'broker_replication_role{role="owner"}': "1x1600",
    'broker_replication_role{role="standby",instance="two:8161"}': "1x1600",
    'broker_replication_role{role="standby"}': "0x1600",
    "broker_replication_lag_seconds": "1x1600",
    "broker_start_time_seconds": "1x1600",
    'broker_certificate_end_seconds{acceptor="stomp"}': "7776000x1600",
    "broker_disk_full": "0x1600",
    "broker_journal_full": "0x1600",
    "broker_disk_free_bytes": "1000000000x1600",
    "broker_journal_slow_fsyncs_total": "0x1600",
    "broker_journal_fsync_seconds_sum": "0+1x1600",
    "broker_journal_fsync_seconds_count": "0+500x1600",
    "broker_messages_dead_lettered_total": "7x1600",
    "broker_messages_killed_total": "0x1600",
    "broker_messages_dropped_total": "0x1600",
    "broker_paged_messages": "0x1600",
    'broker_memory_bytes{kind="messages"}': "50x1600",
    "broker_memory_limit_bytes": "100x1600",
    _QUEUE: "5x1600",
    'broker_queue_consumers{queue="orders"}': "1x1600",
    'broker_queue_offline_sessions{queue="orders"}': "0x1600",
    # A telephone is switched off: what its session keeps waits for it.
    'broker_queue_messages{queue="phone.news",state="ready"}': "3x1600",
    'broker_queue_consumers{queue="phone.news"}': "0x1600",
    'broker_queue_offline_sessions{queue="phone.news"}': "1x1600",
    'broker_queue_oldest_message_age_seconds{queue="orders"}': "2x1600",
    'broker_queue_messages{queue="DLQ",state="ready"}': "0x1600",
    # One link is restarted at noon with the other broker, another one is stopped.
    'broker_link_up{link="paris"}': "1x700 0x2 1x900",
    'broker_link_state{link="paris",state="retrying"}': "0x700 1x2 0x900",
    'broker_link_state{link="rome",state="stopped"}': "1x1600",
    'broker_link_route_state{link="paris",route="orders",state="starting"}': "0x701 1x2 0x900",
    'broker_link_route_state{link="paris",route="orders",state="in-doubt"}': "0x1600",
    'broker_events_total{code="login.refused"}': "0+1x1600",
    'broker_events_total{code="access.denied"}': "3x1600",
    'broker_events_total{code="broker.error"}': "0x1600",
}


def _target(series: str) -> str:
    name, _, labels = series.partition("{")
    instance = "" if "instance=" in labels else 'instance="b",'
    return f'{name}{{job="bartleby",{instance}{labels or "}"}'


def _tests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield tests, each with the interval at which its rules are evaluated: of a day, each minute would take long."""
    for alert, case in FIRING.items():
        yield _test(case, f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', [{"labels": "{}", "value": 1}])
    for minutes in (60, 240, 1560):
        yield _test(Case(minutes, HEALTHY), 'ALERTS{alertstate="firing"}', [])


def _test(case: Case, query: str, expected: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return "10m" if case.minutes > 1000 else "1m", {
        "interval": "1m",
        "input_series": [{"series": _target(name), "values": values} for name, values in case.series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": f"{case.minutes}m", "exp_samples": expected}],
    }


def test_each_alert_fires_when_it_should_and_none_for_a_healthy_broker(tmp_path: Path) -> None:
    assert list(FIRING) == [rule["alert"] for rule in rules()]
    tests = defaultdict(list)
    for interval, test in _tests():
        tests[interval].append(test)
    for interval, each in tests.items():
        content = {"rule_files": [str(ALERTS)], "evaluation_interval": interval, "tests": each}
        (tmp_path / f"{interval}.yml").write_text(yaml.safe_dump(content))
    done = promtool("test", "rules", *map(str, tmp_path.iterdir()))
    assert done.returncode == 0, done.stdout + done.stderr


# -- the dashboard -----------------------------------------------------------------------------------------------------


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    assert (dashboard["uid"], dashboard["title"]) == ("bartleby", "Bartleby")
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "instance"}
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
            assert all('instance=~"$instance"' in target["expr"] for target in panel["targets"]), panel["title"]
            assert panel["description"], panel["title"]


def test_no_panel_lies_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert x < 24, panel["title"]
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
