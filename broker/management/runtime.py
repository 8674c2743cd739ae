"""Files in the data directory by which the command line finds the running broker: `broker.json` and the token.

Both are replaced whole and readable by their owner only.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

RUNTIME_FILE: Final = "broker.json"
TOKEN_FILE: Final = "management.token"

#: The header in which the command line says whose account it was run by, percent-encoded.
OPERATOR_HEADER: Final = "Bartleby-Operator"

#: Bytes of randomness in a token: as many as a key that nobody guesses.
TOKEN_BYTES: Final = 32

#: Bytes of either file that are read: far more than a broker writes.
FILE_BYTES_MAX: Final = 64 << 10


class NotRunning(Exception):
    """No broker is known to run on this data directory; the text says what was looked at."""


@dataclass(frozen=True, slots=True)
class Listening:
    """One address that an acceptor listens on; the port is the real one.  `certificate`: the file, if it speaks TLS."""

    acceptor: str
    protocol: str
    host: str
    port: int
    certificate: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A broker that wrote its file: process id, start (ms since the epoch), where it listens."""

    pid: int
    started: int
    listening: tuple[Listening, ...]

    @property
    def alive(self) -> bool:
        """Whether a process of that id runs here.  In another container than the broker's this may be wrong."""
        try:
            status = _read(Path(f"/proc/{self.pid}/stat"))
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] not in "ZX"  # killed, and its parent has not looked yet

    @property
    def management(self) -> tuple[str, str] | None:
        """Where an HTTP acceptor can be reached from this machine, and its certificate's file if it speaks TLS.

        One without TLS is preferred.  None if there is no HTTP acceptor.
        """
        found = sorted((each for each in self.listening if each.protocol == "http"), key=lambda each: each.certificate)
        for listening in found:
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listening.host, listening.host)
            scheme = "https" if listening.certificate else "http"
            return f"{scheme}://{Listening('', '', host, listening.port)}", listening.certificate
        return None


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner can read.  Raises OSError, always with the file's name."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600, exist_ok=False)
    try:
        new.write_text(text, "utf-8")
    except OSError as error:
        new.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
    new.replace(path)


def write_runtime_file(directory: Path, *, pid: int, started: int, listening: Iterable[Listening]) -> None:
    """Say that a broker runs on this data directory and where it listens.  Raises OSError."""
    content = asdict(Runtime(pid, started, tuple(listening)))
    write_private(directory / RUNTIME_FILE, json.dumps(content, indent=2) + "\n")


def read_runtime_file(directory: Path) -> Runtime:
    """What the broker on this data directory said last; it may be gone since (`alive`).  Raises NotRunning, OSError."""
    path = directory / RUNTIME_FILE
    try:
        content = json.loads(_read(path))
        return Runtime(
            int(content["pid"]),
            int(content["started"]),
            tuple(
                Listening(x["acceptor"], x["protocol"], x["host"], int(x["port"]), str(x.get("certificate", "")))
                for x in content["listening"]
            ),
        )
    except FileNotFoundError:
        raise NotRunning(f"no broker runs on {directory}: there is no {RUNTIME_FILE}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise NotRunning(f"{path} cannot be read: {error}") from None


def remove_runtime_file(directory: Path) -> None:
    """The broker is gone, and its token with it.  Raises OSError."""
    (directory / RUNTIME_FILE).unlink(missing_ok=True)
    (directory / TOKEN_FILE).unlink(missing_ok=True)


def create_token(directory: Path) -> str:
    """A new token for the management API, also in a file for the command line.  Raises OSError."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    write_private(directory / TOKEN_FILE, token + "\n")
    return token


def read_token(directory: Path) -> str:
    """The token of the broker on this data directory.  Raises OSError."""
    return _read(directory / TOKEN_FILE).strip()


def _read(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(FILE_BYTES_MAX)
