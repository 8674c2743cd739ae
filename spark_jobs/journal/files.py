"""Where journals are: the only module of this package that opens files.

A location is an absolute local path, or the URI of anything that pyarrow or fsspec opens, such as
`s3://bucket/journal`.  Settings that pyarrow accepts in a URI follow a `?` and apply to everything below it:
`s3://bucket/journal?region=eu-west-1`.  Credentials come from the environment of the reading process (AWS_ACCESS_KEY_ID
and so on, or the machine's role), never from a location: locations are shown in reports and passed between processes.
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

#: Hadoop's names for a store, and pyarrow's name for the same one.
_HADOOP_NAMES: Final = {"s3a": "s3", "s3n": "s3"}

_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*")

#: Words in the names of settings that are secret.
_SECRET_WORDS: Final = ("key", "password", "secret", "token")

#: Maximum number of file systems kept open: one for each store with its settings.
_OPEN_MAX: Final = 64


class BadLocation(ValueError):
    """A location that this installation cannot open; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry of a directory.  `size` is in bytes, 0 for a directory."""

    name: str
    size: int
    directory: bool


# -- names -------------------------------------------------------------------------------------------------------------


def locations(paths: str) -> list[str]:
    """The locations in a comma-separated list.

    A comma within a location is written %2C, which requires a URI: use `file:` for a local path.  Raises BadLocation.
    """
    return [location(path.strip()) for path in paths.split(",") if path.strip()]


def location(path: str) -> str:
    """A path or URI as a location.  Raises BadLocation."""
    if path.startswith("file:"):
        local = unquote(path.removeprefix("file:").removeprefix("//").removeprefix("localhost"))
        if not local.startswith("/"):
            raise BadLocation(f"{path}: a file: URI needs an absolute path, as in file:///var/lib/bartleby")
        return os.path.abspath(local)
    scheme, is_uri, rest = path.partition("://")
    if not is_uri or not _SCHEME.fullmatch(scheme):
        return os.path.abspath(path)
    try:
        parts = urlsplit(path)
    except ValueError:  # an incomplete IPv6 address
        raise BadLocation(f"{path}: this is not a valid URI") from None
    if _tells_secrets(parts):
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
        raise BadLocation(f"{shown}: a URI must not contain credentials; set them in the environment")
    below, mark, settings = rest.partition("?")
    store, _, names = below.partition("/")
    name = scheme.lower()
    whole = "/".join((store, *filter(None, names.split("/"))))
    return f"{_HADOOP_NAMES.get(name, name)}://{whole}{mark}{settings}"


def _tells_secrets(parts: SplitResult) -> bool:
    """Whether a URI has a password or a secret setting.  A user alone may be a container's name (abfs:)."""
    user, at, _ = parts.netloc.rpartition("@")
    names = [name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    return bool(at and ":" in user) or any(word in name for name in names for word in _SECRET_WORDS)


def is_local(place: str) -> bool:
    """Whether a location is a path on this machine."""
    return place.startswith("/")


def join(directory: str, name: str) -> str:
    """The location of an entry of a directory."""
    if is_local(directory):
        return os.path.join(directory, name)
    path, mark, settings = directory.partition("?")
    return f"{path}/{name}{mark}{settings}"


def name_of(place: str) -> str:
    """The last part of a location."""
    path = place if is_local(place) else place.partition("?")[0]
    return path.rpartition("/")[2]


def parent_of(place: str) -> str:
    """The location of the directory that contains a location."""
    if is_local(place):
        return os.path.dirname(place)
    path, mark, settings = place.partition("?")
    return f"{path.rpartition('/')[0]}{mark}{settings}"


# -- contents ----------------------------------------------------------------------------------------------------------


def list_dir(place: str) -> list[Found]:
    """The contents of a directory, by name.  Raises OSError (FileNotFoundError if it does not exist), BadLocation."""
    found = _list_local(place) if is_local(place) else _list_remote(place)
    return sorted(found, key=lambda each: each.name)


def _list_local(place: str) -> list[Found]:
    found = []
    with os.scandir(place) as entries:
        for entry in entries:
            try:
                directory = entry.is_dir()
                found.append(Found(entry.name, 0 if directory else entry.stat().st_size, directory))
            except FileNotFoundError:  # it was removed meanwhile
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
    """Keep a local file open until the stack is closed.  Returns the path where processes of the same user can read it.

    Raises OSError.
    """
    handle = os.open(place, os.O_RDONLY)
    until.callback(os.close, handle)
    return f"/proc/{os.getpid()}/fd/{handle}"


def read_open(place: str, nbytes: int | None = None) -> bytes | None:
    """The bytes of a file that is or was kept open; None if this process cannot read it."""
    try:
        return read(place, nbytes) if os.path.isfile(place) else None
    except OSError:
        return None


def room_for(files: int) -> int:
    """Raise the limit of open files of this process to this number, if permitted.  Returns the resulting limit."""
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
    """A file system, and its URI's path in it: one of pyarrow's own, otherwise one of fsspec's."""
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
        raise BadLocation(f"{store}: neither pyarrow nor fsspec can open {scheme}: on this machine: {error}") from error


def _from_uri(store: str) -> tuple[Any, str]:
    files, root = fs.FileSystem.from_uri(store)
    return files, root
