"""The AMQP conditions, MQTT reason codes and STOMP ERROR messages that the broker sends to clients."""

from __future__ import annotations

from broker.reasons.reason import Text
from protocols.amqp import errors as amqp
from protocols.mqtt.codes import ReasonCode

_CLIENT_BUG = "The client's library breaks the specification: update it, or report it to its authors."
_BROKER_LOG = "Report the traceback in the broker's log."

AMQP = {
    amqp.INTERNAL_ERROR: Text(
        "The broker failed: a bug, or its disk.", "Reconnect and send again what was not settled; see the broker's log."
    ),
    amqp.NOT_FOUND: Text(
        "The address, queue or subscription does not exist, or no queue takes a durable message.",
        "Correct the name, create the queue, or allow `auto-create-addresses` and `auto-create-queues`.",
    ),
    amqp.UNAUTHORIZED_ACCESS: Text(
        "A login is needed, or the user lacks the permission.",
        "Log in with SASL; else add one of the user's roles to the matching `security-settings`.",
    ),
    amqp.DECODE_ERROR: Text("Bytes of the client are not valid AMQP.", _CLIENT_BUG),
    amqp.RESOURCE_LIMIT_EXCEEDED: Text(
        "A limit is reached: a full address or disk, consumers, queues, links, transactions, or an idle time-out.",
        "The description names the limit: make room, close what is not used, or raise it.",
    ),
    amqp.NOT_ALLOWED: Text("The frame is not allowed in this state or with these terms.", _CLIENT_BUG),
    amqp.INVALID_FIELD: Text(
        "A field has a value that it cannot have: a name, a selector, an attribute, a container id in use.",
        "Correct what the description names.",
    ),
    amqp.NOT_IMPLEMENTED: Text(
        "The client asks for a feature that Bartleby does not have.", "Do without it: the description names it."
    ),
    amqp.RESOURCE_LOCKED: Text(
        "Another client has it: a durable subscription with its consumer, a queue of the same name.",
        "Close the other consumer, or use another name.",
    ),
    amqp.PRECONDITION_FAILED: Text(
        "The broker refused the request for a reason that has no condition of its own.", "Read the description."
    ),
    amqp.RESOURCE_DELETED: Text(
        "The queue or subscription was deleted, or an operator closed the link.", "Attach again to continue."
    ),
    amqp.ILLEGAL_STATE: Text("The frame does not fit the state of the connection.", _CLIENT_BUG),
    amqp.FRAME_SIZE_TOO_SMALL: Text(
        "The largest frame that the client accepts is too small for one that the broker has to send.",
        "Raise the client's max-frame-size.",
    ),
    amqp.CONNECTION_FORCED: Text(
        "The broker is shutting down, another one of the pair has taken over, an operator closed the connection, or "
        "its user or token is no longer valid.",
        "The description says which; reconnect if allowed, after a takeover to the other broker.",
    ),
    amqp.FRAMING_ERROR: Text(
        "The bytes are not AMQP frames, or a frame is too large.",
        "Check that the client speaks AMQP 1.0 and keeps to the broker's max-frame-size.",
    ),
    amqp.WINDOW_VIOLATION: Text("The client sent more transfers than the session's window allows.", _CLIENT_BUG),
    amqp.HANDLE_IN_USE: Text("The client attached a link with the handle of another.", _CLIENT_BUG),
    amqp.UNATTACHED_HANDLE: Text("The client used a handle without a link.", _CLIENT_BUG),
    amqp.STOLEN: Text(
        "Another connection with the same user and container id has taken over the durable subscription.",
        "If both connections live, give each client a container id of its own.",
    ),
    amqp.TRANSFER_LIMIT_EXCEEDED: Text("The client sent a message without credit.", _CLIENT_BUG),
    amqp.MESSAGE_SIZE_EXCEEDED: Text(
        "A message or transaction is too large.",
        "Send less at once, or raise `limits.large-body-bytes-max` or `limits.transaction-bytes-max`.",
    ),
    amqp.TRANSACTION_UNKNOWN_ID: Text(
        "The transaction does not exist on this connection.",
        "Use the id that declare answered, before discharge.",
    ),
    amqp.TRANSACTION_ROLLBACK: Text(
        "The transaction could not be committed and was rolled back.",
        "The description says why; repeat the transaction.",
    ),
    amqp.TRANSACTION_TIMEOUT: Text(
        "The transaction took longer than `transaction-timeout` and was rolled back.",
        "Commit sooner, or raise `transaction-timeout`.",
    ),
}

MQTT = {
    ReasonCode.NO_MATCHING_SUBSCRIBERS: Text(
        "The message was accepted, but no queue takes it.",
        "Nothing, if that is expected; otherwise compare the topic with the subscriber's filter.",
    ),
    ReasonCode.NO_SUBSCRIPTION_EXISTED: Text("The client unsubscribed from a filter that it had not subscribed to."),
    ReasonCode.UNSPECIFIED_ERROR: Text(
        "The broker failed, or refused the request for a reason that has no code of its own.",
        "Read the reason string and the broker's log, then connect again.",
    ),
    ReasonCode.MALFORMED_PACKET: Text("The bytes are not an MQTT packet.", _CLIENT_BUG),
    ReasonCode.PROTOCOL_ERROR: Text("The packet is not allowed at this point, or its contents are not.", _CLIENT_BUG),
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: Text(
        "Bartleby refuses it for a reason of its own: no queue takes a message sent to a queue, another client has the "
        "subscription, or the client's Maximum Packet Size has no room for an answer.",
        "Read the reason string; create the queue, or correct the client.",
    ),
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: Text(
        "The client speaks a version of MQTT other than 3.1, 3.1.1 and 5.0.", "Choose one of these in the client."
    ),
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: Text(
        "The client identifier is malformed, too long, empty where that is not allowed, or in use where "
        "`link-stealing = false`; or the keep alive is longer than a client before MQTT 5 may ask for.",
        "Choose another client identifier (at most 256 bytes), or a keep alive within `max-keepalive`.",
    ),
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: Text(
        "The user name or the password is wrong.", "Only the broker's log has the reason: `login.refused`."
    ),
    ReasonCode.NOT_AUTHORIZED: Text(
        "The user lacks the permission, or its login was refused or is no longer valid.",
        "Add one of the user's roles to the matching `security-settings`; the log has `access.denied` or "
        "`login.refused`.",
    ),
    ReasonCode.SERVER_UNAVAILABLE: Text("The broker is shutting down.", "Connect again later."),
    ReasonCode.SERVER_SHUTTING_DOWN: Text("The broker is shutting down.", "Connect again later."),
    ReasonCode.BAD_AUTHENTICATION_METHOD: Text(
        "The client asks for an unknown authentication method, or changes it.",
        "Use a method named in the reason string.",
    ),
    ReasonCode.KEEP_ALIVE_TIMEOUT: Text(
        "The client sent nothing for one and a half times its keep alive.",
        "Look at the network and at what blocks the client, or raise its keep alive.",
    ),
    ReasonCode.SESSION_TAKEN_OVER: Text(
        "Another client connected with the same client identifier.",
        "Give each client an identifier of its own; `link-stealing = false` refuses the new connection instead.",
    ),
    ReasonCode.TOPIC_FILTER_INVALID: Text(
        "The topic filter is malformed or too long, or no queue can be created for it.", "Correct the filter."
    ),
    ReasonCode.TOPIC_NAME_INVALID: Text(
        "The topic is malformed, too long, the broker's own, or not an address that takes messages.",
        "Correct the topic.",
    ),
    ReasonCode.PACKET_IDENTIFIER_NOT_FOUND: Text(
        "Nothing with this packet identifier is in flight. After a reconnect this is normal.",
        "Nothing, after a reconnect; else the client's library has a bug.",
    ),
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED: Text(
        "The client sent more messages of QoS 1 and 2 without an answer than `receive-maximum` allows.", _CLIENT_BUG
    ),
    ReasonCode.TOPIC_ALIAS_INVALID: Text("The topic alias is 0, too large or unknown.", _CLIENT_BUG),
    ReasonCode.PACKET_TOO_LARGE: Text(
        "The packet is larger than `maximum-packet-size`, or the first one than `limits.connect-bytes-max`.",
        "Send less, or raise the limit that the reason string names.",
    ),
    ReasonCode.QUOTA_EXCEEDED: Text(
        "A limit is reached: a full address or disk, a payload, retained messages, sessions, subscriptions, queues.",
        "The reason string names the limit: make room, remove what is not used, or raise it.",
    ),
    ReasonCode.ADMINISTRATIVE_ACTION: Text(
        "The broker closed the connection: an operator, an expired token, a removed user, a consumer too slow.",
        "The reason string says which; connect again if allowed.",
    ),
    ReasonCode.RETAIN_NOT_SUPPORTED: Text(
        "The acceptor has `retain-available = false`.", "Send the message or the will without retain."
    ),
    ReasonCode.QOS_NOT_SUPPORTED: Text("The acceptor has a lower `maximum-qos`.", "Send with a lower QoS."),
    ReasonCode.USE_ANOTHER_SERVER: Text(
        "Another broker of the pair has the journal.",
        "Connect to that; the Server Reference names all of them, if `failover-hosts` does.",
    ),
}

#: By the header `message`.  `*` stands for the name of a header.
STOMP = {
    "already connected": Text("The client sent CONNECT or STOMP a second time.", _CLIENT_BUG),
    "another broker has the journal": Text(
        "Another broker of the pair has the journal.",
        "Connect to that; the header redirect names all of them, if `failover-hosts` does.",
    ),
    "body too large": Text(
        "The body is larger than the limit.", "Send less, or raise `limits.body-bytes-max` or `large-body-bytes-max`."
    ),
    "broker shutting down": Text("The broker is shutting down.", "Connect again later."),
    "client-id missing": Text(
        "A durable subscription needs the header client-id in CONNECT.", "Add it, the same for each connection."
    ),
    "connection closed": Text(
        "The broker closed the connection: an operator, an expired token, a removed user.",
        "The body says which; connect again if allowed.",
    ),
    "duplicate subscription": Text(
        "The id of SUBSCRIBE is already used on this connection.", "Give each subscription an id of its own."
    ),
    "duplicate transaction": Text(
        "BEGIN names a transaction that is open.", "Give each transaction of the connection a name of its own."
    ),
    "frame too large": Text(
        "The first frame is larger than a client may send before it has logged in.",
        "Raise `limits.connect-bytes-max` if you use long tokens.",
    ),
    "header too large": Text(
        "One header line is too long.", "Send shorter headers, or raise `limits.header-line-bytes-max`."
    ),
    "headers too large": Text(
        "The headers of the frame together are too large.", "Send fewer, or raise `limits.header-bytes-max`."
    ),
    "incomplete frame": Text("The connection ended within a frame.", "Look at the client and the network."),
    "internal error": Text("A bug in the broker ended the connection.", _BROKER_LOG),
    "invalid content-length": Text(
        "The header content-length is not a number, or does not match the body.", _CLIENT_BUG
    ),
    "invalid header": Text("A header line is not NAME:VALUE in UTF-8.", _CLIENT_BUG),
    "invalid heart-beat": Text("The header heart-beat is not two numbers.", "Send `heart-beat:10000,10000`."),
    "invalid *": Text("The named header has an invalid value.", "The body says what is allowed."),
    "invalid selector": Text("The selector cannot be parsed, or exceeds a limit.", "Correct it; the body says where."),
    "login refused": Text(
        "The login or the passcode is wrong, or the user may not connect from there.",
        "Only the broker's log has the reason: `login.refused`.",
    ),
    "memory full": Text(
        "The broker has no memory for more of a frame whose end has not come.",
        "Send large bodies with content-length, or raise `broker.global-max-size`, of which they may take a quarter.",
    ),
    "missing header": Text("The frame lacks a header that it needs.", "Add the header that the body names."),
    "not connected": Text("The first frame was not CONNECT or STOMP.", "Send CONNECT first."),
    "not supported": Text(
        "The frame asks for a feature that Bartleby does not have: repeated delivery.", "Do without it."
    ),
    "permission denied": Text(
        "The user lacks the permission.",
        "Add one of the user's roles to the matching `security-settings`; the log has `access.denied`.",
    ),
    "subscription closed": Text(
        "The broker closed a subscription: an operator, its queue deleted, its user lost a permission, too slow.",
        "The body says which; connect and subscribe again if allowed.",
    ),
    "too many headers": Text("The frame has too many headers.", "Send fewer, or raise `limits.header-count-max`."),
    "too many subscriptions": Text(
        "The connection has as many subscriptions as it may have.",
        "Use another connection, or raise `limits.subscriptions-per-connection-max`.",
    ),
    "too many temporary destinations": Text(
        "The connection has as many temporary destinations as it may have.", "Use one reply queue for many requests."
    ),
    "too many transactions": Text(
        "The connection has as many open transactions as it may have.",
        "Commit or abort them, or raise `limits.transactions-per-connection-max`.",
    ),
    "undefined escape": Text("A header has a backslash escape that the version of STOMP does not define.", _CLIENT_BUG),
    "unexpected acknowledgement": Text(
        "The client sent ACK or NACK for a subscription that needs none (ack:auto).",
        "Subscribe with ack:client-individual.",
    ),
    "unexpected body": Text("A frame other than SEND has a body.", _CLIENT_BUG),
    "unknown command": Text("STOMP, or its version in use, has no such command.", _CLIENT_BUG),
    "unknown message": Text(
        "ACK or NACK does not name an unacknowledged message.",
        "Acknowledge each message once, on its connection, with the id in its header `ack`.",
    ),
    "unknown subscription": Text(
        "UNSUBSCRIBE does not name a subscription of this connection.", "Use the id of SUBSCRIBE."
    ),
    "unknown transaction": Text("The frame does not name an open transaction.", "Send BEGIN first."),
    "unsupported version": Text(
        "The client asks for versions of STOMP other than 1.0, 1.1 and 1.2.", "Add 1.2 to its accept-version."
    ),
}
