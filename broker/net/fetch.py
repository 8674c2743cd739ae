"""Fetches a small document: the keys of the issuer of tokens.  Blocks, so it needs a thread.

It requires verified TLS or this machine, follows no redirects, and limits the bytes and the total time.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

#: Seconds without a byte, and milliseconds in total.
SILENCE_SECONDS_MAX: Final = 5.0
FETCH_MS_MAX: Final = 10_000

_CHUNK_BYTES: Final = 16 << 10


class _NoRedirection(HTTPRedirectHandler):
    """Refuses redirects: only the configuration decides where keys come from."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def fetch(url: str, ca_file: Path | None, *, bytes_max: int, now: Callable[[], int]) -> bytes:
    """The content of a URL, by the authorities in a file or the system's; `now` is the monotonic time in ms.

    Raises OSError, ValueError.
    """
    context = ssl.create_default_context(cafile=ca_file)
    opener = build_opener(HTTPSHandler(context=context), _NoRedirection())
    begun = now()
    try:
        with opener.open(Request(url, headers={"Accept": "application/json"}), timeout=SILENCE_SECONDS_MAX) as answer:
            assert isinstance(answer, HTTPResponse)
            return _read(answer, url, bytes_max, lambda: now() - begun > FETCH_MS_MAX)
    except HTTPError as error:
        error.close()
        raise OSError(f"{url}: HTTP status {error.code}") from None
    except HTTPException as error:
        raise OSError(f"{url}: {type(error).__name__}") from None
    except OSError as error:
        raise OSError(f"{url}: {getattr(error, 'reason', error)}") from None


def _read(answer: HTTPResponse, url: str, bytes_max: int, late: Callable[[], bool]) -> bytes:
    content = b""
    while chunk := answer.read1(_CHUNK_BYTES):
        content += chunk
        if len(content) > bytes_max:
            raise ValueError(f"{url}: the answer has more than {bytes_max} bytes")
        if late():
            raise ValueError(f"{url}: it took more than {FETCH_MS_MAX} ms")
    return content
