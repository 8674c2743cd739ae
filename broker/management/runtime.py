"""The files in the data directory that lead the command line to the running broker: `broker.json` and the token.

Both are replaced as a whole and readable only by their owner.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from store.files import lacking

RUNTIME_FILE: Final = "broker.json"
TOKEN_FILE: Final = "management.token"

#: The header in which the command line names the account that runs it, percent-encoded.
OPERATOR_HEADER: Final = "Bartleby-Operator"

#: Bytes of randomness in a token: as many as an unguessable key has.
TOKEN_BYTES: Final = 32

#: Bytes read of either file: far more than a broker writes.
FILE_BYTES_MAX: Final = 64 << 10


class NotRunning(Exception):
    """No broker is known to run on this data directory; the text says why."""


@dataclass(frozen=True, slots=True)
class Listening:
    """One address that an acceptor listens on, with the actual port.  `certificate`: the file, if it uses TLS."""

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
    """The contents of `broker.json`: process id, start (ms since the epoch), where it listens."""

    pid: int
    started: int
    listening: tuple[Listening, ...]

    @property
    def alive(self) -> bool:
        """Whether a process with that id runs on this machine.  May be wrong in another container than the broker's."""
        try:
            status = _read(Path(f"/proc/{self.pid}/stat"))
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] not in "ZX"  # killed, but not reaped by its parent yet

    @property
    def management(self) -> tuple[str, str] | None:
        """The URL of an HTTP acceptor from this machine, and its certificate's file if it uses TLS.

        One without TLS is preferred.  None if there is no HTTP acceptor.
        """
        found = sorted((each for each in self.listening if each.protocol == "http"), key=lambda each: each.certificate)
        for listening in found:
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listening.host, listening.host)
            scheme = "https" if listening.certificate else "http"
            return f"{scheme}://{Listening('', '', host, listening.port)}", listening.certificate
        return None


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner can read.  Raises OSError, always with the file's name.

    On a full disk what a killed broker left is overwritten where it lies, which needs no room: a broker that cannot
    start there could not be drained either.
    """
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        new.touch(mode=0o600, exist_ok=False)
        new.write_text(text, "utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        if not lacking(error) or not path.exists():
            raise OSError(error.errno, error.strerror, str(path)) from error
        path.chmod(0o600)
        with path.open("r+", encoding="utf-8") as file:
            file.write(text)
            file.truncate()


def write_runtime_file(directory: Path, *, pid: int, started: int, listening: Iterable[Listening]) -> None:
    """Record that a broker runs on this data directory and where it listens.  Raises OSError."""
    content = asdict(Runtime(pid, started, tuple(listening)))
    write_private(directory / RUNTIME_FILE, json.dumps(content, indent=2) + "\n")


def read_runtime_file(directory: Path) -> Runtime:
    """What the broker on this data directory last wrote; it may have ended (`alive`).  Raises NotRunning, OSError."""
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
    """Remove `broker.json` and the token when the broker ends.  Raises OSError."""
    (directory / RUNTIME_FILE).unlink(missing_ok=True)
    (directory / TOKEN_FILE).unlink(missing_ok=True)


def create_token(directory: Path) -> str:
    """Create a token for the management API, and write it to a file for the command line.  Raises OSError."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    write_private(directory / TOKEN_FILE, token + "\n")
    return token


def read_token(directory: Path) -> str:
    """The token of the broker on this data directory.  Raises OSError."""
    return _read(directory / TOKEN_FILE).strip()


def _read(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(FILE_BYTES_MAX)
