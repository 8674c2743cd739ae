"""The errors with which the engine refuses a request.

Every error here is the caller's fault and leaves the engine exactly as it was: a verb checks first and changes
afterwards.  A session translates the error to its protocol; `code` is stable and fit for logs and metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from broker.engine.model.message import Message


class EngineError(Exception):
    """A verb was refused; nothing changed.  The text is meant for the peer that asked."""

    code: ClassVar[str] = "refused"


class Denied(EngineError):
    """The peer lacks the permission.  The text repeats the name the peer gave, and does not reveal what exists."""

    code = "denied"


class NotBrowsable(EngineError):
    """A topic cannot be browsed: it stores no messages."""

    code = "not-browsable"


class NotFound(EngineError):
    """It does not exist: an address or queue that may not be created automatically, a message, a task."""

    code = "not-found"


class NoQueue(EngineError):
    """A durable message is meant for a queue, and none accepts it.

    `messages`: all the messages of the run that no queue accepts, in order.
    """

    code = "no-queue"

    def __init__(self, text: str, messages: Sequence[Message] = ()) -> None:
        super().__init__(text)
        self.messages = messages


class QueueDisabled(NoQueue):
    """A durable message is meant for queues that are all disabled (`enabled = false`)."""

    code = "queue-disabled"


class InvalidName(EngineError):
    """The name cannot be an address or a queue, or cannot be used for this purpose."""

    code = "invalid-name"


class InvalidSelector(EngineError):
    """The selector cannot be parsed, or exceeds a limit."""

    code = "invalid-selector"


class InvalidAttribute(EngineError):
    """Queues have no such attribute, or the attribute cannot have this value."""

    code = "invalid-attribute"


class InvalidEdit(EngineError):
    """A message may not be changed in this way."""

    code = "invalid-edit"


class InvalidTask(EngineError):
    """A task that contradicts itself or exceeds a limit."""

    code = "invalid-task"


class TaskEnded(EngineError):
    """The task has ended; its client can make no further step."""

    code = "task-ended"


class TooManyTasks(EngineError):
    """The limit of unfinished tasks is reached."""

    code = "max-tasks"


class AttributesDiffer(EngineError):
    """The queue exists with other attributes than those requested."""

    code = "attributes"


class TooManyConsumers(EngineError):
    """The queue has its maximum number of consumers."""

    code = "max-consumers"


class TooManySelectors(EngineError):
    """The selectors of a connection together exceed a limit."""

    code = "max-selectors"


class TooManyQueues(EngineError):
    """The user has created the maximum number of queues."""

    code = "max-queues"


class TooManyAddresses(EngineError):
    """The broker has its maximum number of addresses."""

    code = "max-addresses"


class RoutingTypeMismatch(EngineError):
    """The address lacks the routing type, which may not be added automatically."""

    code = "routing-type"


class AlreadyInUse(EngineError):
    """The durable subscription is in use by another client, or the queue already exists."""

    code = "in-use"


class WrongState(EngineError):
    """The request cannot be fulfilled in the present state of its object."""

    code = "wrong-state"


class OntoItself(EngineError):
    """Messages cannot be moved to the queue they are already on."""

    code = "onto-itself"


class AddressFull(EngineError):
    """The address holds as many messages or bytes as its limits allow, and its policy is FAIL."""

    code = "address-full"


class RetainedFull(EngineError):
    """The broker stores its maximum number, or bytes, of retained messages."""

    code = "retained-full"


class MemoryFull(EngineError):
    """What clients have the broker hold beside messages, such as wills, takes its part of the memory."""

    code = "memory-full"


class DiskFull(EngineError):
    """The journal has no room for another message; consumers continue, and producers can again once there is room."""

    code = "disk-full"


class NotReadable(EngineError):
    """Messages on disk cannot be read for now; the text has the system's error.  They stay on their queue."""

    code = "not-readable"


class UnknownDelivery(EngineError):
    """The consumer has no such message: it was never delivered, or is already acknowledged."""

    code = "unknown-delivery"


class DuplicateMessage(EngineError):
    """A message of the transaction has a duplicate id accepted before; nothing of the transaction is done."""

    code = "duplicate"


class TransactionClosed(EngineError):
    """The transaction was rolled back because it took too long."""

    code = "transaction-closed"


class TransactionsFull(EngineError):
    """The open transactions of the connection, or of all connections, hold as much as they may."""

    code = "transactions-full"


class TooLarge(EngineError):
    """The message or transaction exceeds the limits of the journal."""

    code = "too-large"
