"""What those cost who connect and never log in: `python -m tests.strangers` (or `make strangers`)."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.descriptors import limited, most, outlive
from tests.support.strangers import BEGINNINGS, besiege, cost, patience, settings


@click.command()
@click.option("--slow", default=2_000, show_default=True, help="Sockets that send byte by byte and never finish.")
@click.option("--aborted", default=10_000, show_default=True, help="TLS handshakes that are broken off.")
def main(slow: int, aborted: int) -> None:
    """Measure the memory of strangers, how long a client takes to get in among them, and work at the limit of files."""
    table = Table("figure", "value")
    with tempfile.TemporaryDirectory(prefix="strangers-") as name:
        authority = Authority(Path(name) / "ca")

        def fresh(directory: str, timeout: str = "10s") -> AbstractContextManager[DaemonProcess]:
            (Path(name) / directory).mkdir()
            text = settings(authority, timeout=timeout)
            return running(Path(name) / directory, text, users={"bob": "secret"})

        for acceptor in BEGINNINGS:
            for full in (False, True) if acceptor != "secure" else (False,):
                said = "has sent all that he may" if full else "has begun"
                with fresh(f"{acceptor}-{full}", "5min") as broker:
                    kib = cost(broker, acceptor, slow, full=full) / 1024
                table.add_row(f"memory of a stranger, {acceptor}, who {said}", f"{kib:.1f} KiB")
        with fresh("siege") as broker:
            figures = besiege(broker, authority, slow=slow, aborted=aborted)
        with fresh("patience") as broker:
            last = patience(broker, slow)
        limit, count = most()
        (Path(name) / "limited").mkdir()
        with limited(Path(name) / "limited", limit) as broker:
            slowest = outlive(broker, count)
            refused = sum(each["refused"] for each in broker.get("status")["acceptors"])
    table.add_row(f"logins beside {slow:,} slow ones and {aborted:,} aborted handshakes", f"{figures.logins:,}")
    table.add_row("the slowest of them, TCP", f"{figures.slowest_login:.2f} s")
    table.add_row("the slowest of them, TLS", f"{figures.slowest_secure_login:.2f} s")
    table.add_row("all slow ones are cut off after", f"{last:.1f} s")
    table.add_row(f"unfinished handshakes at {limit:,} open files", f"{count:,}")
    table.add_row("of these, refused", f"{refused:,}")
    table.add_row("the slowest health probe beside them", f"{slowest:.2f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
