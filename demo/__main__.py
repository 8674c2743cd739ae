"""`make demo`: the story, the books at its end, and at a terminal the broker, to be looked at.

With the name of a file, `python -m demo docs/audit.svg`, it also draws there what the audits said.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from demo.audits import Audits, Json, print_dead_letters, print_expired, print_ledger
from demo.broker import Broker
from demo.orders import Client, Order, story
from demo.telling import console, say

SETTINGS: Final = """
[log]
level = "warning"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"
max-delivery-attempts = 3

[[address-settings]]
match = "orders"
delivery-count-persistence = "strict"
"""

#: The order that is in the worker's hands when the broker is killed.
IN_HAND: Final = 6

#: The order that dies, and whose reason to die is mended.
MENDED: Final = 3

#: The annotation of a dead or expired message that says why.
TEXT: Final = "_AMQ_DL_TEXT"

PLACES: Final = ("orders", "offers", "archive", "DLQ", "ExpiryQueue")


def main(picture: str = "") -> int:
    """Tell the story; 0 if the books balance."""
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # that the broker goes away is part of the story
    orders = story()
    with tempfile.TemporaryDirectory(prefix="bartleby-demo-") as directory:
        config = Path(directory) / "broker.toml"
        config.write_text(SETTINGS)
        broker = Broker(Path(directory) / "data", config)
        try:
            _first_life(broker, orders)
            _second_life(broker, orders)
            _bring_back(broker, orders[MENDED - 1])
            say("The work is done. What became of each message:")
            places = _places(broker)
            _print_fates(orders, places)
            balanced = _print_balance(orders, places)
            console.export_text()  # forgets what was recorded so far
            proved = _audit(Audits(("--data", str(broker.data)), Path(directory)), orders)
            if sys.stdin.isatty() and not picture:
                _look_around(broker)
        finally:
            broker.end(signal.SIGTERM)
    if picture:
        drawn = console.export_svg(title="bartleby audit", font_aspect_ratio=0.6)
        Path(picture).write_text(re.sub(r"\s*@font-face {.*?}", "", drawn, flags=re.DOTALL))  # they are on other sites
    return 0 if balanced and proved else 1


def _look_around(broker: Broker) -> None:
    """The broker stays for whoever wants to look at its dead letters."""
    say(f"The broker still runs. Look at its dead letters in its console: {broker.console}dead-letters")
    console.print(f"  log in with the token {broker.token}")
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        console.input("Press Enter to end it. ")


def _first_life(broker: Broker, orders: list[Order]) -> None:
    """Everything is sent, some of it is handled, and the broker dies with one order in a worker's hands."""
    broker.start()
    say(f"A broker runs (process {broker.pid}). After three tries a message is a dead letter.")
    client = Client(broker.port)
    for order in orders:
        client.send(order)
    say(f"{len(orders)} messages are sent, and each is confirmed: it is on disk.")
    client.work_on("orders")
    while True:
        frame, order = _next(client, orders)
        if order.number == IN_HAND:
            break
        client.handle(frame, order)
    say(f"Order {order.number} ({order.what}) is in the worker's hands when ...")
    broker.end(signal.SIGKILL)
    client.forget()
    order.deliveries[-1] += ", broker killed"
    console.print("[bold red]  SIGKILL[/] [red]the broker is gone, with everything it had in memory.[/]")


def _second_life(broker: Broker, orders: list[Order]) -> None:
    """It starts again, and the work is finished."""
    begun = time.monotonic()
    broker.start()
    say(f"It is started again, and ready after {time.monotonic() - begun:.1f} s (process {broker.pid}).")
    client = Client(broker.port)
    client.work_on("orders")
    open_orders = {order.number for order in orders if order.destination == "orders"}
    open_orders -= {order.number for order in orders if order.consumed} | _numbers(broker, "DLQ")
    while open_orders:
        frame, order = _next(client, orders)
        if order.number == IN_HAND and len(order.deliveries) == 2:
            again = "yes" if frame.headers["redelivered"] == "true" else "NO"
            say(f"Order {order.number} comes back. Marked as redelivered: {again}.")
        client.handle(frame, order)
        if order.consumed or order.number in _numbers(broker, "DLQ"):
            open_orders.discard(order.number)
    client.leave()
    late = {order.number for order in orders if order.lives_ms}
    deadline = time.monotonic() + 5
    while _numbers(broker, "ExpiryQueue") != late and time.monotonic() < deadline:
        time.sleep(0.05)


def _bring_back(broker: Broker, order: Order) -> None:
    """What it died of is mended, so it is moved back, and handled."""
    say(f"Order {order.number} ({order.what}) is dead: {order.trouble}.")
    say("The customer signs up, so the order is brought back:")
    order.trouble = ""
    order.brought_back = True
    selector = f"order = '{order.number}'"
    console.print(f'  bartleby queue retry DLQ --filter "{selector}"')
    assert broker.command("queue", "retry", "DLQ", "--filter", selector)["moved"] == 1
    client = Client(broker.port)
    client.work_on("orders")
    frame = client.take()
    assert frame.headers["order"] == str(order.number)
    again = "yes" if frame.headers["redelivered"] == "true" else "no"
    order.deliveries.append("brought back")
    say(f"Order {order.number} comes like a new one (redelivered: {again}), and still says why it died.")
    client.handle(frame, order)
    client.leave()


def _next(client: Client, orders: list[Order]) -> tuple[Any, Order]:
    frame = client.take()
    order = orders[int(frame.headers["order"]) - 1]
    order.deliveries.append("again" if frame.headers["redelivered"] == "true" else "first")
    return frame, order


def _places(broker: Broker) -> dict[int, list[tuple[str, dict[str, Any]]]]:
    """On which queues each message is, as the broker says."""
    places: dict[int, list[tuple[str, dict[str, Any]]]] = {}
    for name in PLACES:
        for message in broker.messages(name):
            places.setdefault(int(message["properties"]["order"]), []).append((name, message["annotations"]))
    return places


def _numbers(broker: Broker, name: str) -> set[int]:
    return {int(message["properties"]["order"]) for message in broker.messages(name)}


def _print_fates(orders: list[Order], places: dict[int, list[tuple[str, dict[str, Any]]]]) -> None:
    table = Table(header_style="bold", pad_edge=False)
    table.add_column("#", justify="right")
    for title in ("message", "sent to", "tries", "fate"):
        table.add_column(title, justify="right" if title == "tries" else "left")
    table.add_column("is on")
    reasons = []
    for order in orders:
        where = places.get(order.number, [])
        fate, colour = _fate(order, where)
        names = ", ".join(name for name, _ in where)
        row = (order.what, order.destination, str(len(order.deliveries)), f"[{colour}]{fate}[/]", names)
        table.add_row(str(order.number), *row)
        reasons += [f"  {order.number}: {header[TEXT]}" for _, header in where if TEXT in header]
    console.print(table)
    console.print("Why they died or expired, as the messages themselves say:", *reasons, sep="\n")


def _fate(order: Order, where: list[tuple[str, dict[str, Any]]]) -> tuple[str, str]:
    """What became of an order, in a word, and the word's colour."""
    if len(where) + order.consumed != 1:
        return ("LOST" if not where else "DOUBLED"), "bold red"
    if order.consumed:
        how = ", brought back" if order.brought_back else ", after the crash" if len(order.deliveries) > 1 else ""
        return f"consumed{how}", "green"
    name, header = where[0]
    if name == "DLQ":
        return f"dead: {header['_AMQ_DL_REASON']}", "yellow"
    return ("expired", "yellow") if name == "ExpiryQueue" else ("waiting", "blue")


def _print_balance(orders: list[Order], places: dict[int, list[tuple[str, dict[str, Any]]]]) -> bool:
    """The closing balance; true if each message is in exactly one place."""
    fates = [_fate(order, places.get(order.number, []))[0].split()[0].rstrip(",:") for order in orders]
    consumed, dead, expired, waiting = (fates.count(fate) for fate in ("consumed", "dead", "expired", "waiting"))
    total = consumed + dead + expired + waiting
    right = total == len(orders)
    line = f"{len(orders)} sent = {consumed} consumed + {dead} dead letters + {expired} expired + {waiting} waiting"
    console.print(f"[bold {'green' if right else 'red'}]{line if right else line.replace('=', '≠')}[/]")
    console.print("The books balance." if right else "THE BOOKS DO NOT BALANCE.", style="bold")
    return right


def _audit(audits: Audits, orders: list[Order]) -> bool:
    """The same from the journal, by Spark, which knows nothing of the story; true if it proves it."""
    say("Does the journal say the same? Spark reads it:")
    with console.status("Spark starts ...") as status, audits.started():

        def audit(*arguments: str) -> Json:
            command = f"bartleby audit {' '.join(arguments)}"
            console.print(f"  {command}")
            status.update(f"{command} ...")
            return audits.run(*arguments)

        ledger = audit("ledger", "--compare")
        print_ledger(console, ledger)
        print_dead_letters(console, audit("dlq"))
        print_expired(console, audit("expiry"))
    return _agrees(ledger, orders)


def _agrees(ledger: Json, orders: list[Order]) -> bool:
    """Whether the ledger is balanced and has as many consumed and present messages as the story."""
    consumed = sum(order.consumed for order in orders)
    summary = ledger["summary"]
    right = ledger["status"] == 0 and (summary["consumed"], summary["present"]) == (consumed, len(orders) - consumed)
    if not right:
        console.print("THE JOURNAL SAYS SOMETHING ELSE.", style="bold red")
    return right


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
