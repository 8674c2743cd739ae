"""What to do about refusals of the engine, and about the management API's own errors.

The meaning of a refusal is the docstring of its class in broker/engine/model/errors.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.reasons.reason import Text


class Refusal(NamedTuple):
    """What to do about a refusal, and its HTTP status; None: no call of the API is refused with it."""

    action: str
    status: int | None = 400


#: By the code of the error's class.
REFUSALS: Final = {
    "denied": Refusal(
        "Add one of the user's roles to the matching `security-settings`; the log has `access.denied`.", 403
    ),
    "not-browsable": Refusal("Browse the queue of a subscription instead."),
    "not-found": Refusal(
        "Correct the name, create it (`bartleby queue create`), or allow `auto-create-addresses`.", 404
    ),
    "no-queue": Refusal("Create the queue before sending to it, or allow `auto-create-queues`.", 409),
    "queue-disabled": Refusal("`bartleby queue set NAME enabled=true`, or send elsewhere.", 409),
    "invalid-name": Refusal("Correct the name; the sentence says what is wrong with it."),
    "invalid-selector": Refusal("Correct the selector; the sentence shows where the mistake is."),
    "invalid-attribute": Refusal("Correct the attribute; the sentence lists the valid ones."),
    "invalid-edit": Refusal("Correct the edit; the sentence says what is wrong with it."),
    "invalid-task": Refusal("Correct the task; the sentence says what is wrong with it."),
    "task-ended": Refusal(
        "Read `why` of the task (`bartleby task show`), and start another one for what is left.", 409
    ),
    "max-tasks": Refusal("Wait until a task ends (`bartleby task list`), or cancel one.", 409),
    "attributes": Refusal("Request the queue as it is, or delete it first.", 409),
    "max-consumers": Refusal(
        "Close another consumer (`bartleby consumer list`), or raise `max-consumers` of the queue."
    ),
    "max-selectors": Refusal("Shorten the selectors, share one among subscriptions, or use another connection.", 409),
    "max-queues": Refusal("Delete a queue of this user, or raise `max-queues` in `resource-limit-settings`.", 409),
    "max-addresses": Refusal("Delete unused addresses, or raise `limits.addresses-max`.", 409),
    "routing-type": Refusal("Use the prefix of the address's routing type, or add the type to the address."),
    "in-use": Refusal("Use another name, or close or delete what is there first; the sentence names it.", 409),
    "onto-itself": Refusal("Name another target."),
    "wrong-state": Refusal("Check its state (`bartleby link list`); the sentence says what it is.", 409),
    "address-full": Refusal("Let consumers catch up, raise `max-size-bytes`, or choose the policy PAGE or BLOCK.", 409),
    "retained-full": Refusal(
        "Clear retained messages, or raise `limits.retained-messages-max` or `retained-bytes-max`.", 409
    ),
    "memory-full": Refusal(
        "End sessions with large wills, shorten wills and ids of subscriptions, or raise `broker.global-max-size`, of "
        "which they may hold a quarter.",
        409,
    ),
    "disk-full": Refusal("Make room on the disk of the journal; the broker notices it automatically.", 507),
    "not-readable": Refusal("See the log for `paging.failed` or `body.unreadable`, and check the disk.", 503),
    "unknown-delivery": Refusal("Acknowledge each message once, on the subscription and connection that got it."),
    "duplicate": Refusal("Roll the transaction back: the message had been accepted before.", 409),
    "transaction-closed": Refusal("Begin again with a shorter transaction, or raise `transaction-timeout`."),
    "transactions-full": Refusal(
        "Commit more often, or raise `limits.open-transactions-bytes-max` or, if the sentence speaks of several "
        "connections, `broker.global-max-size`, of which open transactions may hold a quarter."
    ),
    "too-large": Refusal("Send smaller messages or transactions, or raise `limits.transaction-bytes-max`.", 413),
    "too-many": Refusal(
        "Let sessions expire or unsubscribe, or raise `limits.sessions-max` or "
        "`limits.subscriptions-per-connection-max`.",
        None,
    ),
}


class Problem(NamedTuple):
    """An error of the management API's own: its HTTP status, its title, what it means, and what to do."""

    status: int
    title: str
    meaning: str
    action: str


#: The management API's own errors, by code.
PROBLEMS: Final[dict[str, Problem]] = {
    "invalid-parameter": Problem(
        400,
        "A parameter is wrong",
        "A parameter of the query or the path is unknown, or its value is invalid.",
        "Correct what `detail` names.",
    ),
    "invalid-body": Problem(
        400,
        "The body is wrong",
        "The JSON of the body does not describe what the call needs.",
        "Correct what `errors` lists.",
    ),
    "invalid-cursor": Problem(
        400,
        "The cursor is wrong",
        "The parameter `after` is not a `next` of this list.",
        "Pass `next` unchanged, or begin again without `after`.",
    ),
    "invalid-import": Problem(
        400,
        "The import is wrong",
        "The body is not a list of messages as an export writes them.",
        "Call it as `bartleby queue import` does; `detail` says what is wrong.",
    ),
    "invalid-replay": Problem(
        400,
        "The replay is wrong",
        "The body is not a list of messages as an export writes them.",
        "Call it as `bartleby journal replay` does; `detail` says what is wrong.",
    ),
    "refused": Problem(
        400, "The request is refused", "The request cannot be answered as asked.", "Correct what `detail` says."
    ),
    "not-replicated": Problem(
        409,
        "The journal is not replicated",
        "No other broker could own the journal of this one: it is in files.",
        "Set `journal.log` to keep it in a database that brokers share; see docs/high-availability.md.",
    ),
    "standby": Problem(
        503,
        "This broker is a standby",
        "Another broker of the pair owns the journal, and serves it.",
        "Call that one; `bartleby status` shows the role of this one.",
    ),
    "too-many-connections": Problem(
        503,
        "All connections are taken",
        "Clients that have logged in take all connections of the HTTP acceptor.",
        "Close HTTP connections that are not used; the log names who was refused (`connection.refused`).",
    ),
    "not-logged-in": Problem(
        401,
        "No valid login",
        "The request has neither the token nor a valid login.",
        "Log in as a user of the broker, or send the token of `management.token` in the data directory.",
    ),
    "cross-origin": Problem(
        403,
        "A page of another site calls",
        "A page of another site requested a change.",
        "Call the API from its own address, or without `Origin`.",
    ),
    "no-such-call": Problem(
        404, "There is no such call", "The API has no such path.", "Correct the path; names in it are percent-encoded."
    ),
    "no-such-method": Problem(
        405, "There is no such method", "The path has no such method.", "Use one that the header `Allow` names."
    ),
    "task-waits": Problem(
        409,
        "The task waits",
        "The task is paused, or ahead of its rate: its next step cannot be made yet.",
        "Repeat the call: it waits some seconds for the task.",
    ),
    "length-required": Problem(
        411,
        "The length is missing",
        "The body was sent in chunks, without its length.",
        "Send `Content-Length`, or no body.",
    ),
    "body-too-large": Problem(
        413, "The body is too large", "The call takes no body, or no body of this length.", "Send less in one request."
    ),
    "not-json": Problem(
        415,
        "The body is not JSON",
        "The body has another type than JSON.",
        "Send JSON, with `Content-Type: application/json`.",
    ),
    "wrong-host": Problem(
        421,
        "The broker has another name",
        "The header Host does not name this broker.",
        "Call it by its address, or add the name to `allowed-hosts` of the acceptor.",
    ),
    "internal": Problem(
        500,
        "The broker failed",
        "A bug in the broker made it fail.",
        "Report the traceback in the log (`broker.error`).",
    ),
}

#: Answers of the management API that consist of a status.
ANSWERS: Final = {
    "ok": (200, Text("The call succeeded.")),
    "created": (201, Text("It was created, and is on disk if it is durable.")),
    "/livez": (
        503,
        Text(
            "No tick has ended for some seconds: the broker serves no client.", "Restart it; report what its log says."
        ),
    ),
    "/readyz": (
        503,
        Text(
            "Clients should not be sent to this broker: it is starting or stopping, its disk is full, or an acceptor "
            "does not listen.",
            "`reasons` of the answer says which; wait, or make room.",
        ),
    ),
}
