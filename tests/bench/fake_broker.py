"""A STOMP 1.2 broker of one thread, small enough to read, that can be told to misbehave."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

Fault = Callable[[list[bytes]], list[bytes]]  # the frames about to be delivered -> what is delivered in their place


@dataclass(slots=True)
class _Peer:
    sock: socket.socket
    rest: bytes = b""

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # a client that has seen enough is gone; its read says so
            self.sock.sendall(data)


@dataclass(slots=True)
class FakeBroker:
    """Delivers every SEND to the last subscriber of its destination; keeps it while there is none.

    credit: unacknowledged messages of a subscription that is not ack:auto; None: any number.
    """

    fault: Fault | None = None
    credit: int | None = None
    acks: list[bytes] = field(default_factory=list)  # ids, in order
    _subscriptions: dict[bytes, tuple[_Peer, bytes, bool]] = field(default_factory=dict)
    _kept: dict[bytes, list[bytes]] = field(default_factory=dict)
    _unacked: dict[bytes, int] = field(default_factory=dict)
    _next_id: int = 0
    _server: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _thread: threading.Thread | None = None
    _wake: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)

    @property
    def port(self) -> int:
        port: int = self._server.getsockname()[1]
        return port

    def __enter__(self) -> FakeBroker:
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._wake[0], selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._wake[1].send(b"x")
        assert self._thread is not None
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._wake[1].close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake[0]:
                    return
                if key.fileobj is self._server:
                    sock, _ = self._server.accept()
                    self._selector.register(sock, selectors.EVENT_READ, _Peer(sock))
                else:
                    self._read(key.data)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.sock.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(peer.sock)
            peer.sock.close()
            gone = [name for name, (who, _, _) in self._subscriptions.items() if who is peer]
            for name in gone:
                del self._subscriptions[name]
            return
        *frames, peer.rest = (peer.rest + data).split(b"\0")
        for frame in frames:
            self._frame(peer, frame)
        for destination in list(self._kept):
            self._deliver(destination)

    def _frame(self, peer: _Peer, frame: bytes) -> None:
        head, _, body = frame.partition(b"\n\n")
        command, *lines = head.split(b"\n")
        headers = dict(line.split(b":", 1) for line in lines)
        if command == b"CONNECT":
            peer.send(b"CONNECTED\nversion:1.2\n\n\0\n")
        elif command == b"SUBSCRIBE":
            self._subscriptions[headers[b"destination"]] = (peer, headers[b"id"], headers[b"ack"] != b"auto")
        elif command == b"UNSUBSCRIBE":
            gone = [name for name, (_, number, _) in self._subscriptions.items() if number == headers[b"id"]]
            for name in gone:
                del self._subscriptions[name]
        elif command == b"SEND":
            kept = [line for line in lines if not line.startswith((b"receipt:", b"persistent:"))]
            self._kept.setdefault(headers[b"destination"], []).append(b"\n".join(kept) + b"\n\n" + body)
        elif command == b"ACK":
            self.acks.append(headers[b"id"])
            self._unacked[headers[b"id"].partition(b"/")[0]] = 0
        if b"receipt" in headers:
            peer.send(b"RECEIPT\nreceipt-id:" + headers[b"receipt"] + b"\n\n\0\n")

    def _deliver(self, destination: bytes) -> None:
        if destination not in self._subscriptions:
            return
        peer, subscription, counted = self._subscriptions[destination]
        kept = self._kept[destination]
        room = len(kept)
        if counted and self.credit is not None:
            room = min(room, self.credit - self._unacked.get(subscription, 0))
            self._unacked[subscription] = self._unacked.get(subscription, 0) + room
        frames = [self._message(subscription, rest) for rest in kept[:room]]
        del kept[:room]
        if self.fault:
            frames = self.fault(frames)
        peer.send(b"".join(frames))

    def _message(self, subscription: bytes, rest: bytes) -> bytes:
        self._next_id += 1
        ack = b"%b/%d" % (subscription, self._next_id)
        return b"MESSAGE\nsubscription:%b\nmessage-id:%d\nack:%b\n%b\0\n" % (subscription, self._next_id, ack, rest)
