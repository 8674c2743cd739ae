"""The broker without sockets: addresses, queues, consumers, deliveries.  `Engine` has its verbs.

These are its packages; each imports only those below it:

    operators         operators' verbs: create, change, delete; notifications, connections, the disk
    delivery          subscribe, dispatch, redelivery, transactions, clients' subscriptions, slow consumers
    publish           the only way in for messages; retained messages
    moves             dead letters, expiry, retries, moves by operators, retroactive addresses
    recovery          restart, cleaning of segments, jumps of the clock
    routing           finding, creating and changing destinations; which queues a message may enter
    client_sessions   stored sessions, which outlast connections
    queues            queues, addresses, consumers, backlogs; how messages enter and leave
    filter            selectors
    model             messages, names, patterns, settings, permissions, errors

Other packages use the names exported here and those of `model`; everything else is internal to the engine.
"""

from broker.engine.client_sessions.client import NEVER_EXPIRES, Client, ClientSubscription
from broker.engine.client_sessions.endings import IN_FLIGHT_OUTCOMES, Ending, Outcome, Outcomes, SubscriptionKind
from broker.engine.client_sessions.stored_session import Definition, StoredSession
from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.delivery.reservations import Reserve
from broker.engine.delivery.subscribe import SubscribeRequest, parse_selector
from broker.engine.delivery.transaction import Transaction
from broker.engine.engine import Engine
from broker.engine.filter import Filter, InvalidFilter, compile_filter
from broker.engine.moves.dead_letter_groups import NAMES as GROUPED_BY
from broker.engine.moves.dead_letter_groups import DeadLetterCount, DeadLetterGroup, DeadLetterGroups
from broker.engine.moves.dead_letter_rules import (
    AT_MOST_MAX,
    EVERY_MIN,
    REASONS,
    RULES_MAX,
    Action,
    DeadLetterRule,
    unreached,
)
from broker.engine.moves.insertion import KNOWN, Inserted, Insertion
from broker.engine.moves.replay import NAME_CHARS_MAX, Replayed, ReplayItem
from broker.engine.moves.rule_runs import OUTCOMES, DeadLetterRules, Trial, Verdict
from broker.engine.moves.transfer import MessageRange, MoveResult
from broker.engine.operators.administration import NewQueue
from broker.engine.operators.configuration import DECLARE_COST, Configuration
from broker.engine.operators.connections import Connected
from broker.engine.operators.disk import DiskWatch
from broker.engine.operators.statistics import Figures
from broker.engine.publish.producers import Producers
from broker.engine.publish.send import PublishResult, Refusal, Send
from broker.engine.queues.address import Address, Producer
from broker.engine.queues.bodies import (
    PENDING_BYTES_MAX,
    PIECE_BYTES,
    Checksum,
    LargeBody,
    Stream,
    Unreadable,
    Upload,
    read_body,
    read_whole_body,
)
from broker.engine.queues.consumer import AckMode, LinkTarget
from broker.engine.queues.counters import COUNTED, LEFT_COUNTERS
from broker.engine.queues.death import Death
from broker.engine.queues.diverts import Divert, DivertRouting
from broker.engine.queues.grouped import GroupedBacklog
from broker.engine.queues.pending import Waiter
from broker.engine.queues.queue import Consumer, DeliveryState, Queue
from broker.engine.queues.queue_quotas import QueueQuotas
from broker.engine.queues.room import is_full
from broker.engine.queues.steps import LongWork
from broker.engine.queues.stored import MessageReader, UnknownFormat
from broker.engine.queues.tracer import Tracer
from broker.engine.queues.watcher import Watcher
from broker.engine.recovery.clock_changes import JumpDetectingClock
from broker.engine.recovery.restore import Fold, Restored
from store.record import DeadLetterReason, RemovalReason

__all__ = [
    "AT_MOST_MAX",
    "COUNTED",
    "DECLARE_COST",
    "EVERY_MIN",
    "GROUPED_BY",
    "IN_FLIGHT_OUTCOMES",
    "KNOWN",
    "LEFT_COUNTERS",
    "NAME_CHARS_MAX",
    "NEVER_EXPIRES",
    "OUTCOMES",
    "PENDING_BYTES_MAX",
    "PIECE_BYTES",
    "REASONS",
    "RULES_MAX",
    "AckMode",
    "Action",
    "Address",
    "Checksum",
    "Client",
    "ClientSubscription",
    "Configuration",
    "Connected",
    "Consumer",
    "DeadLetterCount",
    "DeadLetterGroup",
    "DeadLetterGroups",
    "DeadLetterReason",
    "DeadLetterRule",
    "DeadLetterRules",
    "Death",
    "Definition",
    "DeliveryOutcome",
    "DeliveryState",
    "DiskWatch",
    "Divert",
    "DivertRouting",
    "Ending",
    "Engine",
    "Figures",
    "Filter",
    "Fold",
    "GroupedBacklog",
    "Inserted",
    "Insertion",
    "InvalidFilter",
    "JumpDetectingClock",
    "LargeBody",
    "LinkTarget",
    "LongWork",
    "MessageRange",
    "MessageReader",
    "MoveResult",
    "NewQueue",
    "Outcome",
    "Outcomes",
    "Producer",
    "Producers",
    "PublishResult",
    "Queue",
    "QueueQuotas",
    "Refusal",
    "RemovalReason",
    "ReplayItem",
    "Replayed",
    "Reserve",
    "Restored",
    "Send",
    "StoredSession",
    "Stream",
    "SubscribeRequest",
    "SubscriptionKind",
    "Tracer",
    "Transaction",
    "Trial",
    "UnknownFormat",
    "Unreadable",
    "Upload",
    "Verdict",
    "Waiter",
    "Watcher",
    "compile_filter",
    "is_full",
    "parse_selector",
    "read_body",
    "read_whole_body",
    "redelivery",
    "unreached",
]
