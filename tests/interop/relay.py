"""A port that stays while the broker behind it is killed: for clients that come back by themselves."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.interop.programs import RUN_S
from tests.support.daemon import DaemonProcess


class Relay:
    """A port that stays, in front of a broker whose port is another one after each start."""

    def __init__(self, broker: DaemonProcess, acceptor: str) -> None:
        self._broker = broker
        self._acceptor = acceptor
        self._running = threading.Event()
        self._running.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._running.wait()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self._broker.ports[self._acceptor]))
            except (KeyError, OSError):  # the broker was killed since; the client comes back
                return
            with server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()

    def restart(self) -> None:
        """Kill the broker; whoever comes meanwhile waits until it is back."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill the broker, until it is started."""
        self._running.clear()
        self._broker.kill()

    def start(self) -> None:
        """Start the broker again."""
        self._broker.start()
        self._running.set()

    def close(self) -> None:
        """Accept nobody any more."""
        self._running.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(broker: DaemonProcess, acceptor: str = "amqp") -> Iterator[Relay]:
    """A relay that is closed afterwards."""
    relay = Relay(broker, acceptor)
    try:
        yield relay
    finally:
        relay.close()


def outlived(command: Sequence[str], relay: Relay) -> list[str]:
    """What a program says it could do while the broker was killed wherever it says "kill"."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as peer:
        impatience = threading.Timer(RUN_S, peer.kill)
        impatience.start()
        said: list[str] = []
        assert peer.stdin is not None
        assert peer.stdout is not None
        for line in peer.stdout:
            said.append(line)
            if line == "kill\n":
                relay.restart()
                peer.stdin.write("\n")
                peer.stdin.flush()
        status = peer.wait(RUN_S)
        impatience.cancel()
        impatience.join()
    assert status == 0, "".join(said)
    return [line.strip() for line in said if line.startswith("ok ")]
