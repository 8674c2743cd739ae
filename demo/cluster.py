"""`make cluster`: three linked brokers on this machine, orders sent to any and worked off at any, and one ledger.

They run with the files of etc/cluster, as `docker compose --profile cluster up` runs them in containers; only where
they listen, and where their secrets are, differs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from demo.audits import Audits, Json
from demo.broker import Broker
from demo.orders import Client, Order
from demo.telling import console, say

ETC: Final = Path(__file__).parents[1] / "etc" / "cluster"
NAMES: Final = ("amsterdam", "berlin", "paris")

#: Orders that each broker is sent.
EACH: Final = 30

#: How many the worker has worked off when the broker is killed.
KILLED_AT: Final = 40

WORKER: Final = "paris"
VICTIM: Final = "berlin"
PUBLISHER: Final = "amsterdam"

#: The order that its worker refuses for good, one of those sent to berlin.
REFUSED: Final = EACH + 12

#: How long the links may take to come up, or to bring what was left behind, in seconds.
LINKS_S: Final = 30.0

#: What the ledger says of messages between brokers that are where they should be.
RIGHT: Final = frozenset({"passed on", "waiting for a link"})


class Cluster:
    """The three brokers, by their names; their links are up, and clients log in as admin."""

    def __init__(self, directory: Path) -> None:
        secrets = directory / "secrets"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where bartleby is
        prepare = [str(ETC / "prepare.sh"), str(secrets)]
        subprocess.run(prepare, env={**os.environ, "PATH": path}, stderr=subprocess.PIPE, check=True)
        self.password = (secrets / "admin.password").read_text().strip()
        self._held = [_held_port() for _ in NAMES]
        ports = {name: held.getsockname()[1] for name, held in zip(NAMES, self._held, strict=True)}
        self.brokers = {
            name: Broker(
                directory / name,
                ETC / f"{name}.toml",
                environment=_environment(name, ports, secrets),
                ports={"amqp": ports[name]},
            )
            for name in NAMES
        }

    def start(self) -> None:
        """Start them all; returns when each link is up."""
        for broker in self.brokers.values():
            broker.start()
        for name in NAMES:
            self.linked(name)

    def linked(self, name: str) -> None:
        """Wait until one broker's links are up."""
        broker = self.brokers[name]
        _until(lambda: {each["state"] for each in broker.call("links")["links"]} == {"running"}, f"the links of {name}")

    def client(self, name: str) -> Client:
        """A client of one of them."""
        return Client(self.brokers[name].port, user="admin", password=self.password)

    def end(self) -> None:
        """Stop them all."""
        for broker in self.brokers.values():
            broker.end(signal.SIGTERM)
        for held in self._held:
            held.close()


def _held_port() -> socket.socket:
    """Keep a port for a broker that starts again: while this is open, the system gives it to no other program."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as brokers set it: so they may listen there
    held.bind(("127.0.0.1", 0))
    return held


def _environment(name: str, ports: Mapping[str, int], secrets: Path) -> dict[str, str]:
    """What differs from the containers."""
    found = {"BARTLEBY_LOG__LEVEL": "error", "BARTLEBY_SECURITY__USERS_FILE": str(secrets / "users.toml")}
    for other, port in ports.items():
        if other != name:
            found[f"BARTLEBY_LINKS__{other.upper()}__URL"] = f"amqp://127.0.0.1:{port}"
            found[f"BARTLEBY_LINKS__{other.upper()}__PASSWORD_FILE"] = str(secrets / "link.password")
    return found


def _until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LINKS_S
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {LINKS_S:.0f} s still not as it should be: {what}")
        time.sleep(0.05)


def main() -> int:
    """Tell the story; 0 if the books of all three balance."""
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # that a broker goes away is part of the story
    with tempfile.TemporaryDirectory(prefix="bartleby-cluster-") as directory:
        cluster = Cluster(Path(directory))
        try:
            cluster.start()
            say(f"Three brokers run: {', '.join(NAMES)}. Each has a link to both others.")
            _publish(cluster)
            worked_off = _work(cluster, _send(cluster))
            right = _print_work(worked_off)
            right &= _audit([broker.data for broker in cluster.brokers.values()], Path(directory))
            if sys.stdin.isatty():
                _look_around(cluster)
        finally:
            cluster.end()
    return 0 if right else 1


def _publish(cluster: Cluster) -> None:
    """What one broker is told is heard at all of them."""
    listeners = {name: cluster.client(name) for name in NAMES}
    for listener in listeners.values():
        listener.hear("events.shop")
    publisher = cluster.client(PUBLISHER)
    publisher.tell("events.shop", "the shop is open")
    heard = [name for name, listener in listeners.items() if listener.take().body == "the shop is open"]
    say(f"{PUBLISHER.capitalize()} publishes news, heard in {_listed(heard)}.")
    for client in (publisher, *listeners.values()):
        client.leave()


def _send(cluster: Cluster) -> dict[int, Order]:
    """Each broker is sent as many orders."""
    orders = {number: Order(number, f"order {number}") for number in range(1, len(NAMES) * EACH + 1)}
    orders[REFUSED].trouble, orders[REFUSED].hopeless = "customer 4711 is unknown", True
    for at, name in enumerate(NAMES):
        client = cluster.client(name)
        for number in range(at * EACH + 1, (at + 1) * EACH + 1):
            client.send(orders[number])
        client.leave()
    say(f"{len(orders)} orders are sent, {EACH} to each broker. They are confirmed: on its disk.")
    return orders


def _work(cluster: Cluster, orders: Mapping[int, Order]) -> Counter[int]:
    """One worker gets them all, although a broker is killed meanwhile; how often each came."""
    worker = cluster.client(WORKER)
    worker.work_on("orders")
    say(f"The only worker is in {WORKER}. While it works ...")
    came: Counter[int] = Counter()
    while len(came) < len(orders):
        frame = worker.take(LINKS_S)
        number = int(frame.headers["order"])
        came[number] += 1
        worker.handle(frame, orders[number])
        if came.total() == KILLED_AT:
            cluster.brokers[VICTIM].end(signal.SIGKILL)
            console.print(f"[bold red]  SIGKILL[/] [red]{VICTIM} is gone, with everything it had in memory.[/]")
            cluster.brokers[VICTIM].start()
    for name in NAMES:
        cluster.linked(name)
    worker.leave()
    return came


def _print_work(came: Counter[int]) -> bool:
    """Whether each order came once."""
    doubled = sum(count > 1 for count in came.values())
    say(f"{VICTIM.capitalize()} was started again, and its links have gone on.")
    colour = "red" if doubled else "green"
    console.print(f"[bold {colour}]{len(came)} orders came to the worker, {doubled} of them more than once.[/]")
    return not doubled


def _audit(journals: list[Path], directory: Path) -> bool:
    """The books of all three; whether they balance and nothing was lost between them."""
    say("Do the three journals say the same? Spark reads them:")
    audits = Audits([str(each) for each in journals], directory)
    console.print(f"  bartleby audit ledger {' '.join(each.name for each in journals)}")
    with console.status("Spark starts ..."), audits.started():
        ledger = audits.run("ledger")
    _print_queues(ledger)
    _print_passage(ledger)
    console.print(ledger["verdict"].capitalize() + ".", style="bold green" if ledger["status"] == 0 else "bold red")
    outcomes = {row["outcome"] for row in ledger["sections"]["passage"]["rows"]}
    return ledger["status"] == 0 and outcomes <= RIGHT


def _rows(ledger: Json, section: str) -> Iterator[dict[str, Any]]:
    yield from ledger["sections"][section]["rows"]


def _print_queues(ledger: Json) -> None:
    """What came to each broker's orders, and how it left."""
    ways = ("consumed", "forwarded", "dead-lettered", "present")
    table = Table(header_style="bold", pad_edge=False)
    table.add_column("orders in")
    for title in ("came =", "consumed +", "forwarded +", "died +", "present"):
        table.add_column(title, justify="right")
    for row in _rows(ledger, "queues"):
        if row["queue"] == "orders":
            table.add_row(Path(row["journal"]).name, *(str(row[name] or "") for name in ("enqueued", *ways)))
    console.print(table)


def _print_passage(ledger: Json) -> None:
    """What links took from where to where."""
    table = Table(header_style="bold", pad_edge=False)
    for title in ("by link from", "to", "outcome"):
        table.add_column(title)
    table.add_column("messages", justify="right")
    for row in _rows(ledger, "passage"):
        ends = [", ".join(Path(each).name for each in (row[end] or "").split(", ")) for end in ("from", "to")]
        table.add_row(*ends, row["outcome"], str(row["messages"]))
    console.print(table)


def _look_around(cluster: Cluster) -> None:
    """The brokers stay for whoever wants to look at them."""
    say("The brokers still run. Look at them in their consoles:")
    for name, broker in cluster.brokers.items():
        console.print(f"  {name:<10} {broker.console}")
    console.print(f"  log in as admin with the password {cluster.password}")
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        console.input("Press Enter to end them. ")


def _listed(names: list[str]) -> str:
    return re.sub(r", (?=[^,]*$)", " and ", ", ".join(names))


if __name__ == "__main__":
    sys.exit(main())
