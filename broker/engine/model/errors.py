"""What the engine refuses, and why.

Every error here is the caller's fault and leaves the engine exactly as it was: a verb checks first and changes
afterwards.  A session turns the error into its protocol's words; `code` is stable and fit for logs and metrics.
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
    """The peer lacks the permission.  The text names what the peer named, and says nothing about what there is."""

    code = "denied"


class NotBrowsable(EngineError):
    """A topic, which keeps no messages that a browser could look at."""

    code = "not-browsable"


class NotFound(EngineError):
    """What is named does not exist: an address or queue that may not be created automatically, a message, a task."""

    code = "not-found"


class NoQueue(EngineError):
    """A durable message is meant for a queue, and none takes it.

    `messages`: of a run, all those that none takes, in their order.
    """

    code = "no-queue"

    def __init__(self, text: str, messages: Sequence[Message] = ()) -> None:
        super().__init__(text)
        self.messages = messages


class InvalidName(EngineError):
    """The name cannot be an address or a queue, or cannot be used for this purpose."""

    code = "invalid-name"


class InvalidSelector(EngineError):
    """The selector cannot be parsed, or exceeds a limit."""

    code = "invalid-selector"


class InvalidAttribute(EngineError):
    """No queue has such an attribute, or the attribute no such value."""

    code = "invalid-attribute"


class InvalidEdit(EngineError):
    """No message may be changed like that."""

    code = "invalid-edit"


class InvalidTask(EngineError):
    """A task that contradicts itself or exceeds a limit."""

    code = "invalid-task"


class TaskEnded(EngineError):
    """The task has ended, and its client makes no more steps."""

    code = "task-ended"


class TooManyTasks(EngineError):
    """As many tasks as may be have not ended."""

    code = "max-tasks"


class AttributesDiffer(EngineError):
    """The queue exists, and is of another kind than was asked for."""

    code = "attributes"


class TooManyConsumers(EngineError):
    """The queue has as many consumers as it may."""

    code = "max-consumers"


class TooManyQueues(EngineError):
    """The user has made as many queues as allowed."""

    code = "max-queues"


class TooManyAddresses(EngineError):
    """There are as many addresses as there may be."""

    code = "max-addresses"


class RoutingTypeMismatch(EngineError):
    """The address has no such routing type and may not get it automatically."""

    code = "routing-type"


class AlreadyInUse(EngineError):
    """A durable subscription that somebody else is consuming, or a queue that is already there."""

    code = "in-use"


class WrongState(EngineError):
    """What was asked for cannot be done in the state that the thing is in."""

    code = "wrong-state"


class OntoItself(EngineError):
    """Messages were to be moved to the queue on which they are."""

    code = "onto-itself"


class AddressFull(EngineError):
    """The address holds as much as its settings allow, and its policy is FAIL."""

    code = "address-full"


class RetainedFull(EngineError):
    """There are as many retained messages, or bytes of them, as the broker may keep."""

    code = "retained-full"


class DiskFull(EngineError):
    """The journal has no room for another message; consumers go on, and so will producers once there is room."""

    code = "disk-full"


class NotReadable(EngineError):
    """Messages that are on disk only cannot be read for now; the system says why.  They are where they were."""

    code = "not-readable"


class UnknownDelivery(EngineError):
    """The consumer holds no such message: never delivered to it, or already acknowledged."""

    code = "unknown-delivery"


class DuplicateMessage(EngineError):
    """A transaction holds a message whose duplicate id was accepted before: none of it is done."""

    code = "duplicate"


class TransactionClosed(EngineError):
    """The transaction was rolled back because it took too long."""

    code = "transaction-closed"


class TooLarge(EngineError):
    """The message or transaction does not fit into the limits of the journal."""

    code = "too-large"
