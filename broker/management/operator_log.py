"""Logging what operators did, once it is done: who, from where, which messages were chosen, and how many.

user        who logged in, by a password, a certificate or an issuer's token
token       instead of a user: the broker's own token, by the name of its file
operator    the account that ran the command line, as the command line reports it: unverified
remote      where the call came from
filter, id, after, below    which messages of a queue the call chose; none: all
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.requests import Request

from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.report import Report
from broker.log import printable
from broker.management.callers import ACCESS
from broker.management.runtime import OPERATOR_HEADER, TOKEN_FILE

#: Characters of the account's name in the command line's header.
OPERATOR_CHARS_MAX: Final = 200

#: Where the state of a request holds the function that writes log events.
REPORT: Final = "report"


def log_action(request: Request, code: str, **fields: str | int) -> None:
    """Log what an operator did, with the fields of the caller."""
    report: Report = getattr(request.state, REPORT)
    report(code, **fields, **caller_fields(request, getattr(request.state, ACCESS)))


def caller_fields(request: Request, access: Access) -> dict[str, str]:
    """The caller, for the log."""
    client = request.client
    caller = {"token": TOKEN_FILE} if access is UNRESTRICTED else {"user": access.user}
    operator = unquote(request.headers.get(OPERATOR_HEADER, ""))[:OPERATOR_CHARS_MAX]
    if operator:
        caller["operator"] = operator
    return caller | {"remote": f"{client.host}:{client.port}" if client else "unknown"}


def closing_text(reason: str) -> str:
    """The message to a client that an operator disconnects, printable because some protocols require it."""
    return f"closed by an operator: {printable(reason)}" if reason else "closed by an operator"
