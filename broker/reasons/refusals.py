"""What to do about what the engine refuses, and about the management API's own errors.

The meaning of a refusal is the docstring of its class in broker/engine/model/errors.py.
"""

from __future__ import annotations

from broker.reasons.reason import Text

#: By the code of the error's class.
REFUSALS = {
    "denied": "Add one of the user's roles to the matching `security-settings`; the log has `access.denied`.",
    "not-browsable": "Browse the queue of a subscription instead.",
    "not-found": "Correct the name, create it (`bartleby queue create`), or allow `auto-create-addresses`.",
    "no-queue": "Create the queue before sending to it, or allow `auto-create-queues`.",
    "invalid-name": "Correct the name; the sentence says what is wrong with it.",
    "invalid-selector": "Correct the selector; the sentence has the place of the mistake.",
    "invalid-attribute": "Correct the attribute; the sentence names those that there are.",
    "attributes": "Ask for the queue as it is, or delete it first.",
    "max-consumers": "Close another consumer (`bartleby consumer list`), or raise `max-consumers` of the queue.",
    "max-queues": "Delete a queue of this user, or raise `max-queues` in `resource-limit-settings`.",
    "max-addresses": "Delete unused addresses, or raise `limits.addresses-max`.",
    "routing-type": "Use the prefix of the address's routing type, or add the type to the address.",
    "in-use": "Use another name, or close or delete what is there first; the sentence names it.",
    "onto-itself": "Name another target.",
    "address-full": "Let consumers catch up, raise `max-size-bytes`, or choose the policy PAGE or BLOCK.",
    "retained-full": "Clear retained messages, or raise `limits.retained-messages-max` or `retained-bytes-max`.",
    "disk-full": "Make room on the disk of the journal; the broker notices it by itself.",
    "not-readable": "See the log for `paging.failed` or `body.unreadable`, and check the disk.",
    "unknown-delivery": "Acknowledge each message once, on the subscription and connection that got it.",
    "duplicate": "Roll the transaction back: the message had been accepted before.",
    "transaction-closed": "Begin again with a shorter transaction, or raise `transaction-timeout`.",
    "too-large": "Send smaller messages or transactions, or raise `limits.transaction-bytes-max`.",
    "too-many": "Let sessions expire or unsubscribe, or raise `limits.sessions-max` or "
    "`limits.subscriptions-per-connection-max`.",
    "invalid-replay": "Call it as `bartleby journal replay` does; the sentence says what is wrong.",
}

#: The management API's own errors: HTTP status, and text.
PROBLEMS = {
    "invalid-parameter": (400, Text("A parameter of the request is wrong or unknown.", "Correct what `detail` names.")),
    "denied": (
        401,
        Text(
            "The request has neither the token nor a valid login; 403: the user lacks a permission.",
            "Log in as a user of the broker, or send the token of `management.token` in the data directory.",
        ),
    ),
    "cross-origin": (
        403,
        Text("A page of another site asked for a change.", "Call the API from its own address, or without `Origin`."),
    ),
    "no-such-call": (404, Text("The API has no such path.", "Correct the path; names in it are percent-encoded.")),
    "no-such-method": (405, Text("The path has no such method.", "Use a method that the header `Allow` names.")),
    "length-required": (411, Text("The request's body has no length.", "Send `Content-Length`, or no body.")),
    "body-too-large": (413, Text("The request's body is larger than the call takes.", "Send less in one request.")),
    "wrong-host": (
        421,
        Text(
            "The request names a host that the broker is not known as.",
            "Call it by its address, or add the name to `allowed-hosts` of the acceptor.",
        ),
    ),
    "refused": (400, Text("The HTTP request itself is wrong.", "Correct what `detail` says.")),
    "internal": (500, Text("A bug in the broker made it fail.", "Report the traceback in the log (`broker.error`).")),
}
