"""What a reload leaves for the next start: it says so, or refuses what only makes sense as a whole."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.process import awaited
from tests.support.stomp_py import DURABLE, connected


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DaemonProcess]:
    with running(tmp_path) as process:
        yield process


def test_other_wildcards_are_for_the_next_start(broker: DaemonProcess) -> None:
    """The matches that the file has with them would mean nothing under those in force: nobody could do anything."""
    before = broker.get("addresses/orders/settings")["matches"]
    broker.config.write_text('[wildcard-addresses]\nany-words = ">"\n')
    broker.signal(signal.SIGHUP)
    broker.await_log("reload.refused")
    assert "wildcard-addresses" in broker.log.splitlines()[-1]
    assert broker.get("addresses/orders/settings")["matches"] == before == ["#"]


def test_parts_of_sections_that_need_a_restart_are_told(broker: DaemonProcess) -> None:
    users = broker.data / "users.toml"
    broker.reload(f'[security]\nusers-file = "{users}"\n[log]\nlevel = "debug"\n')
    broker.reload(f'[broker]\nname = "b"\n[security]\nusers-file = "{users}"\n[log]\nformat = "json"\n')
    first, last = [line.partition("changed=")[2] for line in broker.log.splitlines() if " reload.done " in line]
    assert first == '"log, security" restart_needed_for=security.users-file'
    assert last == '"broker, log, security" restart_needed_for="broker, log.format, security.users-file"'


def test_settings_of_some_addresses_leave_the_shipped_ones_of_all_others(tmp_path: Path) -> None:
    """A file with settings for orders alone must not remove what dies elsewhere; only an explicit choice may."""
    with running(tmp_path, '[[address-settings]]\nmatch = "orders.#"\nmax-delivery-attempts = 3\n') as broker:
        assert "settings.no_dead_letter_address" not in broker.log
        with connected(broker.port) as client:
            client.send("/queue/invoices", "poison", DURABLE)
            client.subscribe("/queue/invoices", ack="client-individual")
            client.nack(client.take(), requeue="false")
        awaited(lambda: broker.get("queues/DLQ")["messages"] == 1)
        broker.reload('[[address-settings]]\nmatch = "invoices"\ndead-letter-address = ""\n')
        [line] = [each for each in broker.log.splitlines() if " settings.no_dead_letter_address " in each]
        assert "matches=invoices count=1" in line
        assert broker.get("status")["without_dead_letter_address"] == ["invoices"]
    with running(tmp_path, '[[address-settings]]\nmatch = "invoices"\ndead-letter-address = ""\n') as broker:
        assert " settings.no_dead_letter_address matches=invoices count=1" in broker.log


def test_the_broker_works_while_a_reload_reads(broker: DaemonProcess) -> None:
    """Files that take long, as a thousand users do; a pipe takes until somebody writes.  One more reload follows."""
    queue = '[addresses.{0}.queues.{0}]\nrouting-type = "ANYCAST"\n'
    broker.config.unlink(missing_ok=True)
    os.mkfifo(broker.config)
    broker.signal(signal.SIGHUP)
    with connected(broker.port) as client:
        client.send("/queue/invoices", "x", DURABLE)
    broker.signal(signal.SIGHUP)
    assert broker.get("queues/invoices")["messages"] == 1
    assert "reload.done" not in broker.log
    for count, name in enumerate(("first", "second"), 1):
        broker.config.write_text(queue.format(name))
        broker.await_log("reload.done", times=count)
        assert name in broker.queue_names()


def test_a_broker_stops_while_a_reload_reads(broker: DaemonProcess) -> None:
    """What it reads then is not applied."""
    broker.config.unlink(missing_ok=True)
    os.mkfifo(broker.config)
    broker.signal(signal.SIGHUP)
    with connected(broker.port) as client:
        client.send("/queue/invoices", "x", DURABLE)
    broker.signal(signal.SIGTERM)
    broker.await_log(" stopped ")
    broker.config.write_text("")
    assert broker.wait() == 0
    assert "reload" not in broker.log
