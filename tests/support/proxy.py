"""A TCP proxy that plays the network between a client and its server: cut, silent, healed.

    with Proxy(server.port) as proxy:
        client = connect(proxy.port)
        proxy.blackhole()   # nothing goes through, and neither side is notified
        proxy.heal()        # bytes in transit arrive after all, as after a short network failure
        proxy.cut()         # connections are dropped, with bytes in transit; new ones are refused

Each call has taken effect when it returns: one thread moves all bytes, and executes calls between two moves.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from tests.support.process import PATIENCE_S

#: The most bytes read from one side before the other side has accepted them.
_CHUNK_BYTES: Final = 65_536


class _Flow:
    """One direction of a connection: from one of its sockets to the other."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.waiting = b""
        self.moved = 0
        self.ended = False  # the source will send nothing more

    def read(self) -> None:
        data = self.source.recv(_CHUNK_BYTES)
        self.waiting = data
        self.ended = not data

    def write(self) -> None:
        sent = self.sink.send(self.waiting)
        self.waiting = self.waiting[sent:]
        self.moved += sent


def _nothing() -> None:
    """Do nothing: the proxy's thread has moved the available bytes before this call."""


class Proxy:
    """A port in front of another one of this machine."""

    def __init__(self, target: int) -> None:
        self._connections = 0
        self._target = target
        self._held = False
        self._moved = [0, 0]  # by connections that have ended
        self._flows: dict[socket.socket, tuple[_Flow, _Flow]] = {}  # by the client's socket: to the server, and back
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._asked: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._bell, self._ear = socket.socketpair()
        self._running = True
        self._thread = threading.Thread(target=self._run, name=f"proxy of {target}")
        self._thread.start()

    # -- the failures ----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Drop all connections, and refuse new ones."""
        self._do(self._cut)

    def blackhole(self) -> None:
        """Let nothing through; connections stay open, new ones are accepted and get no answer."""
        self._do(self._hold)

    def heal(self) -> None:
        """Let bytes through again, including the held ones."""
        self._do(self._heal)

    # Each of these first moves the bytes that have arrived at either side.

    @property
    def connections(self) -> int:
        """How many connections were accepted."""
        self._do(_nothing)
        return self._connections

    @property
    def open(self) -> int:
        """How many connections are open."""
        self._do(_nothing)
        return len(self._flows)

    @property
    def to_server(self) -> int:
        """Bytes that went to the server."""
        return self._count(0)

    @property
    def to_client(self) -> int:
        """Bytes that came from the server."""
        return self._count(1)

    def _count(self, way: int) -> int:
        self._do(_nothing)
        return self._moved[way] + sum(flows[way].moved for flows in list(self._flows.values()))

    def close(self) -> None:
        """Stop the proxy, and close all its connections."""
        self._do(self._end)
        self._thread.join(PATIENCE_S)
        self._bell.close()
        self._ear.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- its thread ------------------------------------------------------------------------------------------------

    def _do(self, what: Callable[[], None]) -> None:
        if not self._running:
            return
        done = threading.Event()
        self._asked.append((what, done))
        self._bell.send(b"!")
        assert done.wait(PATIENCE_S), "the proxy's thread is gone"

    def _run(self) -> None:
        while self._running:
            for ready, events in self._ready():
                if ready is self._ear:
                    self._ear.recv(_CHUNK_BYTES)
                elif ready is self._listener:
                    self._accept()
                else:
                    self._move(ready, events)
            while self._asked:
                what, done = self._asked.popleft()
                what()
                done.set()

    def _ready(self) -> list[tuple[object, int]]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            if self._listener is not None:
                selector.register(self._listener, selectors.EVENT_READ)
            for forth, back in [] if self._held else self._flows.values():
                for flow, other in ((forth, back), (back, forth)):
                    wanted = 0 if flow.waiting else selectors.EVENT_READ
                    wanted |= selectors.EVENT_WRITE if other.waiting else 0
                    if wanted:
                        selector.register(flow.source, wanted)
            return [(key.fileobj, events) for key, events in selector.select()]

    def _accept(self) -> None:
        assert self._listener is not None
        client, _ = self._listener.accept()
        server = socket.socket()
        for each in (client, server):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(("127.0.0.1", self._target))  # if it is refused, the first read says so
        self._flows[client] = _Flow(client, server), _Flow(server, client)
        self._connections += 1

    def _move(self, ready: object, events: int) -> None:
        found = [pair for pair in self._flows.values() if ready in (pair[0].source, pair[1].source)]
        for forth, back in found:
            mine, other = (forth, back) if ready is forth.source else (back, forth)
            try:
                if events & selectors.EVENT_WRITE:
                    other.write()
                if events & selectors.EVENT_READ and not mine.waiting:
                    mine.read()
            except BlockingIOError:
                continue
            except OSError:
                mine.ended = True
                mine.waiting = b""
            if any(flow.ended and not flow.waiting for flow in (forth, back)):
                self._drop(forth, back)

    def _drop(self, forth: _Flow, back: _Flow) -> None:
        del self._flows[forth.source]
        self._moved[0] += forth.moved
        self._moved[1] += back.moved
        forth.source.close()
        back.source.close()

    def _cut(self) -> None:
        self._held = False
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for forth, back in list(self._flows.values()):
            self._drop(forth, back)

    def _hold(self) -> None:
        self._heal()
        self._held = True

    def _heal(self) -> None:
        self._held = False
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)

    def _end(self) -> None:
        self._cut()
        self._running = False
