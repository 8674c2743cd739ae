"""Where journals lie: the only place of this package that opens files.

A location is an absolute local path, or the URI of anything that pyarrow or fsspec opens, such as
`s3://bucket/journal`.  Settings that pyarrow takes from a URI stand behind a `?` and hold for everything below it:
`s3://bucket/journal?region=eu-west-1`.  Credentials come from the environment of whoever reads (AWS_ACCESS_KEY_ID and
so on, or the machine's role), never from a location: locations are shown in reports and handed from process to process.
"""

from __future__ import annotations

import os
import re
import resource
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

#: Names under which the same store is known to Hadoop, and what pyarrow calls it.
_HADOOP_NAMES: Final = {"s3a": "s3", "s3n": "s3"}

_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*")

#: What settings are called that nobody should see.
_SECRET_WORDS: Final = ("key", "password", "secret", "token")

#: File systems that are kept open: one for each store and its settings.
_OPEN_MAX: Final = 64


class BadLocation(ValueError):
    """A location that cannot be opened by this installation; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """A name in a directory.  `size` is in bytes, 0 for a directory."""

    name: str
    size: int
    directory: bool


# -- names -------------------------------------------------------------------------------------------------------------


def locations(paths: str) -> list[str]:
    """The locations in a list with commas.  A comma within one is written %2C, and so `file:` stands before it.

    Raises BadLocation.
    """
    return [location(path.strip()) for path in paths.split(",") if path.strip()]


def location(path: str) -> str:
    """A path or URI as a location.  Raises BadLocation."""
    if path.startswith("file:"):
        local = unquote(path.removeprefix("file:").removeprefix("//").removeprefix("localhost"))
        if not local.startswith("/"):
            raise BadLocation(f"{path}: a file: URI has an absolute path, as in file:///var/lib/bartleby")
        return os.path.abspath(local)
    scheme, is_uri, rest = path.partition("://")
    if not is_uri or not _SCHEME.fullmatch(scheme):
        return os.path.abspath(path)
    try:
        parts = urlsplit(path)
    except ValueError:  # half an IPv6 address
        raise BadLocation(f"{path}: this is no URI") from None
    if _tells_secrets(parts):
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
        raise BadLocation(f"{shown}: a URI must not carry credentials; put them into the environment")
    below, mark, settings = rest.partition("?")
    store, _, names = below.partition("/")
    name = scheme.lower()
    whole = "/".join((store, *filter(None, names.split("/"))))
    return f"{_HADOOP_NAMES.get(name, name)}://{whole}{mark}{settings}"


def _tells_secrets(parts: SplitResult) -> bool:
    """Whether a URI has a password, or a setting that is one.  A user alone may be a container's name (abfs:)."""
    user, at, _ = parts.netloc.rpartition("@")
    names = [name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    return bool(at and ":" in user) or any(word in name for name in names for word in _SECRET_WORDS)


def is_local(place: str) -> bool:
    """Whether a location is a path of this machine."""
    return place.startswith("/")


def join(directory: str, name: str) -> str:
    """The location of a name in a directory."""
    if is_local(directory):
        return os.path.join(directory, name)
    path, mark, settings = directory.partition("?")
    return f"{path}/{name}{mark}{settings}"


def name_of(place: str) -> str:
    """The last part of a location."""
    path = place if is_local(place) else place.partition("?")[0]
    return path.rpartition("/")[2]


def parent_of(place: str) -> str:
    """The location of the directory that a location is in."""
    if is_local(place):
        return os.path.dirname(place)
    path, mark, settings = place.partition("?")
    return f"{path.rpartition('/')[0]}{mark}{settings}"


# -- contents ----------------------------------------------------------------------------------------------------------


def list_dir(place: str) -> list[Found]:
    """What is in a directory, by name.  Raises OSError (FileNotFoundError if it is not there), BadLocation."""
    found = _list_local(place) if is_local(place) else _list_remote(place)
    return sorted(found, key=lambda each: each.name)


def _list_local(place: str) -> list[Found]:
    found = []
    with os.scandir(place) as entries:
        for entry in entries:
            try:
                directory = entry.is_dir()
                found.append(Found(entry.name, 0 if directory else entry.stat().st_size, directory))
            except FileNotFoundError:  # it went since
                continue
    return found


def _list_remote(place: str) -> list[Found]:
    files, path = _open(place)
    infos = files.get_file_info(fs.FileSelector(path))
    directories = {info.path for info in infos if info.type == fs.FileType.Directory}
    return [Found(info.base_name, info.size or 0, info.path in directories) for info in infos]


def read(place: str, nbytes: int | None = None) -> bytes:
    """The bytes of a file, or its first `nbytes`.  Raises OSError (FileNotFoundError), BadLocation."""
    if is_local(place):
        with open(place, "rb") as file:
            return file.read(-1 if nbytes is None else nbytes)
    files, path = _open(place)
    with files.open_input_file(path) as remote:
        content: bytes = remote.read(nbytes)
        return content


def keep_open(place: str, until: ExitStack) -> str:
    """Open a local file until the stack is closed.  Returns where processes of the same user read it meanwhile.

    Raises OSError.
    """
    handle = os.open(place, os.O_RDONLY)
    until.callback(os.close, handle)
    return f"/proc/{os.getpid()}/fd/{handle}"


def read_open(place: str, nbytes: int | None = None) -> bytes | None:
    """The bytes of a file that is, or was, kept open, None if this process cannot read it."""
    try:
        return read(place, nbytes) if os.path.isfile(place) else None
    except OSError:
        return None


def room_for(files: int) -> int:
    """Let this process have so many open files, if it may.  Returns how many it can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return files
    soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def _open(place: str) -> tuple[Any, str]:
    """The file system of a location, and the path in it."""
    path, mark, settings = place.partition("?")
    scheme, _, rest = path.partition("://")
    store, _, below = rest.partition("/")
    files, root = _file_system(f"{scheme}://{store}{mark}{settings}")
    return files, f"{root.rstrip('/')}/{unquote(below)}"


@lru_cache(_OPEN_MAX)
def _file_system(store: str) -> tuple[Any, str]:
    """A file system, and the path of its URI in it: pyarrow's own, or else one of fsspec's."""
    try:
        return _from_uri(store)
    except pa.ArrowInvalid as invalid:
        if "Unrecognized filesystem" not in str(invalid):
            raise BadLocation(f"{store}: {invalid}") from invalid
    except ImportError as error:
        raise BadLocation(f"{store}: {error}") from error
    try:
        return _from_uri(f"fsspec+{store}")
    except (ImportError, ValueError) as error:
        scheme = store.partition(":")[0]
        raise BadLocation(f"{store}: neither pyarrow nor fsspec opens {scheme}: here: {error}") from error


def _from_uri(store: str) -> tuple[Any, str]:
    files, root = fs.FileSystem.from_uri(store)
    return files, root
