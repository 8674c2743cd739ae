"""What is fed: everything that reads what others have written.  Each takes any bytes and lets nothing but a bug out.

A codec's first byte says in which state it is and in which pieces it gets the rest; what it may keep is checked by the
same rooms that the tests of the codecs have.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from broker.config import ConfigError
from broker.config.load import load
from broker.daemon.wiring import Broker
from broker.engine.filter import InvalidFilter
from broker.engine.filter.filter import compile_filter
from broker.offline.importing import BadLine, import_lines
from broker.offline.parts import Stopped
from broker.security.tokens import BadToken, KeySet, TokenRules, Tokens
from broker.security.users_file import UnusableFile, read_users, write_users
from tests.fuzz import sent
from tests.protocols.amqp import conversation as amqp
from tests.protocols.mqtt import conversation as mqtt
from tests.protocols.stomp import conversation as stomp
from tests.support.issuer import AUDIENCE, ISSUER, key_set, public_jwk, token
from tests.support.sim_broker import SimBroker
from tests.support.sim_gate import cheap_user
from tests.support.stomp_client import frame

PIECES: Final = (1, 7, 64, 1 << 20)
STOMP_VERSIONS: Final = (None, "1.0", "1.1", "1.2")
MQTT_VERSIONS: Final = (None, 3, 4, 5)


@dataclass(frozen=True)
class Target:
    """One reader: what runs an input, valid ones to begin with, pieces worth putting in, and the longest input."""

    run: Callable[[bytes], object]
    seeds: list[bytes]
    tokens: list[bytes]
    bytes_max: int = 1_024


def _cut(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def _choice(raw: bytes) -> tuple[int, int, bytes]:
    """Two numbers from 0 to 3 and the rest."""
    first = raw[0] if raw else 0
    return first & 3, PIECES[first >> 2 & 3], raw[1:]


def _stomp(raw: bytes) -> None:
    version, size, rest = _choice(raw)
    stomp.converse(stomp.begin(STOMP_VERSIONS[version]), _cut(rest, size))


def _stomp_seeds() -> list[bytes]:
    frames = [
        frame("CONNECT", {"accept-version": "1.2", "host": "h", "login": "a", "passcode": "b"}),
        frame("SEND", {"destination": "/queue/a", "receipt": "1"}, b"text"),
        frame("SEND", {"destination": "/queue/a"}, b"b\0dy"),
        frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "selector": "a = 1"}),
        frame("ACK", {"id": "1"}),
        frame("BEGIN", {"transaction": "t"}) + frame("COMMIT", {"transaction": "t"}),
        frame("DISCONNECT", {"receipt": "1"}),
    ]
    return [bytes([first]) + each for first in range(16) for each in (*frames, b"".join(frames[1:]))]


def _amqp_start(stage: int) -> bytes:
    return b"".join(amqp.stream(Random(stage), 0)[: (0, 2, 99, 99)[stage]])


_AMQP_STARTS: Final = [_amqp_start(stage) for stage in range(4)]


def _amqp(raw: bytes) -> None:
    stage, size, rest = _choice(raw)
    amqp.converse(amqp.server(), [_AMQP_STARTS[stage], *_cut(rest, size)])


def _amqp_seeds() -> list[bytes]:
    streams = [amqp.stream(Random(seed), 12) for seed in range(40)]
    whole = [b"\x0c" + b"".join(each) for each in streams]
    begun = [b"\x0e" + b"".join(each[-12:]) for each in streams]
    return whole + begun


def _mqtt(raw: bytes) -> None:
    version, size, rest = _choice(raw)
    mqtt.converse(mqtt.begin(MQTT_VERSIONS[version]), _cut(rest, size))


def _mqtt_seeds() -> list[bytes]:
    hello = b"\x10\x0e\0\4MQTT\5\2\0\0\0\0\1c"
    will = b"\x10\x16\0\4MQTT\5\x06\0\0\0\0\1c\0\0\1w\0\2hi"
    some = [token for token in mqtt.TOKENS if len(token) > 3]
    streams = [hello, will, b"".join(some[:10]), b"".join(some[10:]), *some]
    return [bytes([first]) + each for first in range(16) for each in streams]


PROPERTIES: Final[dict[str, Any]] = {"a": 5, "b": "text", "c": True, "d": 2.5, "long": "x" * 1_000, "%_": "%"}

SELECTORS: Final = [
    "a = 5 AND b LIKE 't_x%' OR NOT (c = TRUE)",
    "a BETWEEN 1 AND 10 AND b IN ('x', 'text', 'y')",
    "d * 2 + a / 3 - 1 > 4.5e2 AND b IS NOT NULL",
    "long LIKE '%a%b%c_%' ESCAPE '!' OR long LIKE '%!%%' ESCAPE '!'",
    "convert_string_expressions:hyphenated_props:b-c = '5' OR a <> 0x1F",
    "((((a = 1))))",
]


def _selector(raw: bytes) -> None:
    with suppress(InvalidFilter):
        found = compile_filter(raw.decode("utf-8", "replace"))
        if found is not None:
            found.matches(PROPERTIES)


_KEYS: Final = KeySet(key_set(public_jwk("ES256", "1")))
_TOKENS: Final = Tokens(TokenRules(ISSUER, AUDIENCE), lambda: _KEYS, lambda: 1_700_000_000_000)


def _token(raw: bytes) -> None:
    """A token, and a key set."""
    with suppress(BadToken):
        _TOKENS.check(raw)
    with suppress(ValueError):
        KeySet(raw)


class _File:
    """A file in memory that a reader is given."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("fed")
        os.fchmod(self._descriptor, 0o600)
        self.path = Path(f"/proc/self/fd/{self._descriptor}")

    def _write(self, raw: bytes) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, raw, 0)

    def config(self, raw: bytes) -> None:
        """As broker.toml."""
        self._write(raw)
        with suppress(ConfigError):
            load(self.path)

    def users(self, raw: bytes) -> None:
        """As users.toml."""
        self._write(raw)
        with suppress(UnusableFile):
            read_users(self.path)


def _some_users() -> bytes:
    """A valid users file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "users.toml"
        write_users(path, {"bob": cheap_user("x", "a", "b c"), 'e "v" e': cheap_user("y")})
        return path.read_bytes()


CONFIGS: Final = [
    b'[acceptors.a]\nprotocol = "stomp"\nport = 1\nconnection-ttl = "60s"\n[acceptors.a.tls]\ncertificate = "c"\n',
    b'[[address-settings]]\nmatch = "a.#"\nmax-size-bytes = "10MiB"\nredelivery-delay = "1s"\nexpiry-address = "E"\n',
    b'[addresses.a.queues.q]\nrouting-type = "ANYCAST"\nfilter = "a = 1"\nmax-consumers = 3\n',
    b'[[security-settings]]\nmatch = "a.%u.#"\nsend = ["x"]\n[[certificate-users]]\nsubject = "CN=*"\nuser = "%cn"\n',
    b'[diverts.d]\naddress = "a"\nforwarding-address = "b"\nexclusive = true\n[limits]\nconnections-max = 5\n',
]

#: An export with one of each: the first line, an address, a queue, a divert, a session, a part of it, messages.
EXPORT: Final = [
    b'{"kind":"journal","version":1}',
    b'{"kind":"address","name":"orders","routing-types":["ANYCAST"],"auto-created":true}',
    b'{"kind":"queue","name":"orders","address":"orders","routing-type":"ANYCAST","filter":"","no-local":"",'
    b'"auto-created":true,"attributes":{"ring-size":5}}',
    b'{"kind":"divert","name":"d","address":"orders","forwarding-addresses":["x"],"exclusive":false,"filter":"",'
    b'"routing-type":"STRIP","add-headers":{"a":"b"},"remove-headers":["c"],"configured":false,"internal":false}',
    b'{"kind":"session","name":"c","session":{"user":"","expiry":9,"disconnected":0,"queued_max":-1,'
    b'"drop_oldest":false,"will":null}}',
    b'{"kind":"session-part","name":"a/#","session":"c","part":{"filter":"a/#","qos":1,"no_local":false,'
    b'"retain_as_published":false,"identifier":0}}',
    b'{"kind":"message","id":12,"queues":[{"name":"orders","delivery-count":2}],"address":"orders","protocol":"stomp",'
    b'"timestamp":1780000000000,"priority":4,"user":"shop","head":"Y29sb3I6cmVkCg==","body":"Zmlyc3Q="}',
    b'{"kind":"message","queues":[{"name":"orders"}],"address":"orders","protocol":"mqtt","timestamp":1,"priority":4,'
    b'"head":"AQ==","body":"eA=="}',
    b'{"kind":"message","queues":[{"name":"orders","due":1790000000000}],"address":"orders","protocol":"amqp",'
    b'"timestamp":1,"priority":4,"head":"AFN0wQcEoQFhoQFi","body":"AFN3oQF4","annotations":{"a":"b","n":5}}',
    b'{"kind":"message","queues":[{"name":"orders"}],"address":"orders","protocol":"stomp","timestamp":1,"priority":4,'
    b'"head":"","body-bytes":2}',
    b'{"kind":"body","data":"eHk="}',
]


class _Journal:
    """What lines are imported into: a simulated broker that serves nobody."""

    def __init__(self) -> None:
        self.broker = SimBroker()

    @property
    def parts(self) -> Broker:
        """See Stopped."""
        return self.broker.parts

    def run_ticks(self) -> None:
        """See Stopped."""
        self.parts.tick.enter()
        self.broker.run()

    def take(self, raw: bytes) -> None:
        """Import lines."""
        with suppress(BadLine):
            import_lines(cast(Stopped, self), [EXPORT[0], *raw.splitlines()])


JOURNAL: Final = _Journal()

TOML: Final = [b"[", b"]", b"[[", b"{", b"}", b'"', b"'''", b"=", b"\n", b"\\u0000", b"1979-05-27", b"nan", b"9" * 30]


def _files() -> dict[str, Target]:
    config, users = _File(), _File()
    return {
        "config": Target(config.config, CONFIGS, [*TOML, b"match", b"acceptors", b'"1s"', b"-1", b"true"], 4_096),
        "users": Target(users.users, [_some_users(), b"[a]\nroles = []\n"], [*TOML, b"roles", b"$"], 4_096),
    }


@cache
def targets() -> dict[str, Target]:
    """All of them, by name."""
    words = [
        b"(",
        b")",
        b"'",
        b" AND ",
        b" OR ",
        b" NOT ",
        b" LIKE '%",
        b"a",
        b"1e9",
        b" IN (",
        b"+",
        b"-",
        b"\xff",
        b"_",
    ]
    keys = [base64.b64encode(b"k" * 16), b"\x00\x00\x00\x08\x02\x00\x00\x00", *amqp.WRONG]
    return {
        "stomp": Target(_stomp, _stomp_seeds(), stomp.TOKENS),
        "amqp": Target(_amqp, _amqp_seeds(), keys),
        "amqp-messages": Target(sent.Sent().run, sent.seeds(), [*sent.TOKENS, *amqp.WRONG]),
        "mqtt": Target(_mqtt, _mqtt_seeds(), mqtt.TOKENS),
        "selector": Target(_selector, [each.encode() for each in SELECTORS], words, 5_000),
        "token": Target(
            _token,
            [token(), key_set(public_jwk("ES256", "1"))],
            [b".", b"eyJ", b"e30", b"=", b"[", b'"kty":', b"{"],
            9_000,
        ),
        "import": Target(
            JOURNAL.take,
            [b"\n".join(EXPORT[1:]), b"\n".join(EXPORT[6:]), *EXPORT[1:]],
            [b'"', b"{", b"}", b"[", b"]", b"null", b"true", b"-1", b"9" * 20, b"\\ud800", b"1e9", b"\n", b"==", b"::"],
            8_192,
        ),
        **_files(),
    }
