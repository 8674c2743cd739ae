"""The elements directly in <core> of an Artemis broker.xml, and their translations.

The names are those of Artemis's schema; elements in none of these tables are reported as unknown.
"""

from __future__ import annotations

from typing import Final

from broker.importing.rules import Always, Rule, Take, leave_all

_ONE_DIRECTORY: Final = "Bartleby writes everything to broker.data-directory: set that"
_MANAGED: Final = "management goes over HTTP, with `bartleby` or any HTTP client"

_LEFT: Final = leave_all(
    {
        _ONE_DIRECTORY: (
            "bindings-directory",
            "journal-directory",
            "large-messages-directory",
            "node-manager-lock-directory",
            "paging-directory",
            "create-bindings-dir",
            "create-journal-dir",
        ),
        "the journal's one writer thread batches whatever waits: there is nothing to tune": (
            "journal-buffer-size",
            "journal-buffer-timeout",
            "journal-device-block-size",
            "journal-file-open-timeout",
            "journal-max-io",
            "journal-type",
            "page-max-concurrent-io",
            "page-sync-timeout",
            "read-whole-page",
            "large-message-sync",
        ),
        "segments are created and deleted as needed: there is nothing to set": (
            "journal-min-files",
            "journal-pool-files",
            "purge-page-folders",
            "log-journal-write-rate",
        ),
        "one broker has its data directory to itself, and waits for no other": (
            "journal-lock-acquisition-timeout",
            "journal-lock-monitor-timeout",
            "journal-lock-monitor-max-retries",
        ),
        "one event loop does the work: there are no pools to size": (
            "thread-pool-max-size",
            "scheduled-thread-pool-max-size",
            "async-connection-execution-enabled",
            "server-dump-interval",
            "memory-measure-interval",
            "memory-warning-threshold",
            "message-expiry-thread-priority",
        ),
        "systemd or the container platform watches Bartleby: docs/operations.md": (
            "critical-analyzer",
            "critical-analyzer-check-period",
            "critical-analyzer-policy",
            "critical-analyzer-timeout",
        ),
        "there are links to other brokers, but no clusters, replicas or federation": (
            "ha-policy",
            "cluster-connections",
            "cluster-user",
            "cluster-password",
            "broadcast-groups",
            "discovery-groups",
            "federations",
            "lock-coordinators",
            "grouping-handler",
            "connection-routers",
            "mirror-ack-manager-page-attempts",
            "mirror-ack-manager-queue-attempts",
            "mirror-ack-manager-retry-delay",
            "mirror-ack-manager-warn-unacked",
            "mirror-page-transaction",
        ),
        "Bartleby does not monitor the network": (
            "network-check-NIC",
            "network-check-URL-list",
            "network-check-list",
            "network-check-period",
            "network-check-ping-command",
            "network-check-ping6-command",
            "network-check-timeout",
        ),
        "Bartleby loads no Java code": (
            "broker-plugins",
            "connector-services",
            "remoting-incoming-interceptors",
            "remoting-outgoing-interceptors",
            "log-delegate-factory-class-name",
            "system-property-prefix",
            "resolve-protocols",
        ),
        "messages are in the journal, not in a database": ("store",),
        _MANAGED: (
            "management-address",
            "management-message-rbac",
            "management-rbac-prefix",
            "view-permission-method-match-pattern",
            "jmx-domain",
            "jmx-management-enabled",
            "jmx-use-broker-name",
        ),
        "the metrics are at /metrics over HTTP": (
            "metrics",
            "metrics-plugin",
            "message-counter-enabled",
            "message-counter-max-day-history",
            "message-counter-sample-period",
        ),
        "passwords are stored hashed, and none in broker.toml": ("mask-password", "password-codec"),
        "delivery counts are never forgotten, so there is nothing to set": ("max-redelivery-records",),
        "transactions are checked every second": ("transaction-timeout-scan-period",),
        "timers check the time to live of connections": ("connection-ttl-check-interval",),
        "SIGHUP reloads": ("configuration-file-refresh-period", "file-deployment-enabled"),
        "changes to the users file apply at once": (
            "security-invalidation-interval",
            "authentication-cache-size",
            "authorization-cache-size",
        ),
        "a stop waits for clients up to broker.shutdown-timeout": (
            "graceful-shutdown-enabled",
            "graceful-shutdown-timeout",
        ),
        "temporary queues have the settings of their own names": ("temporary-queue-namespace", "uuid-namespace"),
        "names of internal addresses cannot be chosen": ("internal-naming-prefix",),
        "durable subscriptions keep their names, docs/amqp.md says which": ("amqp-use-core-subscription-naming",),
    }
)

CORE: Final[dict[str, Rule]] = _LEFT | {
    "name": Take(("broker", "name")),
    "message-expiry-scan-period": Take(("broker", "message-expiry-scan-period")),
    "address-queue-scan-period": Take(("broker", "address-queue-scan-period")),
    "transaction-timeout": Take(
        ("broker", "transaction-timeout"), change="it applies to all transactions, not only to those of XA"
    ),
    "connection-ttl-override": Take(
        ("broker", "connection-ttl"), change="it applies to clients that do not announce how long they may be silent"
    ),
    "global-max-size": Take(("broker", "global-max-size")),
    "global-max-messages": Take(("broker", "global-max-messages")),
    "global-max-size-percent-of-jvm-max-memory": Take(
        ("broker", "global-max-size-percent"), change="of the machine's or container's memory: there is no JVM"
    ),
    "max-disk-usage": Take(
        ("broker", "max-disk-usage"), change="space that the file system reserves for root is not counted"
    ),
    "min-disk-free": Take(("broker", "min-disk-free")),
    "disk-scan-period": Take(("broker", "disk-scan-period")),
    "journal-file-size": Take(("journal", "segment-size")),
    "journal-compact-min-files": Take(("journal", "compact-min-files")),
    "journal-compact-percentage": Take(
        ("journal", "compact-percentage"),
        change="live records of the oldest file are copied forward, one file at a time",
    ),
    "id-cache-size": Take(("broker", "id-cache-size")),
    "persist-id-cache": Always("true", "duplicate ids are always in the journal"),
    "persistence-enabled": Always("true", "there is always a journal; non-durable messages do not go into it"),
    **dict.fromkeys(
        ("journal-sync-transactional", "journal-sync-non-transactional", "journal-datasync"),
        Always("true", "nothing is confirmed before it is on disk: it cannot be switched off"),
    ),
    "wild-card-routing-enabled": Take(("wildcard-addresses", "routing-enabled")),
    "literal-match-markers": Take(("wildcard-addresses", "literal-match-markers")),
    "management-notification-address": Take(("broker", "management-notification-address")),
    "suppress-session-notifications": Take(("broker", "suppress-session-notifications")),
    "populate-validated-user": Take(("security", "populate-validated-user")),
    "reject-empty-validated-user": Take(("security", "reject-empty-validated-user")),
    "mqtt-session-scan-interval": Take(("broker", "mqtt-session-scan-interval")),
    "mqtt-session-state-persistence-timeout": Take(("broker", "mqtt-session-state-persistence-timeout")),
    "mqtt-subscription-persistence-enabled": Always(
        "true", "subscriptions of lasting MQTT sessions are in the journal"
    ),
}
