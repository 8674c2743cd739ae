"""An issuer of tokens for tests: its keys, and what it signs with them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER: Final = "https://issuer.example.org"
AUDIENCE: Final = "bartleby"


@cache
def private_key(algorithm: str) -> Any:
    """Return a key for an algorithm, the same at each call."""
    if algorithm.startswith("ES"):
        curves: dict[str, ec.EllipticCurve] = {
            "ES256": ec.SECP256R1(),
            "ES384": ec.SECP384R1(),
            "ES512": ec.SECP521R1(),
        }
        return ec.generate_private_key(curves[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(algorithm: str, id: str | None, **more: Any) -> dict[str, Any]:
    """Return the public half of a key as a JWK."""
    made: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(
        private_key(algorithm).public_key(), as_dict=True
    )
    return made | ({} if id is None else {"kid": id}) | more


def key_set(*keys: Mapping[str, Any]) -> bytes:
    """Return a JWKS."""
    return json.dumps({"keys": keys}).encode()


def token(
    algorithm: str = "ES256",
    *,
    id: str | None = "1",
    headers: Mapping[str, Any] | None = None,
    key: Any = None,
    **claims: Any,
) -> bytes:
    """Return a token that is valid for an hour in the year 2023; a claim that is None is left out."""
    now = 1_700_000_000
    every = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 3600, "iat": now, "roles": ["amq"], **claims}
    every = {name: value for name, value in every.items() if value is not None}
    more = dict(headers or {}) | ({} if id is None else {"kid": id})
    signed = jwt.encode(every, private_key(algorithm) if key is None else key, algorithm=algorithm, headers=more)
    return signed.encode()


def fresh_token(*, seconds: int = 3600, algorithm: str = "ES256", id: str = "1", role: str = "amq") -> str:
    """Return a token that is valid from now on."""
    now = int(time.time())
    return token(algorithm, id=id, exp=now + seconds, iat=now, roles=[role]).decode()
