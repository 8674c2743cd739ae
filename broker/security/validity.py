"""How long certificates and revocation lists are valid: for warnings, as TLS checks only when a client connects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from store.counted import counted

#: Days before its expiry from which a certificate is worth a warning: automatic renewal should have happened (ACME
#: clients renew at a third of the lifetime, 30 days of 90), and there is time to renew by hand.
SOON_DAYS: Final = 21

_LIST_BEGIN: Final = b"-----BEGIN X509 CRL-----"
_LIST_END: Final = b"-----END X509 CRL-----"


@dataclass(frozen=True, slots=True)
class Span:
    """The period in which something is valid; `what` names it."""

    what: str
    begin: datetime
    end: datetime | None

    def doubt(self, now: datetime) -> str:
        """What is wrong with it now or soon; empty if nothing is."""
        if now < self.begin:
            return f"{self.what} is not valid before {_format_time(self.begin)}: check the clock, or the file"
        if self.end is None:
            return ""
        if now >= self.end:
            return f"{self.what} expired on {_format_time(self.end)}: renew it"
        left = self.end - now
        if left.days < SOON_DAYS:
            return f"{self.what} expires on {_format_time(self.end)}, in {counted(left.days, 'day')}: renew it"
        return ""


def certificates(path: Path) -> list[Span]:
    """The validity of the certificates in a PEM file.  Raises OSError; ValueError if it cannot be parsed."""
    return [
        Span(
            f"the certificate of {each.subject.rfc4514_string() or 'nobody'}",
            each.not_valid_before_utc,
            each.not_valid_after_utc,
        )
        for each in x509.load_pem_x509_certificates(path.read_bytes())
    ]


def first_end(path: Path) -> int:
    """When the first certificate of a PEM file expires, in ms since the epoch; 0 if it cannot be read."""
    try:
        ends = [span.end.timestamp() for span in certificates(path) if span.end is not None]
    except (OSError, ValueError):
        return 0
    return int(min(ends, default=0) * 1_000)


def revocation_lists(path: Path) -> list[Span]:
    """The validity of the revocation lists in a PEM file.  Raises OSError; ValueError if it cannot be parsed."""
    pieces = [piece.partition(_LIST_END)[0] for piece in path.read_bytes().split(_LIST_BEGIN)[1:]]
    lists = [x509.load_pem_x509_crl(_LIST_BEGIN + piece + _LIST_END + b"\n") for piece in pieces]
    return [
        Span(
            f"the revocation list of {each.issuer.rfc4514_string()}",
            each.last_update_utc,
            each.next_update_utc,
        )
        for each in lists
    ]


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
