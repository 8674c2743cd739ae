"""Reading a configuration: values, defaults, and problems that name file, key, value and fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from broker.config import (
    AddressSection,
    AddressSetting,
    Config,
    ConfigError,
    Problem,
    SecuritySetting,
    StompAcceptor,
    load,
)
from broker.config.addresses import DEFAULTS, REFUSED_SETTINGS, Queue
from broker.config.load import AS_SHIPPED, validated
from broker.config.relations import clashes
from broker.config.schema import model_fields
from broker.config.security import REFUSED_PERMISSIONS
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission
from broker.engine.model.settings import AddressFullPolicy, AddressSettings, DeliveryCountPersistence, from_mapping
from broker.engine.model.settings_match import SettingsTable

Write = Callable[[str], Path]


Row = tuple[str, str, str, str]


def acceptor(protocol: str, setting: str, value: str, fix: str) -> Row:
    """What is wrong with a setting of an acceptor: the text, the key, the value, and how it is corrected."""
    return f'[acceptors.a]\nprotocol = "{protocol}"\n{setting} = {value}\n', f"acceptors.a.{setting}", value, fix


def origin(value: str) -> Row:
    """The same for an origin of WebSockets."""
    fix = "give a scheme and a host as browsers send them"
    text, key, _, _ = acceptor("mqtt", "websocket-origins", f"[{value}]", fix)
    return text, f"{key}[0]", value, fix


def failover(value: str) -> Row:
    """The same for where a broker of a pair is found."""
    fix = "give a host name or address as clients know it"
    return f"[broker]\nfailover-hosts = [{value}]\n", "broker.failover-hosts[0]", value, fix


def address(setting: str, value: str, fix: str) -> Row:
    """The same for a setting of addresses."""
    return f'[[address-settings]]\nmatch = "#"\n{setting} = {value}\n', f'address-settings["#"].{setting}', value, fix


def problems(path: Path | None, environment: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(path, environment or {})
    return caught.value.problems


@pytest.mark.parametrize(("count", "length"), [(32, 255), (33, 5), (1, 256)])
def test_how_many_failover_hosts_there_may_be(write: Write, count: int, length: int) -> None:
    """All of them go into one Server Reference of MQTT and one header of STOMP."""
    hosts = [f"{number:05}".ljust(length, "x") for number in range(count)]
    path = write(f"[broker]\nfailover-hosts = {json.dumps(hosts)}\n")
    if (count, length) == (32, 255):
        assert load(path).broker.failover_hosts == tuple(hosts)
    else:
        with pytest.raises(ConfigError, match="failover-hosts"):
            load(path)


@pytest.mark.parametrize("host", ["one", "one.example:61613", "192.0.2.1", "[2001:db8::1]", "[2001:db8::1]:5672"])
def test_failover_hosts(write: Write, host: str) -> None:
    assert load(write(f'[broker]\nfailover-hosts = ["{host}"]\n')).broker.failover_hosts == (host,)


def test_as_shipped() -> None:
    config = load(None)
    assert list(config.messaging_acceptors) == ["stomp", "amqp", "mqtt"]
    assert list(config.http_acceptors) == ["http"]
    assert config.acceptors["stomp"].port == 61_613
    assert config.acceptors["http"].port == 8_161
    assert all(acceptor.is_loopback for acceptor in config.acceptors.values())
    assert [setting.match for setting in config.security_settings] == ["#"]
    assert config.certificate_users == ()
    anycast = Queue.model_validate({"routing-type": "ANYCAST"})
    assert {name: address.queues for name, address in config.addresses.items()} == {
        "DLQ": {"DLQ": anycast},
        "ExpiryQueue": {"ExpiryQueue": anycast},
    }
    assert config.setting_matches() == [
        ("#", {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue", "auto_delete_queues": False})
    ]


SHIPPED_SETTINGS = {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue", "auto_delete_queues": False}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"#": SHIPPED_SETTINGS}),
        ("address-settings = []\n", {"#": SHIPPED_SETTINGS}),
        (
            '[[address-settings]]\nmatch = "orders.#"\nmax-delivery-attempts = 3\n',
            {"orders.#": {"max_delivery_attempts": 3}, "#": SHIPPED_SETTINGS},
        ),
        (
            '[[address-settings]]\nmatch = "#"\ndead-letter-address = ""\nmax-delivery-attempts = 3\n',
            {"#": SHIPPED_SETTINGS | {"dead_letter_address": "", "max_delivery_attempts": 3}},
        ),
        (
            '[wildcard-addresses]\nany-words = "%"\n[[address-settings]]\nmatch = "a"\nexpiry-address = ""\n',
            {"a": {"expiry_address": ""}, "%": SHIPPED_SETTINGS},
        ),
        (
            '[wildcard-addresses]\nany-words = "%"\n[[address-settings]]\nmatch = "%"\nexpiry-address = ""\n',
            {"%": SHIPPED_SETTINGS | {"expiry_address": ""}},
        ),
    ],
)
def test_shipped_address_settings_hold_unless_overridden_field_by_field(
    write: Write, text: str, expected: dict[str, object]
) -> None:
    assert dict(load(write(text)).setting_matches()) == expected


def test_a_file_replaces_names_as_a_whole_and_settings_one_by_one(write: Write) -> None:
    config = load(
        write("""
            [broker]
            name = "north"
            connection-ttl = "5min"
            [journal.retention]
            enabled = true
            [acceptors.orders]
            protocol = "stomp"
            port = 0
            stomp-consumer-window-size = "10K"
            [addresses.prices]
            routing-types = ["MULTICAST"]
            [addresses.prices.queues.archive]
            routing-type = "ANYCAST"
            durable = false
            filter = "price > 10"
            """)
    )
    assert config.broker.name == "north"
    assert config.broker.connection_ttl == 300_000
    assert config.broker.transaction_timeout == 300_000
    assert config.journal.retention.enabled
    assert config.journal.segment_size == 64 << 20
    assert list(config.acceptors) == ["orders"]
    orders = config.messaging_acceptors["orders"]
    assert isinstance(orders, StompAcceptor)
    assert orders.stomp_consumer_window_size == 10_240
    assert list(config.addresses) == ["prices"]
    prices = config.addresses["prices"]
    assert prices.routing_types == (RoutingType.MULTICAST,)
    assert prices.all_routing_types == {RoutingType.ANYCAST, RoutingType.MULTICAST}
    assert (prices.queues["archive"].durable, prices.queues["archive"].filter) == (False, "price > 10")
    assert config.address_settings == load(None).address_settings


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load(None).broker.name = "other"  # type: ignore[misc]


def test_unset_values_are_left_to_the_engine(write: Write) -> None:
    config = load(
        write("""
            [[address-settings]]
            match = "orders.#"
            delivery-count-persistence = "strict"
            address-full-policy = "FAIL"
            default-queue-routing-type = "ANYCAST"
            expiry-address = ""
            redelivery-delay = "2s"
            redelivery-delay-multiplier = 2
            """)
    )
    fields = dict(config.setting_matches())["orders.#"]
    assert fields == {
        "delivery_count_persistence": DeliveryCountPersistence.STRICT,
        "address_full_policy": AddressFullPolicy.FAIL,
        "default_queue_routing_type": RoutingType.ANYCAST,
        "expiry_address": "",
        "redelivery_delay": 2_000,
        "redelivery_delay_multiplier": 2.0,
    }
    merged = SettingsTable(config.setting_matches(), config.setting_defaults()).resolve("orders.eu")
    assert from_mapping(merged) == from_mapping(DEFAULTS | SHIPPED_SETTINGS | fields)


@pytest.mark.parametrize(("written", "persistence"), [("true", "strict"), ("false", "on-return")])
def test_artemis_name_for_strict(write: Write, written: str, persistence: str) -> None:
    config = load(write(f'[[address-settings]]\nmatch = "a"\npersist-delivery-count-before-delivery = {written}\n'))
    fields = dict(config.setting_matches())["a"]
    assert fields == {"delivery_count_persistence": DeliveryCountPersistence(persistence)}


def test_address_settings_are_the_engines_with_its_defaults() -> None:
    names = set(AddressSetting.model_fields) - {"match", "persist_delivery_count_before_delivery", "last_value_queue"}
    assert names == set(DEFAULTS)
    assert AddressSettings() == from_mapping(DEFAULTS)
    assert all(AddressSetting.model_fields[name].default is None for name in names)


ARTEMIS_SETTINGS = """
    dead-letter-address auto-create-dead-letter-resources dead-letter-queue-prefix dead-letter-queue-suffix
    expiry-address auto-create-expiry-resources expiry-queue-prefix expiry-queue-suffix no-expiry expiry-delay
    min-expiry-delay max-expiry-delay redelivery-delay redelivery-delay-multiplier redelivery-collision-avoidance-factor
    max-redelivery-delay max-delivery-attempts max-redelivery-records send-to-dla-on-no-route max-size-bytes
    max-size-messages max-size-bytes-reject-threshold address-full-policy disk-full-policy page-size-bytes
    page-max-cache-size max-read-page-messages max-read-page-bytes prefetch-page-messages prefetch-page-bytes
    page-limit-bytes page-limit-messages page-full-policy message-counter-history-day-limit default-last-value-queue
    last-value-queue default-last-value-key default-non-destructive default-exclusive-queue default-group-rebalance
    default-group-rebalance-pause-dispatch default-group-buckets default-group-first-key
    default-consumers-before-dispatch default-delay-before-dispatch default-max-consumers
    default-purge-on-no-consumers default-ring-size default-queue-routing-type default-address-routing-type
    default-consumer-window-size redistribution-delay slow-consumer-threshold slow-consumer-threshold-measurement-unit
    slow-consumer-check-period slow-consumer-policy auto-create-queues auto-create-addresses auto-delete-queues
    auto-delete-addresses auto-delete-created-queues auto-delete-queues-delay auto-delete-addresses-delay
    auto-delete-queues-message-count auto-delete-queues-skip-usage-check auto-delete-addresses-skip-usage-check
    config-delete-queues config-delete-addresses config-delete-diverts management-browse-page-size
    management-message-attribute-size-limit retroactive-message-count enable-metrics enable-ingress-timestamp
    id-cache-size initial-queue-buffer-size queue-prefetch auto-create-jms-queues auto-create-jms-topics
    auto-delete-jms-queues auto-delete-jms-topics persist-delivery-count-before-delivery
    """


def test_every_setting_of_artemis_is_taken_or_refused_with_a_reason() -> None:
    taken = set(model_fields(AddressSetting)) - {"match"}
    assert taken.isdisjoint(REFUSED_SETTINGS)
    assert taken | set(REFUSED_SETTINGS) == {*ARTEMIS_SETTINGS.split(), "delivery-count-persistence"}


def test_every_permission_of_artemis_is_taken_or_refused_with_a_reason() -> None:
    taken = set(SecuritySetting.model_fields) - {"match"}
    assert taken == {permission.value for permission in Permission}
    assert taken.isdisjoint(REFUSED_PERMISSIONS)
    every = "send consume browse createAddress deleteAddress createDurableQueue deleteDurableQueue"
    every += " createNonDurableQueue deleteNonDurableQueue manage view edit"
    assert taken | set(REFUSED_PERMISSIONS) == {*every.split(), "manageSessions"}


# -- problems ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "value", "fix"),
    [
        ("[brokr]\n", "brokr", "", "unknown section: did you mean broker?"),
        ("[zzz]\n", "zzz", "", "unknown section: known are acceptors, address-settings, addresses, broker,"),
        ("broker = 5\n", "broker", "5", "give a table"),
        ("[broker]\nnmae = 3\n", "broker.nmae", "3", "unknown setting: did you mean name?"),
        ("[broker]\nconnection_ttl = 3\n", "broker.connection_ttl", "3", "did you mean connection-ttl?"),
        ("[broker]\nname = 3\n", "broker.name", "3", "give a text, in quotes"),
        ('[broker]\nname = ""\n', "broker.name", '""', "give a text that is not empty"),
        (f'[broker]\nname = "{"x" * 256}"\n', "broker.name", '"' + "x" * 74 + "...", "give at most 255 characters"),
        ("[broker]\ndata-directory = 7\n", "broker.data-directory", "7", "give a path, in quotes"),
        ('[broker]\nconnection-ttl = "60"\n', "broker.connection-ttl", '"60"', "a text with a unit"),
        ("[broker]\nconnection-ttl = -2\n", "broker.connection-ttl", "-2", "give -1 or more"),
        ("[broker]\nconnection-ttl = true\n", "broker.connection-ttl", "true", "give milliseconds"),
        ("[broker]\nglobal-max-size = 1.5\n", "broker.global-max-size", "1.5", "give bytes"),
        ("[broker]\nglobal-max-size-percent = 101\n", "broker.global-max-size-percent", "101", "give 100 or less"),
        ('[broker]\nglobal-max-size-percent = "5"\n', "broker.global-max-size-percent", '"5"', "give an integer"),
        ('[log]\nlevel = "loud"\n', "log.level", '"loud"', "give 'debug', 'info', 'warning' or 'error'"),
        ('[security]\nanonymous = "yes"\n', "security.anonymous", '"yes"', "give true or false"),
        ("[acceptors.stomp]\n", "acceptors.stomp", "", 'add protocol = "stomp", "amqp", "mqtt" or "http"'),
        (
            '[acceptors.a]\nprotocol = "gopher"\n',
            "acceptors.a.protocol",
            '"gopher"',
            'give "stomp", "amqp", "mqtt" or "http"',
        ),
        (
            '[acceptors.a]\nprotocol = "openwire"\n',
            "acceptors.a.protocol",
            '"openwire"',
            "this version does not speak openwire: remove the acceptor",
        ),
        acceptor("stomp", "port", "65536", "give 65535 or less"),
        acceptor("stomp", "heart-beat-to-connection-ttl-modifier", "nan", "give a finite number"),
        failover('""'),
        failover('"one two"'),
        failover('"amqp://one"'),
        failover('"one:"'),
        failover('"one:0"'),
        failover('"one:65536"'),
        failover('"2001:db8::1"'),
        origin('"app.example.org"'),
        origin('"https://app.example.org/"'),
        origin('"https://App.example.org"'),
        origin('"https://app.example.org:443"'),
        acceptor("http", "handshake-timeout", "5", "unknown setting"),
        ("[addresses.a.queues.q]\n", "addresses.a.queues.q.routing-type", "", "this key is required: add it"),
        (
            '[addresses.a.queues.q]\nrouting-type = "anycast"\n',
            "addresses.a.queues.q.routing-type",
            '"anycast"',
            'give "ANYCAST" or "MULTICAST"',
        ),
        ("[addresses.a]\nrouting-types = 3\n", "addresses.a.routing-types", "3", "give a list"),
        ("[acceptors]\nstomp = 5\n", "acceptors.stomp", "5", "give a table"),
        ("[broker]\nname = bartleby\n", "line 2, column 8", "", "correct the TOML there; a text needs quotes"),
        ("[[address-settings]]\n", "address-settings[0].match", "", "this key is required: add it"),
        ("[address-settings]\n", "address-settings", "", "write [[address-settings]]"),
        address("page-full-policy", '"PAGE"', 'give one of "OFF", "DROP", "FAIL"'),
        address("address-full-policy", '"STOP"', 'give one of "BLOCK", "DROP", "FAIL", "PAGE"'),
        address("delivery-count-persistence", "true", 'give one of "on-return", "strict"'),
        address("max-redelivery-records", "10", "delivery counts are never forgotten"),
        address("max-size-byte", "10", "did you mean max-size-bytes?"),
        address("page-size-bytes", "10", "paged messages stay in the journal"),
        (
            '[[security-settings]]\nmatch = "#"\nview = ["admin"]\n',
            'security-settings["#"].view',
            "",
            "management calls that only read also need manage",
        ),
    ],
)
def test_a_problem_names_file_key_value_and_fix(write: Write, text: str, key: str, value: str, fix: str) -> None:
    path = write(text)
    [problem] = problems(path)
    assert (problem.file, problem.key, problem.value) == (str(path), key, value)
    assert fix in problem.fix
    assert str(problem).startswith(f"{path}: {key}")


def test_all_problems_are_told_at_once(write: Write) -> None:
    path = write("""
        [broker]
        nmae = "x"
        connection-ttl = "soon"
        [limits]
        body-bytes-max = "1GiB"
        [acceptors.openwire]
        protocol = "openwire"
        [acceptors.stomp]
        protocol = "stomp"
        connection-ttl-min = "2s"
        connection-ttl-max = "1s"
        [[address-settings]]
        max-size-bytes = "-1"
        [[address-settings]]
        match = "a"
        min-expiry-delay = 2
        max-expiry-delay = 1
        """)
    assert {problem.key for problem in problems(path)} == {
        "broker.nmae",
        "broker.connection-ttl",
        "limits.body-bytes-max",
        "acceptors.openwire.protocol",
        "acceptors.stomp.connection-ttl-min",
        "address-settings[0].match",
        "address-settings[0].max-size-bytes",
        'address-settings["a"].min-expiry-delay',
    }


def test_a_value_that_is_wrong_in_itself_is_in_no_relation(write: Write) -> None:
    path = write('[journal]\nsegment-size = "1EiB"\n[limits]\nbody-bytes-max = "1GiB"\n[log]\nlevel = 5\n')
    assert [problem.key for problem in problems(path)] == ["log.level", "journal.segment-size"]


@pytest.mark.parametrize(
    ("content", "key", "fix"),
    [
        (b"[broker]\nname = \n", "line 2, column 8", "Invalid value"),
        (b"[broker]\nname = 1\nname = 2\n", "line 3, column 9", "Cannot overwrite a value"),
        (b"[log\n", "line 1, column 5", "Expected ']'"),
        (b"[log]\nlevel = '''", "end of document", "Expected \"'''\""),
        (b"# fine\n# \xff\n", "line 2", "not UTF-8"),
        (b"a = " + b"[" * 5_000, "the file", "nested more than"),
        (b"a = " + b"[" * 17 + b"]" * 17, "the file", "nested more than"),
    ],
)
def test_bad_syntax_is_told_with_its_line(tmp_path: Path, content: bytes, key: str, fix: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_bytes(content)
    [problem] = problems(path)
    assert (problem.file, problem.key) == (str(path), key)
    assert fix in problem.fix


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert str(problems(tmp_path / "none")[0]).endswith(
        "none: the file: No such file or directory: name a readable file"
    )
    assert "Is a directory" in problems(tmp_path)[0].fix


@pytest.mark.parametrize(
    "text",
    [
        'users = "geheim"\n',
        'users = ["geheim"]\n',
        '[users]\nalice = "geheim"\n',
        '[users.alice]\npasword = "geheim"\n',
        '[users.alice]\npassword = ["geheim"]\n',
        '[users.alice]\npassword.plain = "geheim"\n',
        '[users.alice.password]\nplain = "geheim"\n',
        '[users.alice]\npassword = "geheim"\nname = 7\n',
        '[users.alice]\npassword = "geheim" x\n',
    ],
)
def test_a_password_is_in_no_problem(write: Write, text: str) -> None:
    told = "\n".join(map(str, problems(write(text))))
    assert "geheim" not in told
    assert told


def test_data_directory_option() -> None:
    assert load(None, data=Path("/srv/b")).broker.data_directory == Path("/srv/b")
    assert load(None).broker.data_directory == Path("var")


# -- anything ----------------------------------------------------------------------------------------------------------

_keys = st.sampled_from(
    sorted(
        {
            key
            for model in (Config, AddressSection, AddressSetting, Queue, SecuritySetting, StompAcceptor)
            for key in model_fields(model)
        }
        | {"stomp", "DLQ", "retention", "segment-size", "x"}
    )
)
_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 2**70),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["stomp", "http", "ANYCAST", "#", "1s", "PAGE"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(_keys, _values, max_size=6))
def test_whatever_a_file_holds_there_is_a_configuration_or_there_are_problems(raw: dict[str, object]) -> None:
    config, found, broken = validated(raw, lambda _: AS_SHIPPED)
    assert all(problem.key and problem.fix for problem in found)
    assert bool(found) is bool(broken)
    assert all(clash.keys and clash.fix for clash in clashes(config))
