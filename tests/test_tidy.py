"""The rules of the house: who imports whom, where the outside world is touched, how long things are.

Each rule is held twice: over the sources as they are, and over a small one that breaks it, so that a rule that no
longer sees anything is noticed.
"""

from __future__ import annotations

import pytest

from tests.support import tidy
from tests.support.tidy import ROOT, Source

PRODUCT = tidy.sources(*tidy.PRODUCT)
ALL = tidy.sources(*tidy.OURS)


def test_the_sources_are_found() -> None:
    names = {source.module for source in ALL}
    assert {"broker", "broker.engine.engine", "store.journal", "protocols.stomp.connection", "tests.test_tidy"} <= names


@pytest.mark.parametrize("name", tidy.TOP_LEVEL)
def test_top_level_names(name: str) -> None:
    assert (ROOT / name).exists()


def test_imports_run_downward() -> None:
    assert [found for source in PRODUCT for found in tidy.forbidden_imports(source)] == []


def test_the_outside_world_is_touched_where_it_may_be() -> None:
    assert [found for source in PRODUCT for found in tidy.outside_touched(source)] == []


def test_functions_are_short() -> None:
    assert [found for source in ALL for found in tidy.too_long(source)] == []


def test_tests_do_not_sleep() -> None:
    assert [found for source in tidy.sources("tests") for found in tidy.sleeps(source)] == []


def test_sessions_act_in_the_name_of_their_peers() -> None:
    sessions = [source for source in PRODUCT if source.module.startswith("broker.sessions")]
    assert [found for source in sessions for found in tidy.without_access(source)] == []


def test_no_banned_words() -> None:
    assert [found for name, text in tidy.texts() for found in tidy.banned_words(name, text)] == []


def test_rooms_of_the_rules_exist() -> None:
    modules = {source.module for source in PRODUCT}
    rooms = {*tidy.MAY_IMPORT, *(room for rooms in (*tidy.OUTSIDE.values(), *tidy.CALLS.values()) for room in rooms)}
    rooms |= {room for allowed in tidy.MAY_IMPORT.values() for room in allowed} - {"broker.__version__"}
    assert {room for room in rooms if not any(name == room or name.startswith(f"{room}.") for name in modules)} == set()


# -- each rule sees what breaks it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("protocols/stomp/frames.py", "import store.record"),
        ("protocols/stomp/frames.py", "from protocols.mqtt import frames"),
        ("protocols/stomp/frames.py", "from ..mqtt import frames"),
        ("protocols/buffer.py", "from protocols.stomp import frames"),
        ("store/journal.py", "from broker.engine.model.message import Message"),
        ("store/journal.py", "def f():\n    import protocols"),
        ("broker/engine/queues/queue.py", "from store.files import OsFiles"),
        ("broker/engine/queues/queue.py", "from store import writer"),
        ("broker/engine/queues/queue.py", "from protocols.stomp.frames import Frame"),
        ("broker/engine/queues/queue.py", "from broker.config import Config"),
        ("broker/sessions/stomp/session.py", "from broker.net.connection import Connection"),
        ("broker/sessions/stomp/session.py", "from store.record import decode"),
        ("broker/net/connection.py", "from protocols.stomp import connection"),
        ("broker/net/connection.py", "import broker.daemon"),
        ("broker/management/api.py", "from broker.daemon import Daemon"),
        ("broker/clock.py", "from broker.log import Log"),
        ("broker/newcomer.py", ""),
        ("broker/daemon/run.py", "from tests.support import pair"),
    ],
)
def test_a_forbidden_import_is_seen(path: str, text: str) -> None:
    assert len(tidy.forbidden_imports(Source(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("protocols/stomp/frames.py", "from protocols.stomp.errors import StompError\nimport re"),
        ("broker/engine/queues/queue.py", "from store import record\nfrom store.journal import Journal"),
        ("broker/daemon/run.py", "from broker.net.listener import Listener\nfrom store.files import OsFiles"),
        ("broker/cli/main.py", "from broker import __version__, daemon"),
    ],
)
def test_an_allowed_import_is_not(path: str, text: str) -> None:
    assert tidy.forbidden_imports(Source(path, text)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("broker/engine/engine.py", "import asyncio"),
        ("broker/engine/engine.py", "from os import path"),
        ("broker/engine/engine.py", "import os.path"),
        ("broker/engine/engine.py", "import time as clock"),
        ("broker/engine/engine.py", "from random import random"),
        ("broker/engine/engine.py", "import random"),
        ("broker/engine/engine.py", "import socket"),
        ("broker/sessions/stomp/session.py", "from time import monotonic"),
        ("store/journal.py", "open('x')"),
        ("store/journal.py", "import os"),
        ("store/journal.py", "import threading"),
        ("store/journal.py", "datetime.now()"),
        ("broker/net/connection.py", "print('x')"),
        ("broker/engine/routing/state.py", "uuid.uuid4()"),
    ],
)
def test_the_outside_world_is_seen(path: str, text: str) -> None:
    assert len(tidy.outside_touched(Source(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("broker/engine/engine.py", "from random import Random"),
        ("broker/net/connection.py", "import asyncio"),
        ("broker/clock.py", "import time, random"),
        ("store/files.py", "import os\nopen('x')"),
        ("store/journal.py", "files.open('x')"),
        ("broker/cli/output.py", "print('x')"),
    ],
)
def test_what_may_touch_it_is_not(path: str, text: str) -> None:
    assert tidy.outside_touched(Source(path, text)) == []


@pytest.mark.parametrize(("lines", "seen"), [(tidy.FUNCTION_LINES_MAX, 0), (tidy.FUNCTION_LINES_MAX + 1, 1)])
@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_a_long_function_is_seen(keyword: str, lines: int, seen: int) -> None:
    source = Source("store/x.py", f"class C:\n    {keyword} f(self):\n" + "        pass\n" * (lines - 1))
    assert len(tidy.too_long(source)) == seen


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("time.sleep(1)", 1),
        ("time.sleep(0)", 1),
        ("await asyncio.sleep(0.1)", 1),
        ("await asyncio.sleep(period)", 1),
        ("from time import sleep", 1),
        ("from asyncio import sleep as nap", 1),
        ("await asyncio.sleep(0)", 0),
        ("from time import monotonic", 0),
        ("asyncio.wait_for(x, 1)", 0),
    ],
)
def test_a_sleep_is_seen(text: str, seen: int) -> None:
    assert len(tidy.sleeps(Source("tests/test_x.py", text))) == seen


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("destinations.destination(engine._state, name, None)", 1),
        ("destinations.destination(engine._state, name, None, access=self.access)", 0),
        ("SubscribeRequest(name)", 1),
        ("engine.publish([Send(address, None, None, messages)])", 0),
    ],
)
def test_an_act_in_nobodys_name_is_seen(text: str, seen: int) -> None:
    assert len(tidy.without_access(Source("broker/sessions/x.py", text))) == seen


@pytest.mark.parametrize("word", tidy.BANNED)
def test_a_banned_word_is_seen(word: str) -> None:
    [found] = tidy.banned_words("x.md", f"fine\n# {word}: later\n{word}S {word.lower()}\n")
    assert found == f"x.md:2: {word}: {tidy.BANNED[word]}"
