"""`bartleby queue import`: put messages of an export back on queues of a running broker, unchanged.

Each call is one entry in the broker's journal, and the broker remembers it: after an interruption the whole import is
repeated, and the broker skips what it already has.  The calls are the steps of a task, which the broker lists and an
operator may pause or cancel.
"""

from __future__ import annotations

import json
import os
from binascii import a2b_base64
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import IO, Any, Final

import click

from broker.cli.failure import CHECK_FAILED, PARTIAL, USAGE, Failure
from broker.cli.output import progress_bar
from broker.cli.queue_export import queue as queue
from broker.cli.remote import NotThere, Remote, connect, path_of, queue_path, remote_options
from broker.cli.task import Steps, batches, body_of, driven, dry_run_option, rate_option
from broker.reasons.messages import why_they_stay
from store.counted import counted

#: Messages and bytes of one call: some 5 ms of the broker's time, so that clients hardly notice.
BATCH_MESSAGES: Final = 100
BATCH_BYTES: Final = 512 << 10

#: The beginning of a message's line, by which `count` finds it.
MESSAGE: Final = b'{"kind":"message"'

#: A message as a line, and how many bytes of the file were read so far.
_Read = tuple[dict[str, Any], int]


@dataclass(slots=True)
class _Done:
    """The result of an import.  `known`: messages that an earlier import of this name has already brought."""

    imported: int = 0
    known: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class _Lines:
    """The messages of a file.  Bodies that are not in their lines are uploaded meanwhile, in pieces."""

    def __init__(self, file: IO[bytes], remote: Remote, *, dry_run: bool) -> None:
        self._file = file
        self._remote = remote
        self._dry_run = dry_run  # bodies are not uploaded
        self._waiting: dict[str, Any] | None = None  # a message whose body is in the lines after it
        self._at = 0  # bytes of that body read so far
        self.first = file.readline()

    def name(self) -> str:
        """The import's name, made from the first line, which is unique to an export.  Raises Failure."""
        try:
            head = json.loads(self.first)
            if (head["kind"], head["version"]) == ("journal", 1):
                return f"import-{sha256(self.first.strip()).hexdigest()[:32]}"
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise Failure(USAGE, f"{self._file.name} is not an export of version 1: its first line must say so")

    def count(self) -> int:
        """The number of messages, if the file can be read twice; else 0."""
        if not self._file.seekable():
            return 0
        at = self._file.tell()
        count = sum(line.startswith(MESSAGE) for line in self._file)
        self._file.seek(at)
        return count

    def read(self) -> Iterator[_Read]:
        """The messages, in order.  Raises Failure."""
        at = len(self.first)
        for number, text in enumerate(self._file, 2):
            at += len(text)
            try:
                whole = self._take(json.loads(text))
            except (ValueError, KeyError, TypeError, RecursionError):
                raise Failure(USAGE, f"line {number} of {self._file.name} is not a line of an export") from None
            if whole is not None:
                yield whole, at
        if self._waiting is not None:
            raise Failure(USAGE, f"{self._file.name} ends within the body of message {self._waiting['id']}")

    def abandon(self) -> None:
        """Delete an incomplete upload.  Raises Failure."""
        if self._waiting is not None and self._at and not self._dry_run:
            self._remote.delete(path_of("uploads", self._waiting["upload"]))

    def _take(self, line: dict[str, Any]) -> dict[str, Any] | None:
        """Read a line; return the message that it completes.  Raises ValueError, KeyError, TypeError, Failure."""
        if (line["kind"] == "body") != (self._waiting is not None):
            raise ValueError("body lines belong after a message with body-bytes")
        if self._waiting is not None:
            return self._more(self._waiting, line["data"])
        if line["kind"] != "message":
            return None
        if "body-bytes" not in line:
            return line
        self._waiting, self._at = line | {"upload": f"{os.urandom(16).hex()}"}, 0
        return None

    def _more(self, message: dict[str, Any], data: str) -> dict[str, Any] | None:
        """Read the next piece of a body; return the message if this completes it."""
        nbytes, size = len(a2b_base64(data, strict_mode=True)), message["body-bytes"]
        if not nbytes or self._at + nbytes > size:
            raise ValueError("the body has another length")
        last = self._at + nbytes == size
        piece = {"offset": self._at, "base64": data, "last": last, "durable": message.get("durable", True)}
        if not self._dry_run:
            self._remote.put(path_of("uploads", message["upload"]), piece)
        self._at += nbytes
        if not last:
            return None
        self._waiting = None
        return message


def _placed(messages: Iterable[_Read], target: str) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Each message with its destination: each queue that it was on, or once the target."""
    for line, at in messages:
        places = line.get("queues")
        if not isinstance(places, list) or not all(isinstance(each, dict) and "name" in each for each in places):
            raise Failure(USAGE, f"message {line.get('id')} does not say on which queues it was")
        for place in places[:1] if target else places:
            yield target or str(place["name"]), line | {"queues": [place]}, at


class _Sender:
    """Sends batches to the broker."""

    def __init__(self, remote: Remote, steps: Steps, name: str, done: _Done, *, named: bool) -> None:
        self._remote = remote
        self._steps = steps
        self._name = name
        self._done = done
        self._named = named  # --target was given, so it may be created
        self._known: set[str] = set()

    def send(self, target: str, batch: list[str]) -> None:
        """Import a batch.  Raises Failure."""
        if not self._named and target not in self._known:
            self._check(target)
        body = body_of(batch, name=self._name, target=target, task=self._steps.number)
        answer = self._steps.step(lambda task: self._remote.send("/api/v1/messages:import", body))
        if answer["known"]:
            self._done.known += len(batch)
        self._done.imported += answer["imported"]
        self._done.refused.update(answer["refused"])

    def _check(self, target: str) -> None:
        try:
            self._remote.get(queue_path(target))
        except NotThere:
            hint = "create it (`bartleby definitions import`, `bartleby queue create`), or give another one as --target"
            raise Failure(CHECK_FAILED, f"queue {target} does not exist: {hint}") from None
        self._known.add(target)


@queue.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--target", default="", help="An address, a queue or ADDRESS::QUEUE.  [default: the queue they were on]")
@click.option("--name", default="", help="The import's name.  [default: made from the first line]")
@rate_option
@dry_run_option
@remote_options
def import_(file: IO[bytes], target: str, name: str, rate: int | None, dry_run: bool, **where: Any) -> None:
    """Put the messages of FILE, an export, on a queue of the running broker, unchanged.

    If an import breaks off, repeat it: messages already imported are skipped.  Another --name imports them once more.
    The import is a task that `bartleby task pause` and `cancel` control and that ends with this command.  Exit status 5
    if some were not imported.
    """
    remote, done = connect(**where), _Done()
    lines = _Lines(file, remote, dry_run=dry_run)
    name = name or lines.name()
    requested = {"kind": "import", "name": name, "target": target, "rate": rate or 0, "dry_run": dry_run}
    problems: list[str] = []
    try:
        with driven(remote, requested | {"total": lines.count()}) as steps, progress_bar("bytes") as bar:
            sender = _Sender(remote, steps, name, done, named=bool(target))
            bar.length = max(_size(file), 1)
            for to, batch, at in batches(_placed(lines.read(), target), BATCH_MESSAGES, BATCH_BYTES):
                sender.send(to, batch)
                bar.update(max(at - bar.pos, 0))
    except KeyboardInterrupt:
        lines.abandon()
        problems.append("interrupted; repeat the command: messages already imported are skipped")
    except Failure as failure:
        again = ["repeat the command: messages already imported are skipped"] if done.imported and not dry_run else []
        raise Failure(failure.exit_code, failure.message, *again) from None
    finally:
        known = f"; {done.known} already imported under this name" if done.known else ""
        one, more = ("would be", "would be") if dry_run else ("was", "were")
        click.echo(f"{counted(done.imported, f'message {one}', f'messages {more}')} imported{known}")
    left = ("would not be imported",) * 2 if dry_run else ("was not imported", "were not imported")
    problems += why_they_stay(done.refused, *left)
    if problems:
        raise Failure(PARTIAL, *problems)


def _size(file: IO[bytes]) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:  # not a file
        return 0
