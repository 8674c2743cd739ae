"""Restrictions of the old broker's acceptors: TLS, client certificates, mechanisms, no auto-start.

Following the report must never admit more clients than before.  Settings that Bartleby has too are taken over, and an
acceptor with TLS does not listen before its files are there.  Settings that it lacks are reported under their own
heading, and their acceptor does not listen either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from broker.importing.draft import Draft
from broker.importing.report import Outcome, Place, place
from broker.importing.xml import Element

TLS_MISSING: Final = (
    "put a certificate and a key as PEM files where its tls section says, docs/security.md, then set enabled = true:"
    " until then it does not listen, rather than listen in plain text"
)
_CLIENTS: Final = "client-ca names the authorities of clients' certificates, a PEM file: Java's trust store is not read"
_SHUT: Final = "the acceptor stays disabled, so that it does not admit more clients than before"

#: Parameters of TLS with a counterpart in the tls section.
_OF_TLS: Final = frozenset(
    {
        "crlPath",
        "enabledCipherSuites",
        "enabledProtocols",
        "needClientAuth",
        "sniHost",
        "sslEnabled",
        "wantClientAuth",
    }
)

#: Parameters of TLS that do not affect which clients may connect.
STORES: Final = re.compile("^(keyStore|trustStore|trustAll|ssl|keyManager|forceSSLParameters)")
STORE_LEFT: Final = "Java's key stores are not read: certificates are PEM files in the tls section, docs/security.md"

#: Restricting parameters without a counterpart, and what to do.
_STRICTER: Final[dict[str, str]] = {
    "verifyHost": "a certificate is not compared with the client's address: certificate-users maps it to a user",
    "securityDomain": "there is one users file for all acceptors: give these users their roles, docs/security.md",
    "trustManagerFactoryPlugin": "only client-ca decides which certificates are valid",
    "crcOptions": "revoked certificates are in a list: give it as crl in the tls section",
    "ocspResponderURL": "revoked certificates are in a list: give it as crl in the tls section",
    "kerb5": "Kerberos is not supported: its clients log in with a certificate, a token or SCRAM",
}
_NAMES: Final = re.compile(r"[A-Za-z0-9-]+(\\?\.[A-Za-z0-9-]+)*")
_SUITE: Final = re.compile("TLS_(ECDHE_RSA|ECDHE_ECDSA)_WITH_(AES_(128|256)_GCM_SHA(256|384)|CHACHA20_POLY1305_SHA256)")
_SUITE_1_3: Final = re.compile("TLS_(AES|CHACHA20)_.*")


def guard(draft: Draft, element: Element, what: str, name: str, given: Mapping[str, str], *, tls: bool) -> set[str]:
    """Put the restrictions of an acceptor; return the parameters handled."""
    if tls:
        _tls(draft, element, what, name, given)
    done: set[str] = set()
    for parameter, text in given.items():
        found = place(element, f"{what}: {parameter}", text)
        if parameter in _OF_TLS:
            if not tls and parameter != "sslEnabled":
                draft.report.left(found, "it only has an effect with TLS, which this acceptor does not use")
        elif parameter in _STRICTER and text.lower() != "false":
            shut(draft, found, name, _STRICTER[parameter])
        elif parameter == "saslMechanisms" and "PLAIN" not in _listed(text):
            shut(draft, found, name, "PLAIN and SCRAM are offered wherever there are users with passwords")
        elif parameter == "autoStart" and text.lower() == "false":
            change = "as in the file, it does not listen until an operator enables it: set enabled = true"
            draft.put(found, ("acceptors", name, "enabled"), False, change=change)
        elif parameter in _STRICTER or STORES.match(parameter):
            draft.report.left(found, STORE_LEFT)
        else:
            continue
        done.add(parameter)
    return done


def _tls(draft: Draft, element: Element, what: str, name: str, given: Mapping[str, str]) -> None:
    key = ("acceptors", name, "tls")
    whole = place(element, f"{what}: {'sslEnabled' if 'sslEnabled' in given else 'ssl'}", given.get("sslEnabled", ""))
    draft.put(whole, ("acceptors", name, "enabled"), False, change=TLS_MISSING)
    draft.put(whole, (*key, "certificate"), f"/etc/bartleby/{name}.pem", quiet=True)
    draft.put(whole, (*key, "key"), f"/etc/bartleby/{name}.key", quiet=True)
    asked = False
    for parameter, setting in (("needClientAuth", "need-client-auth"), ("wantClientAuth", "want-client-auth")):
        if parameter in given:
            found = place(element, f"{what}: {parameter}", given[parameter])
            draft.put_text(found, (*key, setting), given[parameter], change=_CLIENTS)
            asked = asked or given[parameter].lower() == "true"
    if asked:
        draft.put(whole, (*key, "client-ca"), f"/etc/bartleby/{name}-clients.pem", quiet=True)
    for parameter in given.keys() & {"enabledProtocols", "enabledCipherSuites", "crlPath", "sniHost"}:
        found, text = place(element, f"{what}: {parameter}", given[parameter]), given[parameter]
        if parameter == "enabledProtocols":
            _versions(draft, found, name, text)
        elif parameter == "enabledCipherSuites":
            _suites(draft, found, name, text)
        elif parameter == "sniHost":
            _hosts(draft, found, name, text)
        elif asked:
            draft.put(
                found, (*key, "crl"), text, change="it must be in PEM, and issued by the authorities in client-ca"
            )
        else:
            draft.report.left(found, "clients are not asked for a certificate")


def _versions(draft: Draft, found: Place, name: str, text: str) -> None:
    versions = [version for version in ("1.2", "1.3") if f"TLSV{version}" in _listed(text)]
    if versions:
        draft.put(found, ("acceptors", name, "tls", "versions"), versions, change="older versions are not supported")
    else:
        draft.report.left(found, "only TLS 1.2 and 1.3 are supported: older versions are broken")


def _suites(draft: Draft, found: Place, name: str, text: str) -> None:
    """Put the suites of TLS 1.2 under OpenSSL's names; those of 1.3 are all good, and cannot be chosen."""
    suites = [_openssl(suite) for suite in _listed(text) if _SUITE.fullmatch(suite)]
    key = ("acceptors", name, "tls")
    if suites:
        change = "suites of TLS 1.2 with forward secrecy and authenticated encryption; those of 1.3 cannot be chosen"
        draft.put(found, (*key, "ciphers"), ":".join(suites), change=change)
    elif any(_SUITE_1_3.fullmatch(suite) for suite in _listed(text)):
        draft.put(found, (*key, "versions"), ["1.3"], change="all of them are suites of TLS 1.3")
    else:
        draft.report.left(found, "only suites with forward secrecy and authenticated encryption are taken over")


def _openssl(suite: str) -> str:
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    words = cipher.removesuffix("_SHA256") if cipher.startswith("CHACHA20") else cipher.replace("AES_", "AES")
    return f"{exchange}_{words}".replace("_", "-")


def _hosts(draft: Draft, found: Place, name: str, text: str) -> None:
    """Put the names in Artemis's regular expression, if it only lists names."""
    names = text.split("|")
    if all(_NAMES.fullmatch(each) for each in names):
        plain = [each.replace("\\", "") for each in names]
        draft.put(found, ("acceptors", name, "tls", "sni-hosts"), plain, change="names instead of a regular expression")
    else:
        shut(draft, found, name, "write the names that it stands for into sni-hosts of the tls section")


def shut(draft: Draft, found: Place, name: str, why: str) -> None:
    """Report what kept clients away from an acceptor, and disable it until an operator enables it."""
    draft.report.add(found, Outcome.STRICTER, why=f"{why}; {_SHUT}")
    if not draft.has(("acceptors", name, "enabled")):
        draft.put(found, ("acceptors", name, "enabled"), False, quiet=True)


def _listed(text: str) -> list[str]:
    return [part.strip().upper() for part in text.split(",")]
