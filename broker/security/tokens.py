"""Bearer tokens: JWTs (RFC 7519) of another issuer, and the checks before one is accepted.

1. The signature is verified with a public key of the issuer, by an algorithm that is allowed and that the key is for.
   Symmetric keys are not accepted: a key that is published must not be able to sign.
2. A header that must be understood (`crit`) is refused, and no key is taken from a token, nor from a URL in it.
3. Issuer and audience are as configured; the token is already valid, has not expired, and has an expiry.
4. The user and its roles are in the claims that the configuration names.

Time is passed in, so that the checks can be tested.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.security.users_file import check_user_name

#: Bytes of a token: the most that an MQTT password may have.  What a client may send before its login is already
#: limited by limits.connect-bytes-max.
TOKEN_BYTES_MAX: Final = 64 << 10

#: Bytes of a key set, and its number of keys: issuers have a handful, old and new.
KEYS_BYTES_MAX: Final = 256 << 10
KEYS_MAX: Final = 64

#: The fewest bits of an RSA key: shorter ones can be broken.
RSA_BITS_MIN: Final = 2048

#: Roles of a token, and the latest time in one: the year 9999.
ROLES_MAX: Final = 1_000
_TIME_MAX: Final = 253_402_300_800

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

#: The algorithms for each kind of key (kty, crv).
_FITTING: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}


class BadToken(Exception):
    """A token is not accepted; the text is for the log."""


class UnknownKey(BadToken):
    """A token names a key that is not in the set: the issuer may have a new one."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The issuer whose tokens are accepted, and how to read them.  `leeway_ms`: how far the clocks may differ."""

    issuer: str
    audience: str
    algorithms: Sequence[str] = ALGORITHMS
    leeway_ms: int = 30_000
    user_claim: str = "sub"
    roles_claim: str = "roles"


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithms that it is for."""

    key: Any
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bearer:
    """The user and roles of an accepted token, its expiry (ms since the epoch), and the rules and key that apply."""

    user: str
    roles: frozenset[str]
    expires: int
    rules: TokenRules
    key: Key


class KeySet:
    """The issuer's public keys (JWKS, RFC 7517).  Raises ValueError if it is not a key set or has no usable key."""

    def __init__(self, content: bytes) -> None:
        if len(content) > KEYS_BYTES_MAX:
            raise ValueError(f"a key set has at most {KEYS_BYTES_MAX} bytes")
        try:
            listed = json.loads(content)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError('it is not a key set: {"keys": [...]} in JSON') from None
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise ValueError(f"a key set has at most {KEYS_MAX} keys")
        found = [(each.get("kid"), key) for each in listed if isinstance(each, dict) and (key := _key(each))]
        if not found:
            raise ValueError("it has no public key that can verify a signature")
        self.keys: dict[str | None, Key] = dict(found)
        self.only = found[0][1] if len(found) == 1 else None

    def find(self, id: object) -> Key:
        """The key that a token names; if it names none, the only key.  Raises BadToken, UnknownKey."""
        if id is None and self.only is not None:
            return self.only
        if not isinstance(id, str):
            raise BadToken("it does not say which key signed it")
        key = self.keys.get(id)
        if key is None:
            raise UnknownKey("its key is not in the key set")
        return key


def _key(entry: Mapping[str, Any]) -> Key | None:
    """A key of a set; None if it is not for signatures, not public, or too weak."""
    fitting = _FITTING.get((str(entry.get("kty")), str(entry.get("crv", ""))), ())
    said = entry.get("alg")
    algorithms = fitting if said is None else tuple(each for each in fitting if each == said)
    if not algorithms or entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    import jwt  # imported here: it is large, and only needed with tokens

    try:
        key = jwt.PyJWK(dict(entry), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if entry["kty"] == "RSA" and key.key_size < RSA_BITS_MIN:
        return None
    return Key(key, algorithms)


def looks_like_token(text: bytes) -> bool:
    """Whether a password is a token: three parts, the first of which begins like JSON in base64."""
    return text.startswith(b"eyJ") and text.count(b".") == 2


class Tokens:
    """Checks tokens.  `keys` returns the present key set, None while there is none; `now` returns the time in ms."""

    def __init__(self, rules: TokenRules, keys: Callable[[], KeySet | None], now: Callable[[], int]) -> None:
        self.rules = rules
        self._keys = keys
        self._now = now

    @property
    def present(self) -> KeySet | None:
        """The present key set."""
        return self._keys()

    def believes(self, bearer: Bearer) -> bool:
        """Whether a token accepted before still would be, apart from its expiry: same rules, and its key still there.

        While there are no keys at all, it is.
        """
        keys = self.present
        return bearer.rules == self.rules and (keys is None or bearer.key in keys.keys.values())

    def check(self, token: bytes) -> Bearer:
        """Check a token and return its user.  Raises BadToken, UnknownKey."""
        claims, key = self._claims(token)
        rules = self.rules
        now, leeway = self._now() / 1000, rules.leeway_ms / 1000
        if claims.get("iss") != rules.issuer:
            raise BadToken("it is from another issuer")
        audience = claims.get("aud")
        if rules.audience not in (audience if isinstance(audience, list) else [audience]):
            raise BadToken("it is for another audience")
        expires = _time(claims, "exp")
        if expires is None:
            raise BadToken("it never expires")
        if expires + leeway <= now:
            raise BadToken("it has expired")
        for name in ("nbf", "iat"):
            begins = _time(claims, name)
            if begins is not None and begins - leeway > now:
                raise BadToken("it is not valid yet")
        return Bearer(self._user(claims), self._roles(claims), int((expires + leeway) * 1000), rules, key)

    def _claims(self, token: bytes) -> tuple[Mapping[str, Any], Key]:
        if len(token) > TOKEN_BYTES_MAX:
            raise BadToken(f"it has more than {TOKEN_BYTES_MAX} bytes")
        keys = self._keys()
        if keys is None:
            raise UnknownKey("there is no key set yet")
        import jwt  # as above

        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in self.rules.algorithms:
                raise BadToken("its algorithm is not allowed")
            if "crit" in header or "b64" in header:
                raise BadToken("its header has extensions")
            key = keys.find(header.get("kid"))
            if algorithm not in key.algorithms:
                raise BadToken("its algorithm does not match its key")
            payload = jwt.PyJWS(algorithms=[algorithm]).decode(token, key.key, algorithms=[algorithm])
            claims = json.loads(payload)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise BadToken("it is not a token, or its signature is wrong") from None
        if not isinstance(claims, dict):
            raise BadToken("it has no claims")
        return claims, key

    def _user(self, claims: Mapping[str, Any]) -> str:
        user = _claim(claims, self.rules.user_claim)
        try:
            if not isinstance(user, str):
                raise ValueError
            check_user_name(user)
        except ValueError:
            raise BadToken(f"its claim {self.rules.user_claim} is not a user name") from None
        return user

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """The roles: a list, or a space-separated text like `scope`; none without the claim."""
        roles = _claim(claims, self.rules.roles_claim)
        named = roles.split() if isinstance(roles, str) else roles if isinstance(roles, list) else []
        return frozenset(role for role in named[:ROLES_MAX] if isinstance(role, str))


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, or by its path: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Seconds since the epoch; None if the claim is missing.  Raises BadToken."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadToken(f"its claim {name} is not a time")
    return min(max(float(value), 0.0), float(_TIME_MAX))
