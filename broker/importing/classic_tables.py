"""The parts of an ActiveMQ Classic activemq.xml that a table row can translate."""

from __future__ import annotations

from typing import Final

from broker.importing.rules import Always, Leave, Rule, Take, leave_all

_ONE_BROKER: Final = "there are links to other brokers, but no networks that follow demand, and no replicas"
_JAVA: Final = "Bartleby is not a Java program"
_OWN_USERS: Final = "Bartleby has its own users: create them again, docs/security.md"

#: Attributes of <broker>.
BROKER: Final[dict[str, Rule]] = leave_all(
    {
        "Bartleby writes everything to broker.data-directory: set that": (
            "dataDirectory",
            "tmpDataDirectory",
            "schedulerDirectoryFile",
            "dedicatedTaskRunner",
        ),
        "management goes over HTTP, with `bartleby` or any HTTP client": (
            "useJmx",
            "brokerObjectName",
            "mbeanInvocationTimeout",
        ),
        "Bartleby's own broker id is in its journal": ("brokerId",),
        _JAVA: (
            "start",
            "useShutdownHook",
            "systemExitOnShutdown",
            "useLocalHostBrokerName",
            "useLoggingForShutdownErrors",
            "id",
            "depends-on",
            "taskRunnerPriority",
            "vmConnectorURI",
            "restartAllowed",
            "cacheTempDestinations",
            "timeBeforePurgeTempDestinations",
            "storeOpenWireVersion",
        ),
        "the metrics are at /metrics over HTTP": ("enableStatistics",),
        "one limit of memory applies to all, broker.global-max-size": (
            "splitSystemUsageForProducersConsumers",
            "producerSystemUsagePortion",
            "consumerSystemUsagePortion",
            "schedulePeriodForDiskUsageCheck",
        ),
        "instead of a virtual topic's consumer queue, use a queue on a multicast address: docs/migrating.md": (
            "useVirtualTopics",
            "useVirtualDestSubs",
            "useVirtualDestSubsOnCreation",
        ),
        "a divert copies messages of an address": ("useMirroredQueues",),
        "a durable subscription stays until it is deleted": (
            "offlineDurableSubscriberTimeout",
            "offlineDurableSubscriberTaskSchedule",
            "rejectDurableConsumers",
        ),
        "one scan covers everything": ("maxPurgedDestinationsPerSweep",),
        "permissions to create decide it": ("allowTempAutoCreationOnSend",),
        _ONE_BROKER: (
            "networkConnectorStartAsync",
            "masterConnectorURI",
            "monitorConnectionSplits",
            "shutdownOnMasterFailure",
            "slave",
            "supportFailOver",
            "waitForSlave",
        ),
        "deleting all messages at the start is for tests: delete the data directory instead": (
            "deleteAllMessagesOnStartup",
        ),
        "the journal has the sender of each message": (
            "populateJMSXUserID",
            "useAuthenticatedPrincipalForJMSXUserID",
            "populateUserNameInMBeans",
        ),
        "there are no advisory topics": ("advisorySupport", "anonymousProducerAdvisorySupport"),
    }
) | {
    "brokerName": Take(("broker", "name")),
    "schedulePeriodForDestinationPurge": Take(("broker", "address-queue-scan-period")),
    "persistent": Always("true", "there is always a journal; non-durable messages do not go into it"),
    "schedulerSupport": Always("true", "messages can always be scheduled"),
    "keepDurableSubsActive": Always("true", "durable subscriptions always collect their messages"),
}

#: Elements of <broker>.
BROKER_ELEMENTS: Final[dict[str, Rule]] = leave_all(
    {
        "links to other brokers are written by hand: docs/links.md": ("proxyConnectors", "jmsBridgeConnectors"),
        _JAVA: ("managementContext", "shutdownHooks", "services", "persistenceFactory", "tempDataStore"),
        "messages are in Bartleby's own journal: see [journal] in docs/configuration.md": (
            "persistenceAdapter",
            "jobSchedulerStore",
            "ioExceptionHandler",
        ),
        "certificates are given as PEM files, docs/security.md": ("sslContext",),
        "authorisation is by roles of users, docs/security.md": ("messageAuthorizationPolicy",),
    }
)

#: Plugins that classic_security.py and classic_policies.py do not translate.
PLUGINS: Final[dict[str, Rule]] = leave_all(
    {
        _OWN_USERS: (
            "jaasAuthenticationPlugin",
            "jaasCertificateAuthenticationPlugin",
            "jaasDualAuthenticationPlugin",
            "shiroPlugin",
        ),
        "the metrics are at /metrics over HTTP": ("statisticsBrokerPlugin",),
        "the journal and its audits show what became of each message": ("loggingBrokerPlugin", "traceBrokerPathPlugin"),
        'every removal is recorded: dead-letter-address = "" on a match drops dead messages and counts them': (
            "discardingDLQBrokerPlugin",
        ),
        "SIGHUP reloads": ("runtimeConfigurationPlugin",),
        "queues with the same consumers cost nothing here": ("destinationsPlugin", "multicastTraceBrokerPlugin"),
        "clients without heart-beats are dropped after broker.connection-ttl": ("connectionDotFilePlugin",),
    }
)

_WAYS: Final = "memory handling is not configured by address"
_ADVISORIES: Final = "there are no advisory topics"

#: The address settings for attributes of <policyEntry>, or why there is none.
POLICY: Final[dict[str, tuple[str, str]]] = {
    "memoryLimit": ("max-size-bytes", "of all queues of an address together"),
    "maxBrowsePageSize": ("management-browse-page-size", ""),
    "consumersBeforeDispatchStarts": ("default-consumers-before-dispatch", ""),
    "timeBeforeDispatchStarts": ("default-delay-before-dispatch", ""),
    "allConsumersExclusiveByDefault": ("default-exclusive-queue", ""),
    "maxExpirePageSize": ("", "expired messages are found by time, not by pages"),
    "expireMessagesPeriod": ("", "broker.message-expiry-scan-period applies to all queues"),
    "queuePrefetch": ("", "a client or its acceptor says how much is sent ahead"),
    "topicPrefetch": ("", "a client or its acceptor says how much is sent ahead"),
    "durableTopicPrefetch": ("", "a client or its acceptor says how much is sent ahead"),
    "queueBrowserPrefetch": ("", "a client or its acceptor says how much is sent ahead"),
    "enableAudit": ("", "duplicates are detected by the sender's own ids"),
    "maxAuditDepth": ("", "duplicates are detected by the sender's own ids"),
    "maxProducersToAudit": ("", "duplicates are detected by the sender's own ids"),
    "persistJMSRedelivered": ("", "set delivery-count-persistence on a match"),
    "prioritizedMessages": ("", "higher priorities always come first"),
    "alwaysRetroactive": ("", "set retroactive-message-count on a match for new queues"),
    "sendDuplicateFromStoreToDLQ": ("", "duplicates are detected by the sender's own ids"),
    "optimizedDispatch": ("", _WAYS),
    "lazyDispatch": ("", _WAYS),
    "useCache": ("", _WAYS),
    "cursorMemoryHighWaterMark": ("", _WAYS),
    "storeUsageHighWaterMark": ("", _WAYS),
    "maxPageSize": ("", _WAYS),
    "reduceMemoryFootprint": ("", _WAYS),
    "strictOrderDispatch": ("", "a queue with several consumers distributes by credit"),
    "minimumMessageSize": ("", _WAYS),
    "usePrefetchExtension": ("", "credit limits how much is sent ahead"),
    "doOptimzeMessageStorage": ("", _WAYS),
    "doOptimizeMessageStorage": ("", _WAYS),
    "blockedProducerWarningInterval": ("", "a full address is logged once each time"),
    "gcWithNetworkConsumers": ("", _ONE_BROKER),
    "tempQueue": ("", "temporary queues have the settings of their own names"),
    "tempTopic": ("", "temporary queues have the settings of their own names"),
    "advisoryForConsumed": ("", _ADVISORIES),
    "advisoryForDelivery": ("", _ADVISORIES),
    "advisoryForDiscardingMessages": ("", _ADVISORIES),
    "advisoryForDispatched": ("", _ADVISORIES),
    "advisoryForFastProducers": ("", _ADVISORIES),
    "advisoryForSlowConsumers": ("", _ADVISORIES),
    "advisoryWhenFull": ("", _ADVISORIES),
    "includeBodyForAdvisory": ("", _ADVISORIES),
    "sendAdvisoryIfNoConsumers": ("", _ADVISORIES),
}

#: Elements of <policyEntry>.
POLICY_ELEMENTS: Final[dict[str, Rule]] = leave_all(
    {
        _WAYS: ("pendingQueuePolicy", "pendingSubscriberPolicy", "pendingDurableSubscriberPolicy"),
        "consumers get messages by credit, in turn": ("dispatchPolicy",),
        "message groups are kept by queue: default-group-buckets on a match limits them": ("messageGroupMapFactory",),
        "slow consumers are found by their rate: slow-consumer-threshold and -policy on a match": (
            "slowConsumerStrategy",
        ),
        "to bound a subscription, use a ring: default-ring-size on a match, or address-full-policy": (
            "pendingMessageLimitStrategy",
            "messageEvictionStrategy",
        ),
        _ONE_BROKER: ("networkBridgeFilterFactory",),
    }
)

#: Parameters of a transport connector's address.
TRANSPORT: Final[dict[str, tuple[str, str]]] = {
    "maximumConnections": ("connections-allowed", ""),
    "transport.hbGracePeriodMultiplier": ("heart-beat-to-connection-ttl-modifier", ""),
    "wireFormat.maxFrameSize": ("", "limits.body-bytes-max is the largest message for all acceptors"),
    "transport.closeAsync": ("", _JAVA),
    "transport.transformer": ("", "there is one conversion between protocols, docs/amqp.md"),
    "transport.defaultHeartBeat": ("", "clients without heart-beats are dropped after broker.connection-ttl"),
    "transport.subscriptionStrategy": ("", "subscriptions are queues"),
}

#: Parameters of the plugin that changes times to live that are not translated.
TIME_STAMPS: Final = {
    "futureOnly": "only times to live are changed, never a message's timestamp",
    "processNetworkMessages": _ONE_BROKER,
}

_ROUTES: Final = "a route forwards everything that it reads, without regard to demand"
_SUBSCRIBES: Final = "a link subscribes to nothing at the other broker"

#: Attributes and elements of <networkConnector> that classic_links.py does not translate itself.
NETWORK: Final[dict[str, Rule]] = leave_all(
    {
        _ROUTES: (
            "conduitNetworkQueueSubscriptions",
            "conduitSubscriptions",
            "consumerPriorityBase",
            "consumerTTL",
            "decreaseNetworkConsumerPriority",
            "destinationFilter",
            "durableDestinations",
            "dynamicOnly",
            "staticBridge",
            "suppressDuplicateQueueSubscriptions",
            "suppressDuplicateTopicSubscriptions",
            "syncDurableSubs",
            "useVirtualDestSubs",
        ),
        _SUBSCRIBES: ("advisoryAckPercentage", "advisoryPrefetchSize", "clientIdToken", "useBrokerNamesAsIdSeed"),
        "max-hops of the link limits how many brokers a message may pass; one more makes it a dead letter": (
            "messageTTL",
            "networkTTL",
        ),
        "window of the link limits the messages in transit": ("prefetchSize",),
        "a message leaves here when the other broker has accepted it": ("alwaysSyncSend", "dispatchAsync"),
        "certificates are PEM files: give ca, certificate and key of the link": ("sslContext",),
        "temporary queues are not forwarded": ("bridgeTempDestinations",),
        "messages are forwarded unchanged": ("useCompression",),
        "a message that the other broker refuses is a dead letter": ("advisoryForFailedForward",),
        "`bartleby link show` shows the traffic of the link": ("gcDestinationViews", "gcSweepTime"),
        "a Bartleby at the other end recognises duplicates, another broker does not": (
            "checkDuplicateMessagesOnDuplex",
        ),
        _JAVA: ("bridgeFactory", "brokerName", "brokerURL", "id", "objectName"),
        "broker.toml has no users: the broker itself reads its queues": ("password", "userName"),
        "a password needs a user": ("remotePassword",),
    }
) | {
    "duplex": Always("false", "the other direction needs receive routes here, or a link there"),
}

NOT_KNOWN: Final = Leave("unknown to this importer: check whether docs/configuration.md has something similar")
