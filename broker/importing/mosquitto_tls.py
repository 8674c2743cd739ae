"""The TLS of a mosquitto.conf's listener.

Its files are PEM files, and their names are taken over.  Whether they exist and the broker's user can read them is
unknown, so the acceptor is disabled until an operator enables it.  It is also disabled, and reported prominently, if
TLS was configured in another way, or client certificates cannot be checked: so no acceptor uses plain text by mistake.
"""

from __future__ import annotations

from typing import Final

from broker.importing.doors import shut
from broker.importing.draft import Draft
from broker.importing.mosquitto_file import Line, Section
from broker.importing.mosquitto_tables import TLS
from broker.importing.report import Outcome, Place

_READABLE: Final = (
    "it does not listen until you have checked that the broker's user can read the files, and set enabled = true"
)
_ENGINE: Final = "keys are PEM files: give certificate and key in the tls section"
_SHARED: Final = "TLS with keys shared in advance is not supported: give certificate and key in the tls section"

#: Settings of TLS that are not supported, and what to do.
_CULPRITS: Final = {
    "psk_hint": _SHARED,
    "tls_engine": _ENGINE,
    "tls_engine_kpass_sha1": _ENGINE,
    "tls_keyform": _ENGINE,
}

_VERSIONS: Final = {"tlsv1.3": ["1.3"], "tlsv1.2": ["1.2", "1.3"]}


def tls(draft: Draft, section: Section, what: str, name: str) -> None:
    """Put the TLS settings of a listener to its acceptor."""
    given = {line.name: line for line in section.lines if line.name in TLS}
    whole = _certificate(draft, given, what, name)
    asked = whole and section.truth("require_certificate")
    for setting, line in given.items():
        found = line.place(what)
        if setting in ("certfile", "keyfile"):
            continue
        if setting in _CULPRITS and line.word != "pem":
            shut(draft, found, name, _CULPRITS[setting])
        elif not whole:
            draft.report.left(found, "without certfile and keyfile it has no effect")
        elif setting == "ciphers":
            draft.put(found, ("acceptors", name, "tls", "ciphers"), line.value)
        elif setting == "tls_keyform":
            draft.report.add(found, Outcome.TAKEN)
        elif setting == "tls_version":
            _version(draft, line, found, name)
        elif setting == "require_certificate":
            _asked(draft, line, what, name, authorities=given.get("cafile"))
        elif setting == "crlfile" and asked:
            draft.put(found, ("acceptors", name, "tls", "crl"), line.value)
        elif setting != "cafile" or not asked:
            draft.report.left(found, "clients are asked for a certificate only with require_certificate and cafile")


def _certificate(draft: Draft, given: dict[str, Line], what: str, name: str) -> bool:
    """Put certificate and key; return whether both are given."""
    files = [given[setting] for setting in ("certfile", "keyfile") if setting in given]
    whole = len(files) == 2 and not any("${" in line.value for line in files)
    for line in files:
        if whole:
            key = {"certfile": "certificate", "keyfile": "key"}[line.name]
            draft.put(line.place(what), ("acceptors", name, "tls", key), line.value, change=_READABLE)
        else:
            shut(draft, line.place(what), name, "it used TLS: give certificate and key in the tls section")
    if files and not draft.has(("acceptors", name, "enabled")):
        draft.put(files[0].place(what), ("acceptors", name, "enabled"), False, quiet=True)
    return whole


def _asked(draft: Draft, line: Line, what: str, name: str, *, authorities: Line | None) -> None:
    key = ("acceptors", name, "tls")
    found = line.place(what)
    if not line.truth:
        draft.report.add(found, Outcome.TAKEN)
        return
    draft.put(found, (*key, "need-client-auth"), True)
    if authorities is not None and "${" not in authorities.value:
        draft.put(authorities.place(what), (*key, "client-ca"), authorities.value)
    else:
        shut(draft, found, name, "give the authorities of its clients' certificates, a PEM file, as client-ca")
        draft.put(found, (*key, "client-ca"), f"/etc/bartleby/{name}-clients.pem", quiet=True)


def _version(draft: Draft, line: Line, found: Place, name: str) -> None:
    versions = _VERSIONS.get(line.word)
    if versions is None:
        draft.report.left(found, "only TLS 1.2 and 1.3 are supported: older versions are broken")
    else:
        draft.put(found, ("acceptors", name, "tls", "versions"), versions)
