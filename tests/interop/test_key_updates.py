"""CVE-2026-39304 (ActiveMQ): TLS 1.3 lets either side change its key at any time, and ask the other for the same.

No client library sends thousands of key updates, so the records are made here: OpenSSL shakes hands, and tells its
secret as it does for debuggers (SSLKEYLOGFILE); what follows is RFC 8446, 4.6.3 (the message), 5.2 and 5.3 (the record
and its nonce) and 7.2 (the next secret).
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.support.certificates import Authority
from tests.support.daemon import running
from tests.support.process import PATIENCE_S
from tests.support.stomp_py import connected

SETTINGS = """
[acceptors.http]
protocol = "http"
[acceptors.stomp]
protocol = "stomp"
[acceptors.secure]
protocol = "stomp"
port = 0
[acceptors.secure.tls]
certificate = "{certificate}"
key = "{key}"
"""

UPDATES = 10_000

#: Seconds of the processor that they may cost the broker: some 20 us each, many times over.
CPU_SECONDS_MAX = 4.0

GROWTH_BYTES_MAX = 8 << 20

_HANDSHAKE, _APPLICATION_DATA = 22, 23


class Updater:
    """The sending half of a TLS 1.3 connection whose records are made by hand."""

    def __init__(self, port: int, context: ssl.SSLContext, secrets: Path) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(secrets)
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                self._incoming.write(self._socket.recv(1 << 16))
            else:
                break
        self._socket.sendall(self._outgoing.read())
        cipher = self._tls.cipher()
        assert cipher is not None
        self._hash = SHA384() if cipher[0].endswith("SHA384") else SHA256()
        self._key_bytes = 32 if "256_GCM" in cipher[0] else 16
        lines = [line.split() for line in secrets.read_text().splitlines()]
        (secret,) = [line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"]
        self._secret = bytes.fromhex(secret)
        self._use()

    def _expand(self, label: bytes, nbytes: int) -> bytes:
        label = b"tls13 " + label
        info = struct.pack(">HB", nbytes, len(label)) + label + b"\0"
        return HKDFExpand(self._hash, nbytes, info).derive(self._secret)

    def _use(self) -> None:
        self._cipher = AESGCM(self._expand(b"key", self._key_bytes))
        self._iv = int.from_bytes(self._expand(b"iv", 12), "big")
        self._number = 0

    def _record(self, kind: int, content: bytes) -> bytes:
        head = struct.pack(">BHH", _APPLICATION_DATA, 0x0303, len(content) + 1 + 16)
        nonce = (self._iv ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + self._cipher.encrypt(nonce, content + bytes([kind]), head)

    def send(self, data: bytes) -> None:
        """Application data."""
        self._socket.sendall(self._record(_APPLICATION_DATA, data))

    def update(self, times: int) -> None:
        """So many key updates, each of which asks the broker for one, as fast as it takes them."""
        records = []
        for _ in range(times):
            records.append(self._record(_HANDSHAKE, b"\x18\0\0\1\1"))
            self._secret = self._expand(b"traffic upd", self._hash.digest_size)
            self._use()
        self._socket.sendall(b"".join(records))

    def read(self) -> bytes:
        """What the broker says next, with whatever keys it has come to."""
        while True:
            try:
                return self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                data = self._socket.recv(1 << 16)
                assert data, "the broker has hung up"
                self._incoming.write(data)

    def close(self) -> None:
        """Let go."""
        self._socket.close()


def test_cve_2026_39304_key_updates_without_end_cost_others_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("broker", file="server")
    with running(tmp_path, SETTINGS.format(certificate=certificate, key=key)) as broker:
        updater = Updater(broker.ports["secure"], authority.client(), tmp_path / "secrets")
        updater.send(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        assert updater.read().startswith(b"CONNECTED")
        updater.update(100)  # what is made once is there
        memory, used = broker.memory_bytes(), broker.cpu_seconds()
        with connected(broker.port) as other:
            flood = threading.Thread(target=updater.update, args=[UPDATES])
            flood.start()
            while flood.is_alive():
                other.put("/queue/orders", "meanwhile", {"persistent": "true"})
            flood.join()
        updater.send(b"SEND\ndestination:/queue/orders\nreceipt:1\n\nbehind them all\0")
        assert b"receipt-id:1" in updater.read()
        print(f"{UPDATES} key updates: {broker.cpu_seconds() - used:.2f} s of the broker's processor")
        assert broker.cpu_seconds() - used < CPU_SECONDS_MAX
        assert broker.memory_bytes() - memory < GROWTH_BYTES_MAX
        updater.close()
