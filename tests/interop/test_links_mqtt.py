"""MQTT bridges between processes, to another Bartleby and to Mosquitto: either end is killed, and all is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.interop.numbered import (
    END,
    KEEPING,
    MESSAGES,
    arrived,
    check,
    client,
    collect,
    collected,
    numbers,
    publish,
)
from tests.interop.relay import relayed
from tests.support.daemon import DaemonProcess, running
from tests.support.peers import Mosquitto
from tests.support.process import NotAvailable, awaited, started

LINK: Final = """
[broker]
name = "here"

[links.there]
url = "mqtt://127.0.0.1:{port}"
retry-interval = "100ms"
retry-interval-max = "200ms"
window = 100

[links.there.mqtt.out]
topic = "out/#"
direction = "out"
qos = {qos}
local-prefix = "here/"
remote-prefix = "from-here/"

[links.there.mqtt.in]
topic = "in/#"
direction = "in"
qos = {qos}
local-prefix = "from-there/"
remote-prefix = "there/"

[links.there.mqtt.both]
topic = "both/#"
direction = "both"
qos = {qos}
"""


#: Messages that the address of what comes in has room for.
ROOM: Final = 200

#: More than fit and a window; and some seconds' work of a Mosquitto, which writes down all it has after each.
FEW: Final = 600

FULL: Final = f"""
[[address-settings]]
match = "from-there.in.1"
max-size-messages = {ROOM}
address-full-policy = "{{policy}}"
"""


class There(Protocol):
    """The other broker, on a port that stays."""

    @property
    def port(self) -> int:
        """Where it listens, always."""

    def kill(self) -> object:
        """SIGKILL."""

    def start(self) -> object:
        """Start it, again."""


class OtherMosquitto(Mosquitto):
    """Mosquitto as the other broker."""

    @property
    def port(self) -> int:
        """Where it listens, always."""
        return self.ports["mqtt"]


@contextmanager
def other(kind: str, directory: Path) -> Iterator[There]:
    """The other broker, which runs."""
    directory.mkdir()
    if kind == "bartleby":
        with running(directory) as broker, relayed(broker, "mqtt") as relay:
            yield relay
        return
    try:
        with started(OtherMosquitto(directory, *KEEPING)) as mosquitto:
            yield mosquitto
    except NotAvailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=["bartleby", "mosquitto"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[There]:
    """Either."""
    with other(request.param, tmp_path / "there") as found:
        yield found


@contextmanager
def bridged(there: There, directory: Path, qos: int, more: str = "") -> Iterator[DaemonProcess]:
    """A broker with a link to the other one, which is up, and `more` configured."""
    with running(directory, LINK.format(port=there.port, qos=qos) + more) as here:
        here.await_log("route=both")
        yield here


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_both_directions_and_prefixes(there: There, tmp_path: Path, qos: int) -> None:
    with bridged(there, tmp_path, qos) as here:
        at_here = client(here.ports["mqtt"], "h", "#")
        at_there = client(there.port, "t", "#")
        at_here.publish("here/out/1", b"out", qos)
        at_there.publish("there/in/1", b"in", qos)
        for publisher in (at_here, at_there):
            publisher.publish("both/1", b"both", qos)
            publisher.publish("neither", b"neither", qos)
        expected = {
            at_here: {("here/out/1", b"out"), ("from-there/in/1", b"in"), ("neither", b"neither")},
            at_there: {("from-here/out/1", b"out"), ("there/in/1", b"in"), ("neither", b"neither")},
        }
        for reader, topics in expected.items():
            wanted = Counter(topics) + Counter({("both/1", b"both"): 2})
            assert arrived(reader, sum(wanted.values())) == wanted
            reader.disconnect()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_a_full_address_here_keeps_back_nothing_that_goes_out(
    there: There, tmp_path: Path, policy: str, qos: int
) -> None:
    """What comes in waits there, without loss, and comes when there is room."""
    with bridged(there, tmp_path, qos, FULL.format(policy=policy)) as here:
        collect(there.port, "from-here/out/#")
        collect(here.ports["mqtt"], "from-there/in/#")
        sent = [*numbers(FEW), END]
        publish(there.port, "there/in/1", qos, sent)
        awaited(lambda: here.queue("collector.from-there.in.#")["messages"] >= ROOM)
        publish(here.ports["mqtt"], "here/out/1", qos, sent)
        check(collected(there.port, "from-here/out/1"), qos, sent)
        assert here.queue("collector.from-there.in.#")["messages"] < len(sent)
        check(collected(here.ports["mqtt"], "from-there/in/1"), qos, sent)


@pytest.mark.parametrize("qos", [1, 2])
def test_killed_while_it_sends(there: There, tmp_path: Path, qos: int) -> None:
    sent = numbers(count(there))
    with bridged(there, tmp_path, qos) as here:
        collect(there.port, "from-here/out/#")
        stop(there)
        publish(here.ports["mqtt"], "here/out/1", qos, sent)
        there.start()
        awaited(lambda: here.queue("link.there.out")["messages"] < len(sent))
        here.restart()
        publish(here.ports["mqtt"], "here/out/1", qos, [END])
        check(collected(there.port, "from-here/out/1"), qos, [*sent, END])
        awaited(lambda: here.queue("link.there.out")["messages"] == 0)


@pytest.mark.parametrize("qos", [1, 2])
def test_killed_while_it_receives(there: There, tmp_path: Path, qos: int) -> None:
    sent = numbers(count(there))
    with bridged(there, tmp_path, qos) as here:
        collect(here.ports["mqtt"], "from-there/in/#")
        here.kill()
        publish(there.port, "there/in/1", qos, sent)
        here.start()
        awaited(lambda: here.queue("collector.from-there.in.#")["messages"] > 0)
        here.restart()
        publish(there.port, "there/in/1", qos, [END])
        check(collected(here.ports["mqtt"], "from-there/in/1"), qos, [*sent, END])


@pytest.mark.parametrize("qos", [1, 2])
def test_the_other_is_killed_while_it_gets_some(tmp_path: Path, qos: int) -> None:
    with other("bartleby", tmp_path / "there") as there, bridged(there, tmp_path, qos) as here:
        collect(there.port, "from-here/out/#")
        there.kill()
        publish(here.ports["mqtt"], "here/out/1", qos, numbers())
        there.start()
        awaited(lambda: here.queue("link.there.out")["messages"] < MESSAGES)
        there.kill()
        there.start()
        publish(here.ports["mqtt"], "here/out/1", qos, [END])
        check(collected(there.port, "from-here/out/1"), qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_the_other_is_killed_while_it_sends(tmp_path: Path, qos: int) -> None:
    with other("bartleby", tmp_path / "there") as there, bridged(there, tmp_path, qos) as here:
        collect(here.ports["mqtt"], "from-there/in/#")
        here.kill()
        publish(there.port, "there/in/1", qos, numbers())
        here.start()
        awaited(lambda: here.queue("collector.from-there.in.#")["messages"] > 0)
        there.kill()
        there.start()
        publish(there.port, "there/in/1", qos, [END])
        check(collected(here.ports["mqtt"], "from-there/in/1"), qos)


def test_mosquitto_is_killed(tmp_path: Path) -> None:
    """It forgets what it has not written down, whatever it has acknowledged: all that it had not is there."""
    with other("mosquitto", tmp_path / "there") as there, bridged(there, tmp_path, 1) as here:
        sent = numbers(count(there))
        collect(there.port, "from-here/out/#")
        stop(there)
        publish(here.ports["mqtt"], "here/out/1", 1, sent)
        there.start()
        awaited(lambda: here.queue("link.there.out")["messages"] < len(sent))
        there.kill()
        here.await_log("link.lost", times=2)
        left = here.queue("link.there.out")["messages"]
        there.start()
        publish(here.ports["mqtt"], "here/out/1", 1, [END])
        found = collected(there.port, "from-here/out/1")
        assert set(sent[len(sent) - left :]) <= set(found)


def count(there: There) -> int:
    """How many messages keep a bridge busy while one end is killed."""
    return FEW if isinstance(there, Mosquitto) else MESSAGES


def stop(there: There) -> None:
    """Stop the other broker in good order: Mosquitto writes down what it has only then."""
    if isinstance(there, Mosquitto):
        there.stop()
    else:
        there.kill()
