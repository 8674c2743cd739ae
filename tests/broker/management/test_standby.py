"""What a standby answers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from broker.management.api import Api
from broker.management.ports import Replicated
from broker.management.standby import StandbyApi
from tests.broker.management.harness import TestBroker

TOKEN = "the token"
KNOWN = {"authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def asked(broker: TestBroker, state: list[Replicated], *, metrics_open: bool) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a standby whose state is the last of these."""
    standby = StandbyApi(lambda: state[-1], TOKEN, name="one", version="1.2", started=1_000, now=lambda: 5_000)
    api = Api(broker, TOKEN, metrics_open=True, hosts=None, standby=standby.application(metrics_open))
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_health(broker: TestBroker) -> None:
    state = [Replicated("standby", 3)]
    async with asked(broker, state, metrics_open=True) as client:
        assert (await client.get("/livez")).status_code == 200
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json() == {"ready": False, "reasons": ["standby: this broker does not own the journal"]}
        state.append(Replicated("standby", 3, 17, 2.5, "connecting to PostgreSQL: refused"))
        assert (await client.get("/readyz")).json()["reasons"][1:] == ["connecting to PostgreSQL: refused"]


async def test_its_status_is_for_the_owner_of_the_token(broker: TestBroker) -> None:
    state = [Replicated("standby", 3, 17, 2.5, "trouble")]
    async with asked(broker, state, metrics_open=True) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic eDp5"}):
            refused = await client.get("/api/v1/status", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (401, "not-logged-in")
        answer = (await client.get("/api/v1/status", headers=KNOWN)).json()
        assert (answer["name"], answer["version"], answer["uptime"], answer["ready"]) == ("one", "1.2", 4_000, False)
        assert answer["replication"] == {
            "role": "standby",
            "epoch": 3,
            "lag_entries": 17,
            "lag_seconds": 2.5,
            "trouble": "trouble",
            "starting": "",
            "confirmed_by": "",
        }


async def test_metrics(broker: TestBroker) -> None:
    state = [Replicated("standby", 3, 17, 2.5)]
    async with asked(broker, state, metrics_open=True) as client:
        lines = (await client.get("/metrics")).text.splitlines()
        for line in (
            'broker_replication_role{role="owner"} 0.0',
            'broker_replication_role{role="standby"} 1.0',
            "broker_replication_epoch 3.0",
            "broker_replication_lag_entries 17.0",
            "broker_replication_lag_seconds 2.5",
            "broker_ready 0.0",
        ):
            assert line in lines
    async with asked(broker, state, metrics_open=False) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=KNOWN)).status_code == 200


async def test_all_else_is_the_owners(broker: TestBroker) -> None:
    async with asked(broker, [Replicated("standby", 3)], metrics_open=True) as client:
        for method, path in (("GET", "/"), ("GET", "/api/v1/queues"), ("POST", "/api/v1/failover"), ("PUT", "/x/y")):
            answer = await client.request(method, path, headers=KNOWN)
            assert (answer.status_code, answer.json()["code"]) == (503, "standby"), path


async def test_an_owner_shows_what_it_is(broker: TestBroker) -> None:
    api = Api(broker, TOKEN, metrics_open=True, hosts=None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://localhost") as client:
        assert "broker_replication_role" not in (await client.get("/metrics")).text
        broker.replication = Replicated("owner", 7)
        text = (await client.get("/metrics")).text
        assert 'broker_replication_role{role="owner"} 1.0' in text
        assert "broker_replication_epoch 7.0" in text
