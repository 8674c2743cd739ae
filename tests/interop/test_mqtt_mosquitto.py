"""mosquitto_pub, mosquitto_sub and mosquitto_rr, if they are installed (Debian: mosquitto-clients)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.programs import tool
from tests.support.daemon import DaemonProcess
from tests.support.paho_client import connected, properties

#: What a program may take, in seconds.
RUN_S: Final = 60

VERSIONS: Final = ("mqttv31", "mqttv311", "mqttv5")


def options(broker: DaemonProcess, version: str) -> list[str]:
    """Where to, and how."""
    return ["-h", "127.0.0.1", "-p", str(broker.ports["mqtt"]), "-V", version]


def publish(broker: DaemonProcess, version: str, *arguments: str, standard_input: bytes | None = None) -> None:
    """mosquitto_pub, which has to succeed."""
    command = [tool("mosquitto_pub"), *options(broker, version), *arguments]
    done = subprocess.run(command, input=standard_input, capture_output=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


@contextmanager
def subscribed(broker: DaemonProcess, version: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """mosquitto_sub, once its SUBACK has come."""
    command = [tool("stdbuf"), "-oL", tool("mosquitto_sub"), *options(broker, version), "-d", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Subscribed"):
                break
        yield process
    finally:
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str]) -> list[str]:
    """What it printed besides its log, once it has ended by itself."""
    said = rest(process)
    assert process.wait(RUN_S) == 0, said
    return [line for line in said.splitlines() if not line.startswith(("Client ", "Subscribed "))]


def rest(process: subprocess.Popen[str]) -> str:
    """All it says until it ends, also what was read ahead."""
    assert process.stdout is not None
    return process.stdout.read()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages(broker: DaemonProcess, version: str, qos: int) -> None:
    topic = f"mosquitto/{version}/{qos}"
    with subscribed(broker, version, "-t", f"{topic}/#", "-q", "2", "-C", "3", "-F", "%t %q %p") as process:
        for payload in ("one", "größe"):
            publish(broker, version, "-t", f"{topic}/a", "-q", str(qos), "-m", payload)
        publish(broker, version, "-t", topic, "-q", str(qos), "-n")
        assert lines(process) == [f"{topic}/a {qos} one", f"{topic}/a {qos} größe", f"{topic} {qos} "]


@pytest.mark.parametrize("version", VERSIONS)
def test_control_characters(broker: DaemonProcess, version: str) -> None:
    """libmosquitto closes the connection at each of them; what is behind such a message must come."""
    topic = f"mosquitto/control/{version}"
    with subscribed(broker, version, "-t", f"{topic}/#", "-q", "1", "-C", "3", "-F", "%P %p") as process:
        with connected(broker.ports["mqtt"]) as client:
            told = properties(PacketTypes.PUBLISH, UserProperty=[("text", "one\ntwo\x7f\uffff")])
            client.publish(f"{topic}/a", b"one", 1, properties=told)
            client.publish(f"{topic}/\t", b"two", 1)
            client.publish(f"{topic}/a", b"three", 1)
        said = lines(process)
    text = "text:one\ufffdtwo\ufffd\ufffd " if version == "mqttv5" else " "
    assert [line.strip() for line in said] == [f"{text}one".strip(), "two", "three"]


def test_many_lines(broker: DaemonProcess) -> None:
    """mosquitto_pub -l: a message a line."""
    with subscribed(broker, "mqttv5", "-t", "mosquitto/many", "-q", "1", "-C", "2000") as process:
        text = "".join(f"{number}\n" for number in range(2000)).encode()
        publish(broker, "mqttv5", "-t", "mosquitto/many", "-q", "1", "-l", standard_input=text)
        assert lines(process) == [str(number) for number in range(2000)]


@pytest.mark.parametrize("version", VERSIONS)
def test_retained(broker: DaemonProcess, version: str) -> None:
    topic = f"mosquitto/retained/{version}"
    publish(broker, version, "-t", topic, "-q", "1", "-r", "-m", "kept")
    with subscribed(broker, version, "-t", topic, "-C", "1", "-F", "%r %p") as process:
        assert lines(process) == ["1 kept"]
    publish(broker, version, "-t", topic, "-r", "-n")
    with subscribed(broker, version, "-t", topic, "-W", "1") as process:
        assert "kept" not in rest(process)


def test_request_and_response(broker: DaemonProcess) -> None:
    """mosquitto_rr: a response topic of its own, and correlation data that come back."""
    with subscribed(broker, "mqttv5", "-t", "mosquitto/ask", "-C", "1", "-F", "%R|%D|%p") as responder:
        command = [tool("mosquitto_rr"), *options(broker, "mqttv5"), "-t", "mosquitto/ask", "-e", "mosquitto/answer"]
        command += ["-m", "how much?", "-D", "publish", "correlation-data", "c-17", "-q", "1", "-W", "20"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
            (said,) = lines(responder)
            topic, correlation, question = said.split("|")
            assert (topic, correlation, question) == ("mosquitto/answer", "c-17", "how much?")
            publish(broker, "mqttv5", "-t", topic, "-m", "42", "-q", "1", "-D", "publish", "correlation-data", "c-17")
            answer, _ = asking.communicate(timeout=RUN_S)
        assert answer.strip() == "42"


def test_a_will(broker: DaemonProcess) -> None:
    """A subscriber that is killed leaves its will."""
    with subscribed(broker, "mqttv5", "-t", "mosquitto/will", "-C", "1") as watcher:
        will = ["--will-topic", "mosquitto/will", "--will-payload", "gone", "--will-qos", "1"]
        with subscribed(broker, "mqttv5", "-t", "mosquitto/none", *will):
            pass
        assert lines(watcher) == ["gone"]
