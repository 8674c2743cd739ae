"""Calls to the running broker's HTTP acceptor: how to find it, how to log in, and errors as sentences.

On the broker's own machine its owner needs no options: the address, token and certificate are in the data directory.
From elsewhere, commands need a URL and a user, whose password comes from a prompt or the environment and is sent over
TLS only, or a file with a token.
"""

from __future__ import annotations

import base64
import getpass
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from http.client import BadStatusLine, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import AbstractHTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

import click

from broker.cli.failure import CHECK_FAILED, DENIED, PARTIAL, UNREACHABLE, USAGE, Failure, is_interrupt
from broker.cli.output import output_option
from broker.cli.settings import broker_options, data_directory, together
from broker.management.runtime import OPERATOR_HEADER, NotRunning, Runtime, read_runtime_file, read_token

#: Seconds that an answer may take: deleting a very long queue waits for the disk.
TIMEOUT_SECONDS: Final = 60

#: Seconds for an answer whose time grows with the number of messages: as long as the broker works on one.
LONG_SECONDS: Final = 600

#: Bytes of an answer that are read: several of the largest pages.
ANSWER_BYTES_MAX: Final = 64 << 20

#: Entries per page of a list: the API's maximum.
THINGS_PER_CALL: Final = 1_000

#: A parameter of a query; omitted if empty.
Parameter = str | int

#: The environment variable with the user's password, for scripts.
PASSWORD_VARIABLE: Final = "BARTLEBY_PASSWORD"

_END: Final = "-----END CERTIFICATE-----\n"

#: The options that `remote_options` adds to --config and --data.
CALLING: Final = ("url", "ca_file", "user", "token_file")


#: The options to find the broker and log in.
remote_options: Final = together(
    broker_options,
    click.option(
        "--url",
        envvar="BARTLEBY_URL",
        help="The broker's HTTP acceptor, https://HOST:PORT.  [default: found in its data directory]",
    ),
    click.option(
        "--ca-file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="BARTLEBY_CA_FILE",
        help="Certificate authorities to trust, in PEM.  [default: the system's]",
    ),
    click.option(
        "--user",
        envvar="BARTLEBY_USER",
        help=f"Log in as this user; the password comes from a prompt or {PASSWORD_VARIABLE}.",
    ),
    click.option(
        "--token-file",
        type=click.Path(dir_okay=False, readable=False, path_type=Path),
        envvar="BARTLEBY_TOKEN_FILE",
        help="The file with the broker's token.  [default: management.token in the data directory]",
    ),
)

#: The options of a command that prints an answer of the broker.
call_options: Final = together(remote_options, output_option)


def queue_path(name: str) -> str:
    """The path of a queue, percent-encoded."""
    return path_of("queues", name)


def path_of(what: str, name: str, *below: str) -> str:
    """The percent-encoded path of a queue, address, divert and so on, and of the parts `below` it.

    Raises Failure if a name is empty.
    """
    parts = (what, name, *below)
    if not all(parts):
        raise Failure(USAGE, "the name is empty")
    return "/api/v1/" + "/".join(quote(_text(part), safe="") for part in parts)


def _text(value: str) -> str:
    """Check that a text can be encoded.  Raises Failure for bytes of the command line that are not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Failure(USAGE, f"{value}: it is not UTF-8") from None
    return value


class NotThere(Failure):
    """The broker answered 404: what was named does not exist."""


class TaskWaits(Failure):
    """A task is paused or ahead of its rate: repeat the call."""


class TaskEnded(Failure):
    """The task of a step was ended by someone other than its client."""


class _Https(HTTPSHandler):
    """Calls over TLS; without a context, the system's authorities are read when the first call needs them.

    Python's own handler reads them in any case, which takes longer than most commands over plain HTTP.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        AbstractHTTPHandler.__init__(self)
        self._given = context

    def https_open(self, request: Request) -> HTTPResponse:
        """See HTTPSHandler."""
        if self._given is None:
            self._given = ssl.create_default_context()
        return self.do_open(HTTPSConnection, request, context=self._given)


class Remote:
    """Calls to one broker."""

    def __init__(self, url: str, authorization: str, context: ssl.SSLContext | None = None, *, hint: str = "") -> None:
        self._url = url.rstrip("/")
        self._authorization = authorization
        self._hints = (hint,) if hint else ()
        #: Seconds that an answer may take.
        self.timeout_seconds: float = TIMEOUT_SECONDS
        self._opener: OpenerDirector = build_opener(ProxyHandler({}), _Https(context))

    def get(self, path: str, **parameters: Parameter) -> Any:
        """The answer to a GET."""
        return self._call("GET", _with_query(path, parameters))

    def get_bytes(self, path: str, **parameters: Parameter) -> bytes:
        """The answer to a GET that is not JSON."""
        return self._ask("GET", _with_query(path, parameters))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a POST."""
        return self._call("POST", path, None if body is None else _json(body))

    def send(self, path: str, body: bytes) -> Any:
        """The answer to a POST of JSON that is already encoded."""
        return self._call("POST", path, body)

    def delete(self, path: str, **parameters: Parameter) -> Any:
        """The answer to a DELETE."""
        return self._call("DELETE", _with_query(path, parameters))

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a PUT."""
        return self._call("PUT", path, _json(body))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a PATCH."""
        return self._call("PATCH", path, _json(body))

    def listed(self, what: str, **parameters: Parameter) -> Iterator[dict[str, Any]]:
        """All queues, addresses, diverts, connections and so on, fetched page by page."""
        after = ""
        while True:
            answer = self.get(f"/api/v1/{what}", limit=THINGS_PER_CALL, after=after, **parameters)
            yield from answer[what]
            if answer["next"] is None:
                return
            after = answer["next"]

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            return json.loads(self._ask(method, path, body))
        except ValueError:
            raise Failure(UNREACHABLE, f"{self._url} does not answer like a broker") from None

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Authorization": self._authorization, OPERATOR_HEADER: quote(_account())}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = Request(self._url + path, body, method=method, headers=headers)  # http or https: `connect` checks it
        try:
            with self._opener.open(request, timeout=self.timeout_seconds) as response:
                answer: bytes = response.read(ANSWER_BYTES_MAX)
                return answer
        except HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(ANSWER_BYTES_MAX)) from None
        except (OSError, HTTPException) as error:
            if isinstance(error, BadStatusLine) and not isinstance(error, OSError):  # the latter: it closed silently
                raise Failure(UNREACHABLE, f"{self._url} does not answer like a broker: not in HTTP") from None
            reason = getattr(error, "reason", error)
            reason = getattr(reason, "verify_message", None) or getattr(reason, "strerror", None) or reason
            raise Failure(UNREACHABLE, f"{self._url} cannot be reached: {reason}", *self._hints) from None

    def _refused(self, status: int, body: bytes) -> Failure:
        try:
            problem = json.loads(body)
            detail, code = str(problem["detail"]), problem.get("code")
        except (ValueError, KeyError, TypeError):
            return Failure(UNREACHABLE, f"{self._url} does not answer like a broker: HTTP status {status}")
        if status in (401, 403):
            return Failure(DENIED, f"{self._url} denied it: {detail}")
        if status == 404:
            return NotThere(CHECK_FAILED, detail)
        if code == "task-waits":
            return TaskWaits(PARTIAL, detail)
        if code == "task-ended":
            return TaskEnded(PARTIAL, detail)
        return Failure(USAGE if status == 400 else CHECK_FAILED, detail)


def _account() -> str:
    """The account that runs this command, for the broker's audit log; under sudo, both accounts."""
    try:
        account = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        account = str(os.getuid())
    before = os.environ.get("SUDO_USER", "")
    return f"{before} as {account}" if before else account


def _with_query(path: str, parameters: Mapping[str, Parameter]) -> str:
    """The path with the parameters that are not empty."""
    query = urlencode({name: _text(str(value)) for name, value in parameters.items() if value != ""})
    return f"{path}?{query}" if query else path


def _json(body: Mapping[str, Any]) -> bytes:
    """An encoded body.  Raises Failure for bytes of the command line that are not UTF-8."""
    return _text(json.dumps(body, ensure_ascii=False)).encode()


def connect(
    config: Path | None,
    data: Path | None,
    url: str | None,
    token_file: Path | None,
    user: str | None = None,
    ca_file: Path | None = None,
) -> Remote:
    """The running broker.  Options not given come from the data directory."""
    directory = None if url and (token_file or user) else data_directory(config, data)
    hint = certificate = ""
    if not url:
        assert directory is not None
        runtime = _runtime(directory)
        if runtime.management is None:
            raise Failure(UNREACHABLE, "the broker has no HTTP acceptor: enable [acceptors.http]")
        url, certificate = runtime.management
        if not runtime.alive:
            hint = f"process {runtime.pid}, which served {directory}, is gone: the broker seems to have been killed"
    elif not _is_url(url):
        raise Failure(USAGE, f"--url {url}: give https://HOST:PORT or http://HOST:PORT")
    authorization = _login(url, user) if user else f"Bearer {_token(directory, token_file)}"
    return Remote(url, authorization, _context(ca_file, certificate), hint=hint)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(_text(url))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an incomplete IPv6 address, a port above 65,535
        return False


def _login(url: str, user: str) -> str:
    """The header of a user's login (RFC 7617)."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise Failure(USAGE, f"--user: the password would go to {url} in plain text: give an https:// URL")
    if ":" in _text(user):
        raise Failure(USAGE, f"--user {user}: a user whose name has a colon cannot log in by HTTP (RFC 7617)")
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        try:
            password = click.prompt(f"Password of {user}", hide_input=True, err=True)
        except click.Abort as error:
            if is_interrupt(error):
                raise
            raise Failure(USAGE, f"there is no terminal to ask for a password: set {PASSWORD_VARIABLE}") from None
    try:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    except UnicodeEncodeError:
        raise Failure(USAGE, f"the password of {user} is not UTF-8") from None


def _context(ca_file: Path | None, certificate: str) -> ssl.SSLContext | None:
    """The TLS context: trusts authorities, or only the certificate that this machine's broker uses.

    None: trusts the system's authorities.  Raises Failure.
    """
    if ca_file is None and not certificate:
        return None
    chosen = ca_file or Path(certificate)
    try:
        if ca_file is not None:
            return ssl.create_default_context(cafile=ca_file)
        first = chosen.read_text("ascii").partition(_END)[0] + _END  # not its issuers
        context = ssl.create_default_context(cadata=first)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = getattr(error, "strerror", None) or "it is not a PEM file"
        raise Failure(USAGE, f"{chosen} cannot be used as a certificate: {reason}") from None
    context.check_hostname = False  # no certificate names 127.0.0.1; pinning this one is stricter
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _runtime(directory: Path) -> Runtime:
    try:
        return read_runtime_file(directory)
    except NotRunning as error:
        raise Failure(
            UNREACHABLE, str(error), "name the data directory with --data, or the broker with --url"
        ) from None
    except OSError as error:
        hint = "run this as the broker's user, or log in with --user and --url"
        raise Failure(DENIED, f"{error.filename}: {error.strerror}", hint) from None


def _token(directory: Path | None, token_file: Path | None) -> str:
    try:
        if token_file is None:
            assert directory is not None
            return read_token(directory)
        token = token_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        where = getattr(error, "filename", token_file)
        what = getattr(error, "strerror", "it is not text")
        hint = "run this as the broker's user, name the token with --token-file, or log in with --user"
        raise Failure(DENIED, f"the token cannot be read: {where}: {what}", hint) from None
    if not (token.isascii() and token.isprintable()):
        raise Failure(USAGE, f"{token_file} holds no token: a token is one line of printable ASCII characters")
    return token
