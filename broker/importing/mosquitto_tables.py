"""The settings of a mosquitto.conf and their translations, except those that have their own modules.

The names are those of Mosquitto 2.1 and older versions; settings in none of these tables are reported as unknown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.importing.links import ALWAYS_TRIES
from broker.importing.rules import Always, Leave, Rule, Take, leave_all

_SYSTEMD: Final = "systemd or the container platform does it: docs/operations.md"
_LOG: Final = "the log goes to standard error; [log] sets its level and format"
_DISK: Final = "everything confirmed is on disk: there is nothing to save periodically"
_SOCKETS: Final = "sockets are left to the operating system"
_ONE_ID: Final = "the identifiers that the broker assigns have no prefix"
_OTHER_FILES: Final = "included files are not read: merge them into this file first, then import it"

#: Settings that collect several lines to a list.
LISTS: Final = frozenset({"topic", "websockets_origin", "log_dest", "log_type", "include_dir"})

#: Older or alternative names of settings.
ALIASES: Final = {
    "addresses": "address",
    "clientid": "remote_clientid",
    "maximum_qos": "max_qos",
    "password": "remote_password",
    "username": "remote_username",
}

#: The prefixes of plug-in options, whose values may be anything.
OPTIONS: Final = ("auth_opt_", "plugin_opt_")

#: Restrictions by permissions and plug-ins, anywhere in the file, and what to do.
STRICTER: Final[dict[str, str]] = {
    "acl_file": "its permissions are not read: write them as [[security-settings]], docs/security.md",
    "clientid_prefixes": "client identifiers are not restricted: give users their permissions, docs/security.md",
} | dict.fromkeys(
    ("auth_plugin", "plugin", "global_plugin", "plugin_load", "plugin_use"),
    "Bartleby loads no plug-ins: users and [[security-settings]] must refuse what this one refuses, docs/security.md",
)


class Number(NamedTuple):
    """A number or boolean of acceptors.  zero: the value that stands for Mosquitto's 0."""

    key: str
    factor: int = 1
    zero: str = "0"
    change: str = ""


#: Settings of the broker that are put to each acceptor.
EACH: Final[dict[str, tuple[Number, ...]]] = {
    "allow_zero_length_clientid": (Number("allow-zero-length-clientid"),),
    "max_inflight_bytes": (Number("in-flight-bytes-max"),),
    "max_inflight_messages": (Number("default-maximum-in-flight-publish-messages", zero="65535"),),
    "max_keepalive": (Number("max-keepalive", 1_000), Number("server-keep-alive", 1_000)),
    "max_packet_size": (Number("maximum-packet-size"),),
    "max_queued_messages": (
        Number("queued-messages-max", zero="-1", change="it is per subscription, and was per client"),
    ),
    "message_size_limit": (Number("message-size-limit", zero="-1"),),
    "retain_available": (Number("retain-available"),),
    "sys_interval": (Number("sys-interval", 1_000),),
}

#: Settings of listeners that are put to their acceptor.
OF_LISTENER: Final[dict[str, tuple[Number, ...]]] = {
    "max_connections": (Number("connections-allowed"),),
    "max_qos": (Number("maximum-qos"),),
    "maximum_qos": (Number("maximum-qos"),),
    "max_topic_alias": (Number("topic-alias-maximum", change="it also applies to the broker's own aliases"),),
}

#: Settings of listeners that have no counterpart, or need none.
LISTENER_RULES: Final[dict[str, Rule]] = leave_all(
    {
        "MQTT 3.1, 3.1.1 and 5 are always accepted": ("accept_protocol_versions",),
        "max_topic_alias is for both directions": ("max_topic_alias_broker",),
        "the broker serves no files": ("http_dir",),
        _SOCKETS: ("packet_buffer_size", "websockets_headers_size"),
        _ONE_ID: ("listener_auto_id_prefix",),
        "the address of a client is that of its connection": ("enable_proxy_protocol",),
        "a client keeps the identifier that it sends: let no two users share one": ("use_username_as_clientid",),
        "[[certificate-users]] map certificates to users: docs/security.md": (
            "use_identity_as_username",
            "use_subject_as_username",
        ),
        "suites of TLS 1.3 cannot be chosen: all of them are good": ("ciphers_tls1.3",),
        "keys are exchanged on elliptic curves": ("dhparamfile",),
    }
) | {
    "disable_client_cert_date_checks": Always(
        "false", "certificates that have expired or are not valid yet are refused"
    ),
}

#: Settings of TLS of a listener, which mosquitto_tls.py translates.
TLS: Final = frozenset(
    {
        "cafile",
        "capath",
        "certfile",
        "ciphers",
        "crlfile",
        "keyfile",
        "psk_hint",
        "require_certificate",
        "tls_engine",
        "tls_engine_kpass_sha1",
        "tls_keyform",
        "tls_version",
    }
)

#: Settings of listeners that mosquitto_listeners.py translates.
_LISTENER_APART: Final = TLS | {
    "bind_address",
    "bind_interface",
    "listener_allow_anonymous",
    "mount_point",
    "port",
    "protocol",
    "proxy_protocol_v2_require_tls",
    "socket_domain",
    "websockets_origin",
}
LISTENER: Final = OF_LISTENER.keys() | LISTENER_RULES.keys() | _LISTENER_APART

#: Settings of the broker.
GENERAL_RULES: Final[dict[str, Rule]] = leave_all(
    {
        _SYSTEMD: ("pid_file", "user"),
        _LOG: (
            "connection_messages",
            "log_facility",
            "log_timestamp",
            "log_timestamp_format",
            "log_type",
            "websockets_log_level",
        ),
        _DISK: ("autosave_interval", "autosave_on_changes"),
        "Bartleby writes everything to broker.data-directory: set that": (
            "persistence_file",
            "persistence_location",
        ),
        _OTHER_FILES: ("include_dir",),
        _ONE_ID: ("auto_id_prefix",),
        "create users again with `bartleby user`: passwords are not carried over": ("password_file",),
        "TLS with keys shared in advance is not supported: use certificates, docs/security.md": ("psk_file",),
        "waiting messages are limited by address, max-size-bytes, and in total, broker.global-max-size": (
            "max_queued_bytes",
        ),
        "unused sessions end by their expiry interval": ("global_max_clients",),
        "a message that matches several subscriptions of a client is delivered as MQTT specifies": (
            "allow_duplicate_messages",
        ),
        "expired retained messages are removed in time": ("retain_expiry_interval",),
        "a retained message stays, whatever becomes of its sender": ("check_retain_source",),
        "messages are sent again after a reconnect, not after a timeout": ("retry_interval",),
        _SOCKETS: ("set_tcp_nodelay",),
        "management goes over HTTP, with `bartleby` or any HTTP client": ("enable_control_api",),
        "Bartleby loads no plug-ins": ("auth_plugin_deny_special_chars",),
    }
) | {
    "global_max_connections": Take(("limits", "connections-max")),
    "log_dest": Always("stderr", _LOG),
    "memory_limit": Take(("broker", "global-max-size"), change="above it messages are paged to disk"),
    "per_listener_settings": Always(
        "false",
        "all acceptors have the same users and permissions; allowed-users and allowed-roles limit who may log in",
    ),
    "persistence": Always("true", "there is always a journal"),
    "queue_qos0_messages": Always("false", "messages of QoS 0 are not kept for a disconnected client"),
    "retained_persistence": Always("true", "there is always a journal"),
    "upgrade_outgoing_qos": Always("false", "a message has the lower QoS of its sender and of the subscription"),
}

#: Settings of the broker that are each listener's own with `per_listener_settings true`.
OWN: Final = frozenset(
    {
        "acl_file",
        "allow_anonymous",
        "allow_zero_length_clientid",
        "auth_plugin",
        "auth_plugin_deny_special_chars",
        "auto_id_prefix",
        "password_file",
        "plugin",
        "psk_file",
    }
)
GENERAL: Final = (
    GENERAL_RULES.keys() | EACH.keys() | STRICTER.keys() | {"allow_anonymous", "persistent_client_expiration"}
)

CHECKED: Final = "the certificate of the other broker is always checked, and must name the host in the url"
_SESSION: Final = "both brokers keep the session of a bridge: messages published while it is disconnected wait"
_NOTIFIED: Final = "links report their states on activemq.notifications, in the log and by `bartleby link`"
_CONNECTED: Final = "a link stays connected"
_ITSELF: Final = "the broker itself reads and writes the local topics: there is no local client"

#: Settings of bridges that are put to a link as numbers or texts.
OF_BRIDGE: Final[dict[str, Number]] = {
    "bridge_cafile": Number("ca"),
    "bridge_certfile": Number("certificate"),
    "bridge_keyfile": Number("key"),
    "bridge_receive_maximum": Number("window", change="it applies to both directions"),
    "keepalive_interval": Number("idle-timeout", 1_000),
}

#: Settings of bridges that have no counterpart, or need none.
BRIDGE_RULES: Final[dict[str, Rule]] = leave_all(
    {
        "the bridge is BROKER.LINK at the other broker: allow that client there": ("clientid", "remote_clientid"),
        _ITSELF: ("local_clientid", "local_password", "local_username"),
        _NOTIFIED: ("notification_topic", "notifications_local_only"),
        _CONNECTED: ("idle_timeout", "threshold"),
        _SOCKETS: ("bridge_bind_address", "bridge_tcp_keepalive", "bridge_tcp_user_timeout"),
        "TLS 1.2 and 1.3 are used, whichever both sides support": (
            "bridge_alpn",
            "bridge_ciphers",
            "bridge_ciphers_tls1.3",
            "bridge_tls_version",
        ),
        "authorities are one PEM file: write those of the directory into it, and name it as ca": ("bridge_capath",),
        "the other broker announces its largest packet; larger messages become dead letters": (
            "bridge_max_packet_size",
        ),
        "topics are sent without aliases": ("bridge_max_topic_alias",),
        _SESSION: ("bridge_session_expiry_interval",),
        "changes to a link apply when the broker starts": ("bridge_reload_type",),
    }
) | {
    "bridge_attempt_unsubscribe": Always("true", "a bridge unsubscribes from topics that it no longer has"),
    "bridge_insecure": Always("false", CHECKED),
    "bridge_outgoing_retain": Always("true", "retained messages are also retained at the other broker, if it can"),
    "cleansession": Always("false", _SESSION),
    "local_cleansession": Always("false", _SESSION),
    "notifications": Always("false", _NOTIFIED),
    "round_robin": Always("true", "all addresses are equal: a link stays where it is connected"),
    "try_private": Always("true", "to an MQTT 3.1.1 broker a bridge announces itself as one, unless that is refused"),
}

#: Settings of bridges that mosquitto_bridges.py translates.
_BRIDGE_APART: Final = frozenset(
    {
        "address",
        "addresses",
        "bridge_identity",
        "bridge_protocol_version",
        "bridge_psk",
        "bridge_require_ocsp",
        "bridge_tls_use_os_certs",
        "password",
        "remote_password",
        "remote_username",
        "restart_timeout",
        "start_type",
        "topic",
        "username",
    }
)
BRIDGE: Final = OF_BRIDGE.keys() | BRIDGE_RULES.keys() | _BRIDGE_APART

#: Mosquitto's start types: whether a link always does this, or why it cannot.
START: Final[dict[str, Rule]] = {
    "automatic": Always("automatic", ""),
    "lazy": Leave(_CONNECTED),
    "once": Leave(ALWAYS_TRIES),
}
