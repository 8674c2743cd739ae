"""The running broker, over its HTTP acceptor: where it is, the key to it, and calls that fail in sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import click

from broker.cli.failure import CHECK_FAILED, DENIED, UNREACHABLE, USAGE, Failure
from broker.cli.settings import Command, broker_options, data_directory
from broker.management.runtime import NotRunning, Runtime, read_runtime_file, read_token

#: Seconds that an answer may take: a purge of a very long queue waits for the disk.
TIMEOUT_SECONDS: Final = 60

#: Bytes of an answer that are read: several of the largest pages.
ANSWER_BYTES_MAX: Final = 64 << 20

#: Queues asked for at a time: the largest page there is.
QUEUES_PER_CALL: Final = 1_000


def remote_options(command: Command) -> Command:
    """Where the running broker is: --data, --config, --url, --token-file."""
    for option in (
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="BARTLEBY_TOKEN_FILE",
            help="The file with the token.  [default: management.token in the data directory]",
        ),
        click.option(
            "--url",
            envvar="BARTLEBY_URL",
            help="The broker's HTTP acceptor, http://HOST:PORT.  [default: what the broker left in its data directory]",
        ),
        broker_options,
    ):
        command = option(command)
    return command


def queue_path(name: str) -> str:
    """The path of a queue, whatever its name holds."""
    return "/api/v1/queues/" + quote(name, safe="")


class Remote:
    """Calls to one broker."""

    def __init__(self, url: str, token: str, *, hint: str = "") -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._hint = hint
        self._opener: OpenerDirector = build_opener(ProxyHandler({}))

    def get(self, path: str, **parameters: str | int) -> Any:
        """The answer to a GET."""
        return self._call("GET", _with_query(path, parameters))

    def post(self, path: str, **parameters: str | int) -> Any:
        """The answer to a POST."""
        return self._call("POST", _with_query(path, parameters))

    def delete(self, path: str) -> Any:
        """The answer to a DELETE."""
        return self._call("DELETE", path)

    def queues(self, *, internal: bool = False) -> Iterator[dict[str, Any]]:
        """All queues, by name; with `internal` also the broker's own."""
        page, asked = 1, {"internal": "true"} if internal else {}
        while True:
            answer = self.get("/api/v1/queues", page=page, size=QUEUES_PER_CALL, **asked)
            yield from answer["queues"]
            if page * QUEUES_PER_CALL >= answer["total"]:
                return
            page += 1

    def _call(self, method: str, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        request = Request(self._url + path, method=method, headers=headers)  # http or https: `connect` sees to it
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return json.loads(response.read(ANSWER_BYTES_MAX))
        except HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(ANSWER_BYTES_MAX)) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Failure(UNREACHABLE, f"{self._url} cannot be reached: {reason}", *self._hints()) from None
        except ValueError:
            raise Failure(UNREACHABLE, f"{self._url} does not answer like a broker") from None

    def _hints(self) -> list[str]:
        return [self._hint] if self._hint else []

    def _refused(self, status: int, body: bytes) -> Failure:
        try:
            detail = str(json.loads(body)["detail"])
        except (ValueError, KeyError, TypeError):
            return Failure(UNREACHABLE, f"{self._url} does not answer like a broker: HTTP status {status}")
        if status in (401, 403):
            return Failure(DENIED, f"{self._url} denied it: {detail}")
        return Failure(USAGE if status == 400 else CHECK_FAILED, detail)


def _with_query(path: str, parameters: dict[str, str | int]) -> str:
    """The path with those parameters that are given."""
    query = urlencode({name: value for name, value in parameters.items() if value != ""})
    return f"{path}?{query}" if query else path


def connect(config: Path | None, data: Path | None, url: str | None, token_file: Path | None) -> Remote:
    """The running broker.  Without `url` and `token_file` both come from the data directory."""
    directory = None if url and token_file else data_directory(config, data)
    hint = ""
    if not url:
        assert directory is not None
        runtime = _runtime(directory)
        url = runtime.management_url
        if url is None:
            raise Failure(UNREACHABLE, "the broker has no HTTP acceptor: enable [acceptors.http]")
        if not runtime.alive:
            hint = f"process {runtime.pid}, which served {directory}, is gone: the broker seems to have been killed"
    elif urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise Failure(USAGE, f"--url {url}: give http://HOST:PORT")
    return Remote(url, _token(directory, token_file), hint=hint)


def _runtime(directory: Path) -> Runtime:
    try:
        return read_runtime_file(directory)
    except NotRunning as error:
        raise Failure(
            UNREACHABLE, str(error), "name the data directory with --data, or the broker with --url"
        ) from None
    except OSError as error:
        raise Failure(DENIED, f"{error.filename}: {error.strerror}", "run this as the broker's user") from None


def _token(directory: Path | None, token_file: Path | None) -> str:
    try:
        if token_file is not None:
            return token_file.read_text("utf-8").strip()
        assert directory is not None
        return read_token(directory)
    except (OSError, UnicodeDecodeError) as error:
        where = getattr(error, "filename", token_file)
        what = getattr(error, "strerror", "it is no text")
        raise Failure(DENIED, f"the token cannot be read: {where}: {what}", "run this as the broker's user") from None
