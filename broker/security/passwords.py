"""Passwords as stored: an argon2id hash, and keys for SCRAM.

The hash takes some 20 ms and 19 MiB, so it is computed off the event loop.  The keys for SCRAM are computed once, when
the password is set: the server's side of an exchange is then a few HMACs.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from scramp import ScramMechanism

from broker.sessions.login import ScramKeys
from broker.sessions.sasl import SCRAMS

#: OWASP's parameters for argon2id where many logins share a machine: 19 MiB, two passes, one lane.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 << 10, parallelism=1, type=Type.ID)

#: Iterations of SCRAM's PBKDF2: what OWASP advises for each hash; RFC 7677 asks for at least 4096.  They cost a client
#: CPU at each login, and whoever steals the keys as much for each guess; the broker's side of a login is a few HMACs.
SCRAM_ITERATIONS: Final = {"SCRAM-SHA-512": 220_000, "SCRAM-SHA-256": 600_000}
SALT_BYTES: Final = 16

#: Bytes of a password: a passphrase, or a token used as one.
PASSWORD_BYTES_MAX: Final = 1_024

_DIGESTS: Final = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}

#: The hash to verify for users that do not exist or have no password, so that they take the same time.
DECOY: Final = "$argon2id$v=19$m=19456,t=2,p=1$YmFydGxlYnkgZGVjb3kh$2nZQfNTyJvXq3uAWWB4hWCrlfp8G4gqbOWZbKO0v8dE"


def hashed(password: str) -> str:
    """The argon2id hash in its standard form, with a new salt."""
    return _HASHER.hash(password)


def fits(password: bytes, stored: str) -> bool:
    """Whether a password matches a hash.  Too slow for the event loop.

    Raises Argon2Error, InvalidHashError if it cannot be verified: no memory, or not such a hash.
    """
    if not 0 < len(password) <= PASSWORD_BYTES_MAX:
        return False
    try:
        return _HASHER.verify(stored, password)
    except VerifyMismatchError:
        return False


def check_hash(stored: str) -> None:
    """Raises ValueError unless it is an argon2id hash."""
    try:
        parameters = extract_parameters(stored)
    except InvalidHashError:
        raise ValueError("it is not an argon2id hash") from None
    if parameters.type is not Type.ID:
        raise ValueError("it is not an argon2id hash")


def scram_keys(mechanism: str, password: str, salt: bytes, iterations: int = 0) -> ScramKeys:
    """The keys that the server stores for a SCRAM mechanism (RFC 5802, 3); `iterations`: 0 for today's number."""
    count = iterations or SCRAM_ITERATIONS[mechanism]
    keys: ScramKeys = ScramMechanism(mechanism).make_auth_info(password, count, salt)
    return keys


def is_outdated(mechanism: str, keys: ScramKeys) -> bool:
    """Whether keys were made with fewer iterations than are used today."""
    return keys[3] < SCRAM_ITERATIONS[mechanism]


def decoy_keys(mechanism: str, name: str, secret: bytes, iterations: int) -> ScramKeys:
    """Keys that no password matches, always the same for a name and a number of iterations."""
    digest = _DIGESTS[mechanism]

    def made(what: str) -> bytes:
        text = f"{what} {mechanism} {iterations} {name}"
        return hmac.digest(secret, text.encode("utf-8", "surrogatepass"), digest)

    return made("salt")[:SALT_BYTES], made("stored"), made("server"), iterations


def written(keys: ScramKeys) -> str:
    """SCRAM keys as text: iterations and, in base64, salt, stored key, server key."""
    salt, stored, server, iterations = keys
    return "$".join([str(iterations), *(base64.b64encode(part).decode() for part in (salt, stored, server))])


def read_keys(mechanism: str, text: str) -> ScramKeys:
    """SCRAM keys from their text.  Raises ValueError."""
    assert mechanism in SCRAMS
    parts = text.split("$")
    if len(parts) != 4 or not (parts[0].isascii() and parts[0].isdigit() and 4096 <= int(parts[0]) <= 10_000_000):
        raise ValueError("it must be ITERATIONS$SALT$STORED-KEY$SERVER-KEY")
    try:
        salt, stored, server = (base64.b64decode(part, validate=True) for part in parts[1:])
    except binascii.Error:
        raise ValueError("its parts must be base64") from None
    size = hmac.new(b"", b"", _DIGESTS[mechanism]).digest_size
    if not salt or len(stored) != size or len(server) != size:
        raise ValueError(f"its keys must have {size} bytes")
    return salt, stored, server, int(parts[0])
