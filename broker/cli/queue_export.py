"""`bartleby queue export`: write messages of a running broker's queue, complete with headers and body, to a file.

The file has the lines of `bartleby journal export` (docs/journal-export.md).  An export fetches some messages at a
time, and large bodies in pieces: these are the steps of a task, which the broker lists and an operator may pause or
cancel.  With --remove messages leave the queue once their lines are on disk.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import click

from broker import __version__
from broker.cli.completion import queue_names
from broker.cli.failure import CHECK_FAILED, PARTIAL, USAGE, Failure
from broker.cli.moving import queue as queue
from broker.cli.output import progress_bar
from broker.cli.remote import NotThere, Remote, connect, queue_path, remote_options
from broker.cli.task import Steps, driven, dry_run_option, rate_option
from broker.reasons.messages import HELD, why_they_stay
from store.counted import counted

#: Messages of one call (a selector may match none of them); they are removed together.
MESSAGES_PER_CALL: Final = 500

#: Bytes of a body in one line, so that lines stay small; a multiple of 3, so that Base64 needs no padding.
PIECE_BYTES: Final = 192 << 10


@dataclass(slots=True)
class _Done:
    """The result of an export.  `gone`: consumed while being read; `stay`: messages not removed, by reason."""

    exported: int = 0
    removed: int = 0
    held: int = 0
    gone: int = 0
    stay: Counter[str] = field(default_factory=Counter)


#: The reason why a message named by its id is not exported, one of the keys of `STAYS`.
GONE: Final = "gone"

#: For messages that are not in the file because consumers were faster.
_GONE: Final = (
    "message was taken by a consumer while being read, and is",
    "messages were taken by consumers while being read, and are",
)


class _Lines:
    """The new file that an export writes, cut back to whole messages after a failure."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: IO[bytes] = sys.stdout.buffer if path is None else path.open("xb")

    def write(self, line: dict[str, Any]) -> None:
        """Write one line.  Raises OSError."""
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    @property
    def place(self) -> int:
        """Where the file ends now."""
        return 0 if self.path is None else self._file.tell()

    def cut(self, place: int) -> None:
        """Discard what was written after a place."""
        if self.path is not None:
            self._file.flush()
            self._file.truncate(place)
            self._file.seek(place)

    def sync(self) -> None:
        """Sync the file and its name to disk.  Raises OSError."""
        self._file.flush()
        if self.path is not None:
            os.fsync(self._file.fileno())
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def close(self, *, needless: bool) -> None:
        """Close the file; `needless`: delete it, since it has no message."""
        if self.path is not None:
            self._file.close()
            if needless:
                self.path.unlink()


def _begun(path: Path | None) -> _Lines:
    """The lines of a new file.  Raises Failure."""
    try:
        return _Lines(path)
    except OSError as error:
        why = "it exists: an export writes a new file" if isinstance(error, FileExistsError) else error.strerror
        raise Failure(CHECK_FAILED, f"{path}: {why}") from None


class _Export:
    """One export of a queue into a file of lines."""

    def __init__(self, remote: Remote, name: str, lines: _Lines, *, remove: bool) -> None:
        self.done = _Done()
        self._remote = remote
        self._name = name
        self._lines = lines
        self._remove = remove
        self._unsettled: list[int] = []  # messages in the file that are still on the queue, with --remove
        self._good = 0  # the end of what is complete

    def begin(self) -> int:
        """Write the lines that an import needs first, and return the number of messages."""
        shown = self._remote.get(queue_path(self._name))
        types = [shown["routing_type"]]
        head = {"kind": "journal", "version": 1, "software": f"bartleby/{__version__}", "export": os.urandom(16).hex()}
        self._lines.write(head | {"queue": shown["name"]})
        made = {"auto-created": False}
        self._lines.write({"kind": "address", "name": shown["address"], "routing-types": types} | made)
        queue = {"kind": "queue", "name": shown["name"], "address": shown["address"], "routing-type": types[0]}
        rest = {"filter": shown["filter"], "no-local": "", "attributes": shown["attributes"]}
        self._lines.write(queue | rest | made)
        self._good = self._lines.place
        return int(shown["messages"])

    def run(self, steps: Steps, found: Iterator[list[dict[str, Any]]], progress: Any) -> None:
        """Write messages, some at a time, and remove them with --remove.  Raises Failure, OSError."""
        for some in found:
            for each in some:
                self._take(each["state"], each["line"])
            self._complete(steps)
            progress(len(some))

    def undo(self) -> None:
        """Cut the file back to whole messages; with --remove, to those that are no longer on the queue."""
        self._lines.cut(self._good)
        self.done.exported -= len(self._unsettled)
        self._unsettled.clear()

    def _take(self, state: str, line: dict[str, Any]) -> None:
        if self._remove and state == "delivering":
            self.done.held += 1
            return
        place = self._lines.place
        self._lines.write(line)
        try:
            for piece in pieces(self._remote, self._name, line):
                self._lines.write({"kind": "body", "data": b64encode(piece).decode()})
        except NotThere:  # a consumer was faster
            if self._lines.path is None:
                raise Failure(
                    PARTIAL, f"message {line['id']} left the queue while it was read: the last lines are incomplete"
                ) from None
            self._lines.cut(place)
            self.done.gone += 1
            return
        self.done.exported += 1
        if self._remove:
            self._unsettled.append(line["id"])
        else:
            self._good = self._lines.place

    def _complete(self, steps: Steps) -> None:
        """Sync what was written, and remove it from the queue with --remove."""
        self._lines.sync()
        if self._unsettled:
            ids, self._unsettled = self._unsettled, []
            self._good = self._lines.place  # from here on the file keeps them
            try:
                answer = steps.step(lambda task: self._remote.post(f"/api/v1/tasks/{task}:remove", {"ids": ids}))
            except (Failure, KeyboardInterrupt) as stopped:
                found = stopped if isinstance(stopped, Failure) else Failure(PARTIAL, "interrupted")
                both = f"messages {ids[0]} to {ids[-1]} are in the file, and may still be on the queue"
                raise Failure(found.exit_code, found.message, both) from None
            self.done.removed += answer["removed"]
            self.done.stay.update(answer["refused"])
        self._good = self._lines.place


def pieces(remote: Remote, name: str, line: dict[str, Any]) -> Iterator[bytes]:
    """The body of a message that is not in its line, in pieces.  Raises NotThere when it has left the queue."""
    size, at = line.get("body-bytes", 0), 0
    while at < size:
        data = remote.get_bytes(f"{queue_path(name)}/messages/{line['id']}/stored-body", offset=at)
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]
        at += len(data)
        if not data:
            raise Failure(CHECK_FAILED, f"the body of message {line['id']} ends after {at} of {counted(size, 'byte')}")


def _found(
    remote: Remote, steps: Steps, name: str, ids: tuple[int, ...], left: Callable[[], int], missing: list[int]
) -> Iterator[list[dict[str, Any]]]:
    """Messages of a queue, or those with `ids`, some at a time.  `left`: how many more to fetch.

    Ids that are not on the queue are added to `missing`.
    """
    path = f"{queue_path(name)}/messages:export"
    for id in ids:
        if left() > 0:
            try:
                yield steps.step(partial(_page, remote, path, id=id))["messages"]
            except NotThere:
                missing.append(id)
    after: str | None = None if ids else ""
    while after is not None and left() > 0:
        most = min(left(), MESSAGES_PER_CALL)
        answer = steps.step(partial(_page, remote, path, limit=most, after=after))
        yield answer["messages"]
        after = answer["next"]


def _left(limit: int | None, done: int) -> int:
    return MESSAGES_PER_CALL if limit is None else limit - done


def _page(remote: Remote, path: str, task: int, **parameters: str | int) -> Any:
    return remote.get(path, task=task, **parameters)


@queue.command("export")
@click.argument("name", shell_complete=queue_names)
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="A new file.  [default: standard output]")
@click.option(
    "--bodies",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write only the bodies, each as a file in this directory.",
)
@click.option("--filter", "selector", default="", help="Only messages that match this selector.")
@click.option("--id", "ids", type=click.IntRange(min=1), multiple=True, help="Only this message.  Repeatable.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many, oldest first.")
@click.option("--remove", is_flag=True, help="Remove them from the queue once they are on disk.")
@rate_option
@dry_run_option
@remote_options
def export_(
    name: str,
    to: Path | None,
    bodies: Path | None,
    selector: str,
    ids: tuple[int, ...],
    limit: int | None,
    remove: bool,
    rate: int | None,
    dry_run: bool,
    **where: Any,
) -> None:
    """Write messages of the queue NAME, complete with headers and body, as lines of JSON.

    The export is a task that `bartleby task pause` and `cancel` control and that ends with this command.  Exit status 5
    if it was interrupted or cancelled, or if consumers took messages meanwhile.
    """
    if remove and (to is None or bodies is not None):
        raise Failure(USAGE, "--remove: give a file with --to, which keeps the complete messages")
    if to is not None and bodies is not None:
        raise Failure(USAGE, "--bodies and --to exclude each other")
    remote = connect(**where)
    task = {"kind": "export", "queue": name, "filter": selector, "ids": ids, "rate": rate or 0}
    missing: list[int] = []
    if dry_run:
        with driven(remote, task | {"dry_run": True}) as steps:
            for _ in _found(remote, steps, name, ids, lambda: MESSAGES_PER_CALL, missing):
                pass
        count = min(steps.shown["moved"], limit or steps.shown["moved"])
        click.echo(f"{counted(count, 'message')} would be written")
        return _end(_missing_problems(missing))
    if bodies is not None:
        with driven(remote, task) as steps:
            _write_bodies(remote, steps, name, bodies, ids, limit, missing)
        return _end(_missing_problems(missing))
    lines = _begun(to)
    export = _Export(remote, name, lines, remove=remove)
    problems: list[str] = []
    failed = True
    try:
        with driven(remote, task | {"remove": remove}) as steps, progress_bar("messages", hidden=to is None) as bar:
            bar.length = max(export.begin(), 1)
            found = _found(remote, steps, name, ids, lambda: _left(limit, export.done.exported), missing)
            export.run(steps, found, bar.update)
        failed = False
    except KeyboardInterrupt:
        export.undo()
        problems.append("interrupted: the file has whole messages only")
    except Failure:
        export.undo()
        _say(export.done, to, remove=remove)
        raise
    except OSError as error:
        export.undo()
        problems.append(f"{to or 'the output'} cannot be written: {error.strerror}")
    finally:
        lines.close(needless=failed and not export.done.exported)
    _say(export.done, to, remove=remove)
    problems += why_they_stay(
        export.done.stay,
        "was taken by consumers, or stays, and is in the file too",
        "were taken by consumers, or stay, and are in the file too",
    )
    if export.done.gone:
        problems.append(f"{counted(export.done.gone, *_GONE)} not in the file")
    if export.done.held:
        problems.append(counted(export.done.held, *HELD))
    _end(problems + _missing_problems(missing))


def _end(problems: list[str]) -> None:
    """Raises Failure if there is anything to tell."""
    if problems:
        raise Failure(PARTIAL, *problems)


def _missing_problems(missing: list[int]) -> list[str]:
    return why_they_stay({GONE: len(missing)} if missing else {}, "was not exported", "were not exported")


def _say(done: _Done, to: Path | None, *, remove: bool) -> None:
    where = "" if to is None else f" to {to}"
    written = counted(done.exported, "message was written", "messages were written")
    click.echo(f"{written}{where}" + (f", {done.removed:,} removed" * remove), err=True)


def _write_bodies(
    remote: Remote,
    steps: Steps,
    name: str,
    directory: Path,
    ids: tuple[int, ...],
    limit: int | None,
    missing: list[int],
) -> None:
    """Write each body to its own file, without its protocol's encoding."""
    # Imported here: other commands do without the engine and start faster.
    from broker.offline.exporting import contents

    content = contents()
    count = 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = _found(remote, steps, name, ids, lambda: _left(limit, count), missing)
        for line in (each["line"] for some in found for each in some):
            with (directory / f"{line['id']}.bin").open("xb") as file:
                decode = content[line["protocol"]]
                if "body" in line:
                    file.write(decode(b64decode(line["body"])))
                for at, piece in enumerate(pieces(remote, name, line)):
                    file.write(piece if at else decode(piece))
            count += 1
    except OSError as error:
        raise Failure(CHECK_FAILED, f"{error.filename or directory}: {error.strerror}; {count} were written") from None
    click.echo(f"{count} bodies were written to {directory}", err=True)
