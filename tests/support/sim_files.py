"""A simulated disk: `store.files.Files` in memory, which tracks what is durable and injects faults.

What a real disk does with writes that were not synced is undefined.  After `crash`:

- each sector (512 bytes) written since the last sync has any one of the contents it had since then, chosen one by one:
  writes are kept, lost, torn and reordered;
- each file has any one of the sizes it had since the last sync;
- each name created, renamed or removed since its directory was synced is done or not done.

Every operation counts, and `plan` makes the N-th one fail, crash or write only a part.  After a failed sync some of
the unsynced sectors are lost for good, while reads still show them and the next sync succeeds, as on Linux.
Everything is decided by one seed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from random import Random
from typing import Final, TypeVar

from store.errors import DirectoryLocked
from store.segment import SEGMENT_HEADER_BYTES

SECTOR: Final = 512
LOCK_PID: Final = 4242

#: The free bytes of a disk without a capacity.
ENDLESS: Final = 1 << 50


Known = TypeVar("Known")


class Crash(BaseException):
    """A power loss.  Not an Exception: nothing in the code under test may catch it."""


class Fault(Enum):
    """The kinds of faults of an operation."""

    CRASH = "crash"
    EIO = "input/output error"
    ENOSPC = "no space"
    EMFILE = "no descriptor"
    ENFILE = "no descriptor of the system"
    ENOMEM = "no memory"
    SHORT = "short write"


#: Operations that need room, so that they can fail with ENOSPC.
_NEED_ROOM: Final = frozenset({"create", "write", "allocate", "sync", "make_dir", "rename"})

#: Operations that need a descriptor, so that they can fail with EMFILE and ENFILE.
_NEED_DESCRIPTOR: Final = frozenset(
    {"create", "open", "read", "read_range", "will_need", "list_dir", "make_dir", "sync_dir", "lock"}
)

#: The operations that a fault can hit, if not all.
_HITS: Final = {
    Fault.ENOSPC: _NEED_ROOM,
    Fault.EMFILE: _NEED_DESCRIPTOR,
    Fault.ENFILE: _NEED_DESCRIPTOR,
    Fault.SHORT: frozenset({"write"}),
}

#: The faults that a write or a sync meets half way.
_ERRORS: Final = frozenset({Fault.EIO, Fault.ENOSPC, Fault.ENOMEM})


class Contents:
    """The bytes of a file.  Zeros at the end take no memory: most of a segment is not written yet."""

    def __init__(self, data: bytes = b"") -> None:
        self.size = len(data)
        self._written = bytearray(data)

    @property
    def written(self) -> int:
        """The number of bytes before those zeros."""
        return len(self._written)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, as far as the file goes."""
        end = min(end, self.size)
        return bytes(self._written[start:end]).ljust(max(0, end - start), b"\0")

    def write(self, start: int, data: bytes) -> None:
        """Write, beyond the end too."""
        end = start + len(data)
        if start > len(self._written):
            self._written.extend(bytes(start - len(self._written)))
        self._written[start:end] = data
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        """Cut the file off, or add zeros."""
        del self._written[size:]
        self.size = size

    def flip(self, at: int, mask: int) -> None:
        """Change bits of a byte."""
        self.write(at, bytes((self.read(at, at + 1)[0] ^ mask,)))

    def copy(self) -> Contents:
        """Return a copy."""
        other = Contents()
        other.size = self.size
        other._written = self._written.copy()
        return other


class Node:
    """A file's bytes: as the programs see them, as they are on disk, and what may be there after a crash."""

    def __init__(self, data: bytes = b"") -> None:
        self.current = Contents(data)
        self.durable = Contents(data)
        self.sectors: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []

    def changed(self, start: int, end: int) -> None:
        """Note new contents from `start` to `end`, and perhaps a new size of the file."""
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            content = self.current.read(sector * SECTOR, (sector + 1) * SECTOR)
            self.sectors.setdefault(sector, []).append(content)
        self.sizes.append(self.current.size)

    def cut(self, size: int) -> None:
        """Cut the file off.  Zeros that were never written leave no other bytes behind than were there before."""
        written = self.current.written
        self.current.resize(min(size, self.current.size))
        self.changed(size, written)

    def sync(self) -> None:
        """Make all pending writes durable."""
        self._settle({sector: contents[-1] for sector, contents in self.sectors.items()}, self.current.size)

    def lose(self, random: Random) -> None:
        """Fail a sync: some sectors will never be written, though reads show them."""
        for sector in list(self.sectors):
            if random.random() < 0.5:
                del self.sectors[sector]

    def crash(self, random: Random, keep: float) -> None:
        """Set each sector and the size to any state since the last sync; `keep`: the probability of a new one."""
        chosen = {s: random.choice(contents) for s, contents in self.sectors.items() if random.random() < keep}
        size = random.choice(self.sizes) if self.sizes and random.random() < keep else self.durable.size
        self._settle(chosen, size)
        self.current = self.durable.copy()

    def _settle(self, sectors: dict[int, bytes], size: int) -> None:
        for sector, content in sectors.items():
            self.durable.write(sector * SECTOR, content)
        self.durable.resize(size)
        self.sectors.clear()
        self.sizes.clear()

    def copy(self) -> Node:
        """Return a copy, for another disk."""
        other = Node()
        other.current = self.current.copy()
        other.durable = self.durable.copy()
        other.sectors = {sector: list(contents) for sector, contents in self.sectors.items()}
        other.sizes = list(self.sizes)
        return other


class NameChange:
    """A change of names that is not durable yet: `new` (None: removed) takes the place of `old` (None: created)."""

    def __init__(self, old: str | None, new: str | None, node: Node) -> None:
        self.old = old
        self.new = new
        self.node = node
        self.dirs = {os.path.dirname(path) for path in (old, new) if path is not None}

    def apply(self, names: dict[str, Node]) -> None:
        """Apply the change to the durable names, unless a change that it depends on was lost."""
        if self.old is not None and names.pop(self.old, None) is None:
            return
        if self.new is not None:
            names[self.new] = self.node


class SimFiles:
    """See the module.  `capacity` is in bytes, None: endless."""

    def __init__(self, seed: int = 0, *, capacity: int | None = None) -> None:
        self.random = Random(seed)
        self.capacity = capacity
        self.operations = 0
        self.history: list[str] = []
        self.faults = 0
        self.before_step: Callable[[], None] | None = None
        self.unseen = False  # the free room cannot be read
        self.generation = 0
        self._names: dict[str, Node] = {}
        self._durable_names: dict[str, Node] = {}
        self._changes: list[NameChange] = []
        self._dirs: set[str] = {"", "/"}
        self._locked: set[str] = set()
        self._at = 0
        self._fault = Fault.EIO
        self._sticky = False

    # -- what the test does ----------------------------------------------------------------------------------------

    def plan(self, at: int, fault: Fault, *, sticky: bool = False) -> None:
        """Let operation number `at` (counted from now, 1 is the next) fail; `sticky`: all later ones, too."""
        self._at = self.operations + at
        self._fault = fault
        self._sticky = sticky

    def hit_by(self, fault: Fault) -> list[int]:
        """The numbers of the operations up to now that such a fault can hit: planned at others it does nothing."""
        hits = _HITS.get(fault)
        done = (line.partition(" ")[0] for line in self.history)
        return [at for at, operation in enumerate(done, 1) if hits is None or operation in hits]

    def heal(self) -> None:
        """Cancel the planned fault."""
        self._at = 0

    def crash(self, keep: float | None = None) -> None:
        """Lose power and restart.  `keep`: the probability that unsynced changes survive, None: a random one."""
        likely = self.random.choice((0.0, 0.1, 0.5, 0.9, 1.0)) if keep is None else keep
        for change in self._changes:
            if self.random.random() < likely:
                change.apply(self._durable_names)
        nodes = {id(node): node for node in [*self._names.values(), *self._durable_names.values()]}
        for node in nodes.values():
            node.crash(self.random, likely)
        self._changes.clear()
        self._names = dict(self._durable_names)
        self._locked.clear()
        self.generation += 1
        self.heal()

    def fork(self, seed: int) -> SimFiles:
        """Return another disk in the same state, with faults of its own and no open files."""
        other = SimFiles(seed, capacity=self.capacity)
        nodes: dict[int, Node] = {}

        def copied(node: Node) -> Node:
            if id(node) not in nodes:
                nodes[id(node)] = node.copy()
            return nodes[id(node)]

        other._names = {path: copied(node) for path, node in self._names.items()}
        other._durable_names = {path: copied(node) for path, node in self._durable_names.items()}
        for change in self._changes:
            waiting = NameChange(change.old, change.new, copied(change.node))
            waiting.dirs = set(change.dirs)
            other._changes.append(waiting)
        other._dirs = set(self._dirs)
        return other

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        return sorted(self._names)

    def put(self, path: str, data: bytes) -> None:
        """Create a durable file, or replace its bytes."""
        self._names[path] = self._durable_names[path] = Node(data)
        self._dirs.add(os.path.dirname(path))

    def flip(self, path: str, offset: int, mask: int) -> None:
        """Change a byte on the disk."""
        node = self._names[path]
        node.current.flip(offset, mask)
        node.durable.flip(offset, mask)

    def used(self) -> int:
        """Return the bytes in use."""
        return sum(node.current.size for node in self._names.values())

    # -- faults ----------------------------------------------------------------------------------------------------

    def step(self, operation: str, path: str) -> Fault | None:
        """Count an operation; raise or return its planned fault."""
        if self.before_step is not None:
            self.before_step()
        self.operations += 1
        self.history.append(f"{operation} {path}")
        due = self._at and (self.operations == self._at or (self._sticky and self.operations > self._at))
        if not due or operation not in _HITS.get(self._fault, {operation}):
            return None
        self.faults += 1
        if self._fault in (Fault.CRASH, Fault.SHORT):
            return self._fault
        if operation in ("write", "sync"):
            return self._fault
        raise self.error(self._fault)

    def error(self, fault: Fault) -> OSError:
        """Return the OSError of a fault."""
        number: int = getattr(errno, fault.name)
        return OSError(number, os.strerror(number))

    def check_room(self, more: int) -> None:
        """Check that the disk has room for `more` bytes.  Raises OSError(ENOSPC)."""
        if self.capacity is not None and more > 0 and self.used() + more > self.capacity:
            raise self.error(Fault.ENOSPC)

    # -- Files -----------------------------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        if path in self._dirs:
            return
        if self.step("make_dir", path) is Fault.CRASH:
            raise Crash
        while path not in self._dirs:
            self._dirs.add(path)
            path = os.path.dirname(path)

    def list_dir(self, path: str) -> list[str]:
        self._read_step("list_dir", path)
        if path not in self._dirs:
            raise FileNotFoundError(path)
        prefix = path + "/"
        inside: Iterable[str] = [*self._names, *self._dirs]
        return sorted({name[len(prefix) :].partition("/")[0] for name in inside if name.startswith(prefix)})

    def size(self, path: str) -> int:
        self._read_step("size", path)
        return self._node(path).current.size

    def read(self, path: str) -> bytes:
        self._read_step("read", path)
        current = self._node(path).current
        return current.read(0, current.size)

    def space(self, path: str) -> tuple[int, int]:
        if self.unseen:
            raise self.error(Fault.EIO)
        return self.used(), ENDLESS if self.capacity is None else max(self.capacity - self.used(), 0)

    def read_range(self, path: str, offset: int, nbytes: int) -> bytes:
        self._read_step("read_range", path)
        return self._node(path).current.read(offset, offset + nbytes)

    def will_need(self, path: str, offset: int, nbytes: int) -> None:
        self._read_step("will_need", path)
        self._node(path)

    def _read_step(self, operation: str, path: str) -> None:
        if self.step(operation, path) is Fault.CRASH:
            raise Crash

    def _node(self, path: str) -> Node:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def create(self, path: str) -> SimFile:
        fault = self.step("create", path)
        node = self._names.get(path)
        if node is None:
            node = Node()
            self._change(None, path, node)
        elif node.current.size:
            node.cut(0)
        if fault is Fault.CRASH:
            raise Crash
        return SimFile(self, path, node)

    def open(self, path: str) -> SimFile:
        self._read_step("open", path)
        return SimFile(self, path, self._node(path))

    def rename(self, old: str, new: str) -> None:
        fault = self.step("rename", new)
        self._change(old, new, self._node(old))
        if fault is Fault.CRASH:
            raise Crash

    def remove(self, path: str) -> None:
        fault = self.step("remove", path)
        self._change(path, None, self._node(path))
        if fault is Fault.CRASH:
            raise Crash

    def remove_dir(self, path: str) -> None:
        if self.step("remove_dir", path) is Fault.CRASH:
            raise Crash
        assert not any(name.startswith(path + "/") for name in self._names), "the directory is not empty"
        assert not any(path in change.dirs for change in self._changes), "a name could come back into what is gone"
        self._dirs.discard(path)

    def _change(self, old: str | None, new: str | None, node: Node) -> None:
        change = NameChange(old, new, node)
        change.apply(self._names)
        self._changes.append(change)

    def sync_dir(self, path: str) -> None:
        fault = self.step("sync_dir", path)
        if fault is Fault.CRASH:
            raise Crash
        remaining = []
        for change in self._changes:
            change.dirs.discard(path)
            if change.dirs:
                remaining.append(change)
            else:
                change.apply(self._durable_names)
        self._changes = remaining

    def lock(self, path: str) -> SimLock:
        self._read_step("lock", path)
        if path in self._locked:
            raise DirectoryLocked(os.path.dirname(path), LOCK_PID)
        self._locked.add(path)
        return SimLock(self, path)

    def unlock(self, path: str) -> None:
        """Release a lock: see SimLock."""
        self._locked.discard(path)


class SimLock:
    """A lock on a simulated file."""

    def __init__(self, files: SimFiles, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files.unlock(self._path)


class SimFile:
    """An open simulated file.  A crash closes it."""

    def __init__(self, files: SimFiles, path: str, node: Node) -> None:
        self._files = files
        self._path = path
        self._node = node
        self._generation = files.generation
        self._open = True

    def _step(self, operation: str) -> Fault | None:
        assert self._open, "a closed file is used"
        assert self._generation == self._files.generation, "a file is used that was open before the crash"
        return self._files.step(operation, self._path)

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        fault = self._step("write")
        files, node = self._files, self._node
        taken = bytes(data)
        if fault is Fault.SHORT or fault in _ERRORS:
            taken = taken[: files.random.randrange(len(taken))] if len(taken) > 1 else b""
        end = offset + len(taken)
        files.check_room(end - node.current.size)
        node.current.write(offset, taken)
        if taken:
            node.changed(offset, end)
        if fault is Fault.CRASH:
            raise Crash
        if fault in _ERRORS:
            raise files.error(fault)
        return len(taken)

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Write and sync: two operations, so that faults can come between them."""
        taken = self.write_at(data, offset)
        self.sync()
        return taken

    def allocate(self, nbytes: int) -> None:
        fault = self._step("allocate")
        node = self._node
        self._files.check_room(nbytes - node.current.size)
        node.current.resize(max(nbytes, node.current.size))
        node.sizes.append(node.current.size)
        if fault is Fault.CRASH:
            raise Crash

    def sync(self) -> None:
        fault = self._step("sync")
        if fault is Fault.CRASH:
            raise Crash
        if fault is not None and fault is not Fault.SHORT:
            self._node.lose(self._files.random)
            raise self._files.error(fault)
        self._node.sync()

    def truncate(self, nbytes: int) -> None:
        fault = self._step("truncate")
        self._node.cut(nbytes)
        if fault is Fault.CRASH:
            raise Crash

    def close(self) -> None:
        assert self._open, "a file is closed twice"
        self._open = False


@contextmanager
def power_cuts(files: SimFiles, known: Callable[[], Known]) -> Iterator[list[tuple[SimFiles, Known]]]:
    """Collect copies of the disk as it is before each operation within, and at the end, with what is `known` then.

    One run serves for all moments at which the power may go.
    """
    found: list[tuple[SimFiles, Known]] = []

    def note() -> None:
        found.append((files.fork(0), known()))

    files.before_step = note
    try:
        yield found
    finally:
        files.before_step = None
    note()


@contextmanager
def refusing(files: SimFiles, number: int) -> Iterator[None]:
    """Make `read_range` fail with this errno, but for the heads of segments; everything else works."""

    def read_range(path: str, offset: int, nbytes: int) -> bytes:
        if (offset, nbytes) == (0, SEGMENT_HEADER_BYTES):
            return SimFiles.read_range(files, path, offset, nbytes)
        raise OSError(number, os.strerror(number), path)

    files.read_range = read_range  # type: ignore[method-assign]
    try:
        yield
    finally:
        del files.read_range
