"""No frame that may hold a password or a token is quoted: not in the log, not in the audit log, not to the peer.

Each frame holds a secret where a client has to put one, and is then damaged in one place outside of it.  The reports of
the simulated broker are the lines of log and audit log, field by field.  Names are no secrets: `login.refused` has the
user's, a span the address's, even if the damage has joined them to the secret.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from broker.config import Config
from protocols.amqp.composite import encode_composite
from protocols.amqp.performatives import Open, SaslInit, SaslResponse
from protocols.amqp.types import Symbol
from tests.broker.telemetry.harness import Traced
from tests.support.daemon import running
from tests.support.links import RawSocket
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_browser import RawPeer

SECRET: Final = b"hunter2Qzq9"

#: What is looked for: any five characters of the secret in a row, as text, in hexadecimal, or in base64.
PIECES: Final = [SECRET[at : at + 5] for at in range(len(SECRET) - 4)]

#: Inputs for each kind of frame.
INPUTS: Final = 150

#: Bytes that a damaged frame has too many: ends of lines and frames, what is not ASCII, not UTF-8, an escape.
SPECIAL: Final = [b"\0", b"\n", b"\r", b":", b"=", b"\xff", b"\xe9", b"\\", b"\\q", b"\x7f", b" ", b"\n\n"]


def _holds(found: bytes) -> bool:
    """Whether some bytes hold a part of the secret, in any of the ways in which a log may show them."""
    lower = found.lower()
    if any(piece in found or piece.hex().encode() in lower for piece in PIECES):
        return True
    return any(base64.b64encode(SECRET[at:])[:8] in found for at in range(3))


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def _mqtt(first: int, rest: bytes) -> bytes:
    length, size = len(rest), b""
    while True:
        length, digit = length >> 7, length & 0x7F
        size += bytes([digit | (0x80 if length else 0)])
        if not length:
            return bytes([first]) + size + rest


def _mqtt_connect(level: int) -> bytes:
    properties = b"\0" if level == 5 else b""
    name = _text(b"MQIsdp" if level == 3 else b"MQTT")
    will = properties + _text(b"w") + _text(SECRET)
    return _mqtt(
        0x10, name + bytes([level, 0xC6]) + b"\0\x3c" + properties + _text(b"c") + will + _text(b"u") + _text(SECRET)
    )


def _mqtt_auth() -> bytes:
    """A CONNECT with authentication data and the answer to a challenge that never came."""
    data = b"\x15" + _text(b"PLAIN") + b"\x16" + _text(b"\0u\0" + SECRET) + b"\x26" + _text(b"k") + _text(SECRET)
    connect = _text(b"MQTT") + b"\x05\x02\0\x3c" + bytes([len(data)]) + data + _text(b"c")
    return _mqtt(0x10, connect) + _mqtt(0xF0, b"\x18" + bytes([len(data)]) + data)


def _amqp_frame(body: bytes, kind: int) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + bytes([2, kind, 0, 0]) + body


def _amqp_sasl(mechanism: str) -> bytes:
    init = SaslInit(Symbol(mechanism), b"\0u\0" + SECRET, "h")
    response = SaslResponse(b"c=biws,r=x,p=" + SECRET)
    frames = b"".join(_amqp_frame(encode_composite(each), 1) for each in (init, response))
    return b"AMQP\x03\x01\x00\x00" + frames


def _amqp_open() -> bytes:
    """A login, and what a client says about itself."""
    init = _amqp_frame(encode_composite(SaslInit(Symbol("PLAIN"), b"\0u\0another", "h")), 1)
    opening = Open(container_id="c", hostname="h", properties={Symbol("token"): SECRET.decode()})
    return b"AMQP\3\1\0\0" + init + b"AMQP\0\1\0\0" + _amqp_frame(encode_composite(opening), 0)


def _mqtt_publish() -> bytes:
    """A login, and a message with a secret in its body and its properties."""
    connect = _text(b"MQTT") + b"\5\xc2\0\x3c\0" + _text(b"c") + _text(b"u") + _text(b"another")
    properties = b"\x26" + _text(b"authorization") + _text(SECRET)
    publish = _text(b"t") + b"\0\1" + bytes([len(properties)]) + properties + SECRET
    return _mqtt(0x10, connect) + _mqtt(0x32, publish)


def _request(*lines: bytes) -> bytes:
    upgrade = [b"Host: h", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13"]
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    return b"\r\n".join([lines[0], *upgrade, key, *lines[1:], b"", b""])


BASIC: Final = b"Authorization: Basic " + base64.b64encode(b"u:" + SECRET)

_STOMP_LOGIN: Final = b"CONNECT\nlogin:u\npasscode:another\n\n\0"

#: By acceptor, the frames that hold the secret.
FRAMES: Final[dict[str, list[bytes]]] = {
    "stomp": [
        b"CONNECT\naccept-version:1.2\nhost:h\nlogin:u\npasscode:" + SECRET + b"\n\n\0",
        b"CONNECT\nlogin:u\npasscode=" + SECRET + b"\n\n\0",
        b"CONNECT\nlogin:u\npasscode:first\n" + SECRET + b"\n\n\0",
        b"CONNECT\nlogin:u\npasscode:first\xe9" + SECRET + b"\n\n\0",
        b"CONNECT\nlogin:u\npasscode:first\0" + SECRET + b"\n\n\0",
        b"CONNECT\naccept-version:" + SECRET + b"\n\n\0",
        b"CONNECT\nheart-beat:" + SECRET + b"\n\n\0",
        b"CONNECT\ncontent-length:" + SECRET + b"\n\n\0",
        b"CONNECT passcode:" + SECRET + b"\n\n\0",
        b"GET /?login=u&passcode=" + SECRET + b" HTTP/1.1\r\n\r\n",
        b"passcode:" + SECRET + b"\n\n\0",
        _STOMP_LOGIN + b"SEND\ndestination:/queue/a\nauthorization:" + SECRET + b"\n\n" + SECRET + b"\0",
        _STOMP_LOGIN + b"SEND\ndestination:/queue/a\ncontent-length:2\n\nab" + SECRET + b"\0",
        _STOMP_LOGIN + b"CONNECT\npasscode:" + SECRET + b"\n\n\0",
    ],
    "mqtt": [
        _mqtt_connect(3),
        _mqtt_connect(4),
        _mqtt_connect(5),
        _mqtt_auth(),
        _mqtt_publish(),
        b"\x10\x20" + _text(SECRET) + b"\4\2\0\x3c",
        _mqtt(0x10, _text(b"MQTT") + b"\4\2\0\x3c" + _text(b"\xff" + SECRET)),
        _mqtt(0x10, _text(b"MQTT") + b"\5\2\0\x3c\0" + _text(SECRET * 500)),
        _mqtt(0x10, _text(b"MQTT") + b"\4\6\0\x3c" + _text(b"c") + _text(b"+" + SECRET) + _text(SECRET)),
    ],
    "amqp": [
        _amqp_sasl("PLAIN"),
        _amqp_sasl("XOAUTH2"),
        _amqp_sasl(SECRET.decode()),
        _amqp_open(),
        SECRET,
        b"GET /?passcode=" + SECRET,
    ],
    "web-stomp": [
        _request(b"GET /?access_token=" + SECRET + b" HTTP/1.1", b"Sec-WebSocket-Protocol: v12.stomp", BASIC),
        _request(b"GET / HTTP/1.1", b"Sec-WebSocket-Protocol: bearer." + SECRET),
        _request(b"GET / HTTP/1.1", b"Sec-WebSocket-Protocol: v12.stomp", b"Cookie: session=" + SECRET),
        _request(b"GET / HTTP/1.1", b"Sec-WebSocket-Protocol: v12.stomp", b"Authorization: Bearer " + SECRET),
    ],
}
FRAMES["web-mqtt"] = [frame.replace(b"v12.stomp", b"mqtt") for frame in FRAMES["web-stomp"]]
FRAMES["web-amqp"] = [frame.replace(b"v12.stomp", b"amqp") for frame in FRAMES["web-stomp"]]


def _config() -> Config:
    shipped = configured().acceptors
    web = {f"web-{name}": shipped[name].model_copy(update={"websocket": True}) for name in ("stomp", "mqtt", "amqp")}
    return configured(acceptors={**shipped, **web})


def _damaged(frame: bytes, random: Random) -> bytes:
    """The frame with something put in, left out, repeated or changed at a place that is not within the secret."""
    places = [
        at for at in range(len(frame) + 1) if SECRET not in frame[max(at - len(SECRET) + 1, 0) : at + len(SECRET) - 1]
    ]
    places = places or [0, len(frame)]
    at = random.choice(places)
    way = random.randrange(5)
    if way == 0:
        return frame[:at] + random.choice(SPECIAL) + frame[at:]
    if way == 1:
        return frame[:at] + frame[at + 1 :]
    if way == 2:
        return frame[:at] + bytes([random.randrange(256)]) + frame[at + 1 :]
    if way == 3:
        return frame[:at] + frame[random.choice(places) :]
    return frame + frame[at:]


def _reported(broker: SimBroker) -> list[tuple[str, bytes]]:
    """What was reported since the last call, as text; without the name in a refused login."""
    found = []
    for code, fields in broker.reports:
        shown = {name: value for name, value in fields.items() if (code, name) != ("login.refused", "user")}
        found.append((code, repr(shown).encode()))
    broker.reports.clear()
    return found


@pytest.mark.parametrize("acceptor", FRAMES)
def test_no_answer_and_no_report_quotes_a_secret(acceptor: str) -> None:
    seed = 34
    random = Random(seed)
    broker = SimBroker(_config(), users={"u": "another"})
    traced = Traced(broker, sample_ratio=1.0)
    for number, frame in enumerate(FRAMES[acceptor]):
        for turn in range(INPUTS):
            data = _damaged(frame, random) if turn else frame
            peer = RawPeer(broker, acceptor)
            peer.raw(data)
            broker.advance(1)
            peer.abort()
            assert not _holds(peer.got), f"seed {seed}, frame {number}, input {data!r}: {peer.got!r}"
            for code, told in _reported(broker):
                assert not _holds(told), f"seed {seed}, frame {number}, input {data!r}: {code} {told!r}"
        broker.forget()
    spans = traced.spans()
    for span in spans:
        shown = [
            value for name, value in (span.attributes or {}).items() if not name.startswith("messaging.destination")
        ]
        assert not _holds(repr(shown).encode()), span.to_json()
    assert bool(spans) is (acceptor in ("stomp", "mqtt")), "messages are traced"


@pytest.mark.parametrize("show", [bytes, lambda raw: raw.hex().encode(), base64.b64encode, lambda raw: raw[3:8]])
def test_a_secret_is_found_however_it_is_shown(show: Callable[[bytes], bytes]) -> None:
    assert _holds(b"detail=" + show(SECRET))


def test_no_file_and_no_answer_of_a_process_holds_a_secret(tmp_path: Path) -> None:
    """Log with all levels, audit log and answers, over sockets; HTTP with a token, a password and a query."""
    audit = tmp_path / "audit.jsonl"
    settings = [f'[log]\nlevel = "debug"\n[security]\naudit-file = "{audit}"\n']
    settings += [f'[acceptors.{name}]\nprotocol = "{name}"\nport = 0\n' for name in ("stomp", "amqp", "mqtt", "http")]
    settings.append('[acceptors.web]\nprotocol = "stomp"\nwebsocket = true\nport = 0\n')
    requests = [
        b"GET /api/v1/status?access_token=" + SECRET + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + SECRET + b"\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n" + BASIC + b"\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: " + SECRET + b"\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization Bearer " + SECRET + b"\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40\r\n\r\nname=u&password=" + SECRET + b"&" * 13,
        b"GET /" + SECRET + b"\0 HTTP/1.1\r\n\r\n",
    ]
    frames = {name: FRAMES[name] for name in ("stomp", "mqtt", "amqp")} | {"web": FRAMES["web-stomp"], "http": requests}
    with running(tmp_path, "".join(settings)) as broker:
        for acceptor, inputs in frames.items():
            for data in inputs:
                with RawSocket(broker.ports[acceptor]) as wire:
                    wire.raw(data)
                    wire.socket.shutdown(socket.SHUT_WR)
                    answer = wire.rest()
                assert not _holds(answer), f"{acceptor}, input {data!r}: {answer!r}"
        broker.get("status")
        log = broker.log
    for line in [*log.splitlines(), *audit.read_text("utf-8").splitlines()]:
        assert not _holds(line.encode()), line
    assert "login.refused" in log, "the frames got as far as a login"
