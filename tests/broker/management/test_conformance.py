"""The API does what its OpenAPI document says: Schemathesis calls it with what that allows, and with what it does not.

No answer is a 5xx, each has a status, a content type and a body that the document has for it, and what the document
does not allow is refused.  That the broker may refuse what the document allows (a name that is none, a selector that
cannot be read, a cursor of its own making) is what no schema can say.  That nobody calls without a login, test_callers
tries of every call; Schemathesis would try it again after each answer.

Schemathesis and the document are made where the tests run: importing and making them takes a tenth of the collection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import httpx
import pytest
import requests
import uvloop
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, settings

from broker.management import openapi
from broker.management.api import application
from broker.management.limits import Limits
from broker.sessions.links.model import Kind, LinkSettings, RouteSettings
from tests.broker.management.harness import TOKEN, TestBroker, die, serving
from tests.broker.management.linked import linked

if TYPE_CHECKING:
    from schemathesis import Case

#: Requests that are generated for each call, beside those for the limits of each field.
EXAMPLES_MAX: Final = 3

#: Its calls and what it says are the same for all brokers.
APPLICATION: Final = application(MagicMock(), "", Limits(), metrics_open=True)

#: Each call, as Schemathesis names it.
CALLS: Final = [
    f"{method} {route.path_format}"
    for route in APPLICATION.routes
    if isinstance(route, APIRoute) and route.include_in_schema
    for method in route.methods or ()
]

SETTINGS: Final = settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


async def fill(broker: TestBroker) -> None:
    """Something of everything that can be called by a name that is generated."""
    broker.send("orders", [b"1", b"2"], headers=[(b"colour", b"red")])
    broker.queue("0")
    linked(broker, LinkSettings("0", ("amqp://h:5672",), (RouteSettings("0", Kind.SEND, "orders", "there"),)))
    await die(broker, "bills", b"3")


class Served:
    """A broker with an API on an event loop of its own, in a thread.

    It is uvloop, as the daemon's, which waits for nobody's acknowledgement before it sends the rest of an answer.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()))
        self.url = ""

    async def _run(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self._directory) as (broker, client):
            await fill(broker)
            self.url = f"http://127.0.0.1:{client.port}"
            self._ready.set()
            await self._ended.wait()

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(20)
        return self.url

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi.document(APPLICATION)


@pytest.fixture(scope="module")
def api(document: dict[str, Any]) -> Any:
    import schemathesis

    return schemathesis.openapi.from_dict(document)


@pytest.fixture(scope="module")
def operations(api: Any) -> dict[str, Any]:
    """What Schemathesis knows of each call."""
    from schemathesis.core.result import Ok

    return {each.ok().label: each.ok() for each in api.get_all_operations() if isinstance(each, Ok)}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Served(tmp_path_factory.mktemp("api")) as served:
        yield served


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as one:
        one.trust_env = False
        one.headers["Authorization"] = f"Bearer {TOKEN}"
        yield one


@pytest.mark.parametrize("label", CALLS)
def test_each_call_does_what_it_says(
    label: str, api: Any, operations: dict[str, Any], url: str, session: requests.Session
) -> None:
    """A test of its own for each call: Schemathesis' own plugin gives all of them the same node id."""
    from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
    from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

    def check(case: Case[Any]) -> None:
        case.call_and_validate(base_url=url, session=session, excluded_checks=[positive_data_acceptance, ignored_auth])

    config = HypothesisTestConfig(project=api.config, modes=list(HypothesisTestMode), settings=SETTINGS)
    create_test(operation=operations[label], test_func=check, config=config)()


def test_every_call_is_called(document: dict[str, Any], operations: dict[str, Any]) -> None:
    assert set(operations) == set(CALLS)
    assert len(CALLS) == sum(map(len, document["paths"].values())) > 30


def test_a_broker_serves_its_document(document: dict[str, Any], url: str) -> None:
    served = httpx.get(f"{url}/api/v1/openapi.json", trust_env=False)
    assert served.status_code == 200
    assert served.json() == document
    assert document["openapi"].startswith("3.1.")
