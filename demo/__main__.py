"""`make demo`: the story, and the books at its end."""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from demo.broker import Broker
from demo.orders import Client, Order, story

#: The order that is in the worker's hands when the broker is killed.
IN_HAND: Final = 6

PLACES: Final = ("orders", "offers", "archive", "DLQ", "ExpiryQueue")

console = Console(highlight=False)


def say(text: str) -> None:
    """One line of the story."""
    console.print(f"[bold cyan]>[/] {text}")


def main() -> int:
    """Tell the story; 0 if the books balance."""
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # that the broker goes away is part of the story
    orders = story()
    with tempfile.TemporaryDirectory(prefix="bartleby-demo-") as directory:
        broker = Broker(Path(directory))
        try:
            _first_life(broker, orders)
            _second_life(broker, orders)
            places = _places(broker)
        finally:
            broker.end(signal.SIGTERM)
    _print_fates(orders, places)
    return _print_balance(orders, places)


def _first_life(broker: Broker, orders: list[Order]) -> None:
    """Everything is sent, some of it is handled, and the broker dies with one order in a worker's hands."""
    broker.start()
    say(f"A broker runs (process {broker.pid}). It tries a message three times; then it is a dead letter.")
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
    say("The work is done. What became of each message:")


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
    for title in ("message", "sent to", "tries", "fate", "why", "where it is now"):
        table.add_column(title, justify="right" if title == "tries" else "left", overflow="fold")
    for order in orders:
        where = places.get(order.number, [])
        facts = where[0][1] if where else {}
        fate, colour = _fate(order, where)
        names = ", ".join(name for name, _ in where)
        row = (order.what, order.destination, str(len(order.deliveries)), f"[{colour}]{fate}[/]")
        table.add_row(str(order.number), *row, str(facts.get("_AMQ_DL_TEXT", "")), names)
    console.print(table)


def _fate(order: Order, where: list[tuple[str, dict[str, Any]]]) -> tuple[str, str]:
    """What became of an order, in a word, and the word's colour."""
    if len(where) + order.consumed != 1:
        return ("LOST" if not where else "DOUBLED"), "bold red"
    if order.consumed:
        return ("consumed" if len(order.deliveries) == 1 else "consumed, after the crash"), "green"
    name, facts = where[0]
    if name == "DLQ":
        return f"dead letter: {facts['_AMQ_DL_REASON']}", "yellow"
    return ("expired", "yellow") if name == "ExpiryQueue" else ("waiting", "blue")


def _print_balance(orders: list[Order], places: dict[int, list[tuple[str, dict[str, Any]]]]) -> int:
    """The closing balance; 0 if each message is in exactly one place."""
    fates = [_fate(order, places.get(order.number, []))[0].split()[0].rstrip(",:") for order in orders]
    consumed, dead, expired, waiting = (fates.count(fate) for fate in ("consumed", "dead", "expired", "waiting"))
    total = consumed + dead + expired + waiting
    right = total == len(orders)
    line = f"{len(orders)} sent = {consumed} consumed + {dead} dead letters + {expired} expired + {waiting} waiting"
    console.print(f"[bold {'green' if right else 'red'}]{line if right else line.replace('=', '≠')}[/]")
    console.print("The books balance." if right else "THE BOOKS DO NOT BALANCE.", style="bold")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
