"""A mosquitto.conf as a broker.toml: what is read, the broker and its listeners, and which files are one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.importing import Imported, InvalidFile, Outcome, translate
from broker.importing.mosquitto_file import CONF_BYTES_MAX, read_conf
from broker.importing.mosquitto_tables import BRIDGE, GENERAL, LISTENER
from tests.broker.importing.harness import MOSQUITTO, finding, imported

LISTEN = "listener 1883\n"


def conf(text: str, tmp_path: Path) -> tuple[dict[str, Any], Imported]:
    """What comes of a file."""
    return imported(text.encode(), tmp_path)


def acceptor(text: str, tmp_path: Path, listen: str = LISTEN) -> tuple[dict[str, Any], Imported]:
    """The first acceptor of a file whose listener has these settings."""
    tables, found = conf(listen + text, tmp_path)
    return tables["acceptors"]["mqtt"], found


def test_every_line_is_in_the_report(tmp_path: Path) -> None:
    _, found = imported(MOSQUITTO, tmp_path)
    told = {each.place.line for each in found.report.findings}
    lines = enumerate(MOSQUITTO.decode().splitlines(), start=1)
    assert [line for number, line in lines if line and line[0] != "#" and number not in told] == []
    assert all(each.why for each in found.report.findings if each.outcome is not Outcome.TAKEN)
    assert found.text.startswith("# Made by `bartleby import` from a configuration of Mosquitto: ")


# -- which file it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["# all of it comments\n", "\ufeff\n  # so is this\n", "persistence true\n", "connection a\n", "wait 1\nuser me"],
)
def test_a_conf_is_recognised(text: str, tmp_path: Path) -> None:
    if text.startswith("wait"):
        with pytest.raises(InvalidFile, match="WAIT needs a value in parentheses"):
            conf(text, tmp_path)
        return
    _, found = conf(text, tmp_path)
    assert "Mosquitto" in found.text


@pytest.mark.parametrize("text", ["hello world", "[broker]\nname = 1", "{}", "\n\nfoo(bar)x", "server:\n  port: 1\n"])
def test_a_line_without_meaning_is_reported_with_its_number(text: str) -> None:
    with pytest.raises(InvalidFile, match=r"^line [13]: "):
        translate(text.encode())


def test_size_and_encoding_at_their_limits(tmp_path: Path) -> None:
    line = b"persistence true\n"
    read_conf(line + b"#" * (CONF_BYTES_MAX - len(line)))
    with pytest.raises(InvalidFile, match="larger than 1 MiB"):
        read_conf(line + b"#" * (CONF_BYTES_MAX - len(line) + 1))
    with pytest.raises(InvalidFile, match="line 2: not UTF-8"):
        read_conf(line + b"user \xff")


def test_lines_end_as_windows_ends_them_and_may_be_indented(tmp_path: Path) -> None:
    tables, _ = conf("listener 1884\r\n\t # nothing\r\n  max_qos 1\r\n", tmp_path)
    assert tables["acceptors"]["mqtt"]["maximum-qos"] == 1


def test_a_setting_is_of_one_kind() -> None:
    assert not BRIDGE & LISTENER
    assert not BRIDGE & GENERAL
    assert not LISTENER & GENERAL


def test_unknown_settings_are_reported_without_their_values(tmp_path: Path) -> None:
    _, found = conf("remote_pasword hunter\nuser me", tmp_path)
    told = finding(found, "remote_pasword")
    assert (told.outcome, told.place.line, told.place.value) == (Outcome.LEFT, 1, "")


# -- the broker --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("max_inflight_messages 20", {"default-maximum-in-flight-publish-messages": 20}),
        ("max_inflight_messages 0", {"default-maximum-in-flight-publish-messages": 65535}),
        ("max_inflight_bytes 0", {"in-flight-bytes-max": 0}),
        ("max_queued_messages 0", {"queued-messages-max": -1}),
        ("message_size_limit 0", {"message-size-limit": -1}),
        ("message_size_limit 1024", {"message-size-limit": "1KiB"}),
        ("max_packet_size 1048576", {"maximum-packet-size": "1MiB"}),
        ("max_keepalive 120", {"max-keepalive": "2min", "server-keep-alive": "2min"}),
        ("sys_interval 0", {"sys-interval": 0}),
        ("retain_available false", {"retain-available": False}),
        ("allow_zero_length_clientid 0", {"allow-zero-length-clientid": False}),
        (
            "persistent_client_expiration 14d",
            {"default-mqtt-session-expiry-interval": "14d", "max-session-expiry-interval": "14d"},
        ),
    ],
)
def test_settings_of_the_whole_broker_go_to_every_acceptor(
    line: str, settings: dict[str, object], tmp_path: Path
) -> None:
    tables, found = conf(f"{line}\nlistener 1\nlistener 2\n", tmp_path)
    for name in ("mqtt", "mqtt-2"):
        assert settings.items() <= tables["acceptors"][name].items()
    assert finding(found, line.partition(" ")[0]).outcome in (Outcome.TAKEN, Outcome.CHANGED)


def test_settings_of_the_broker(tmp_path: Path) -> None:
    tables, _ = conf("memory_limit 1048576\nglobal_max_connections 500\n", tmp_path)
    assert tables["broker"]["global-max-size"] == "1MiB"
    assert tables["limits"]["connections-max"] == 500


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("persistence false", "always a journal"),
        ("queue_qos0_messages true", "not kept"),
        ("max_queued_messages many", "not an integer"),
        ("max_packet_size 100", "the default stays"),
        ("persistent_client_expiration soon", "a number with s, h"),
        ("global_max_connections -1", "the default stays"),
        ("include_dir /etc/x", "not read"),
        ("log_dest syslog", "standard error"),
        ("password_file /etc/x", "create users again"),
        ("plugin_opt_key hunter", "plug-in"),
        ("per_listener_settings true", "the same users"),
    ],
)
def test_settings_left_out(line: str, why: str, tmp_path: Path) -> None:
    _, found = conf(f"{line}\n{LISTEN}", tmp_path)
    told = finding(found, line.partition(" ")[0])
    assert told.outcome is Outcome.LEFT
    assert why in told.why


def test_of_a_setting_given_twice_the_last_holds(tmp_path: Path) -> None:
    tables, found = conf("listener 1\nmax_qos 0\nmaximum_qos 1\n", tmp_path)
    assert tables["acceptors"]["mqtt"]["maximum-qos"] == 1
    assert finding(found, "listener 1: max_qos").why == "line 3 gives it again, and applies"


# -- who comes in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "anonymous", "outcome"),
    [
        ("allow_anonymous true\nlistener 1", True, Outcome.CHANGED),
        ("allow_anonymous 1\nlistener 1\nlistener 2\nlistener_allow_anonymous true", True, Outcome.CHANGED),
        ("allow_anonymous true\nacl_file /a\nlistener 1", None, Outcome.STRICTER),
        ("allow_anonymous true\nplugin /p.so\nlistener 1", None, Outcome.STRICTER),
        ("allow_anonymous true\nlistener 1\nlistener 2\nlistener_allow_anonymous false", None, Outcome.LEFT),
        ("allow_anonymous false\nlistener 1", None, Outcome.TAKEN),
        ("per_listener_settings true\nlistener 1\nallow_anonymous true\nlistener 2", None, Outcome.LEFT),
    ],
)
def test_anonymous_clients(text: str, anonymous: bool | None, outcome: Outcome, tmp_path: Path) -> None:
    tables, found = conf(text, tmp_path)
    assert tables.get("security", {}).get("anonymous") is anonymous
    assert outcome in {each.outcome for each in found.report.findings if each.place.what.endswith("allow_anonymous")}


@pytest.mark.parametrize(
    "name", ["acl_file", "plugin", "auth_plugin", "global_plugin", "plugin_load", "clientid_prefixes"]
)
def test_limits_of_clients_come_first_in_the_report(name: str, tmp_path: Path) -> None:
    _, found = conf(f"{name} /x\n{LISTEN}", tmp_path)
    assert finding(found, name).outcome is Outcome.STRICTER


@pytest.mark.parametrize(
    "line",
    [
        "mount_point devices",
        "bind_interface eth0",
        "proxy_protocol_v2_require_tls true",
        "psk_hint hint",
        "certfile /c.pem",
        "keyfile /k.pem",
        "certfile ${CERT}\nkeyfile /k.pem",
        "certfile /c.pem\nkeyfile /k.pem\ntls_engine pkcs11",
        "certfile /c.pem\nkeyfile /k.pem\nrequire_certificate true",
        "certfile /c.pem\nkeyfile /k.pem\ncapath /ca\nrequire_certificate true",
        "certfile /c.pem\nkeyfile /k.pem\ncafile ${CA}\nrequire_certificate true",
    ],
)
def test_a_door_that_would_be_wider_stays_shut(line: str, tmp_path: Path) -> None:
    found, report = acceptor(line, tmp_path)
    assert found["enabled"] is False
    assert report.report.count()[Outcome.STRICTER]


@pytest.mark.parametrize("name", ["acl_file", "plugin", "auth_plugin"])
def test_limits_of_the_clients_of_a_listener_shut_its_door(name: str, tmp_path: Path) -> None:
    text = f"per_listener_settings true\nlistener 1\n{name} /x\nplugin_opt_key hunter\nauto_id_prefix a\nlistener 2\n"
    tables, _ = conf(text, tmp_path)
    assert tables["acceptors"]["mqtt"]["enabled"] is False
    assert "enabled" not in tables["acceptors"]["mqtt-2"]


# -- listeners ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("", "127.0.0.1", 1883),
        ("max_connections 5", "127.0.0.1", 1883),
        ("port 1884", "0.0.0.0", 1884),
        ("bind_address 10.0.0.1", "10.0.0.1", 1883),
        ("port 1884\nbind_address ::1", "::1", 1884),
        ("listener 1885", "0.0.0.0", 1885),
        ("listener 1885\nsocket_domain ipv6", "::", 1885),
        ("listener 1885 # all", "0.0.0.0", 1885),
        ("listener 1885 192.168.0.1", "192.168.0.1", 1885),
        ("protocol mqtt\nlistener 1885", "0.0.0.0", 1885),
    ],
)
def test_where_it_listens(text: str, host: str, port: int, tmp_path: Path) -> None:
    tables, found = conf(f"persistence true\n{text}\n", tmp_path)
    assert tables["acceptors"].keys() == {"mqtt", "http"}
    assert (tables["acceptors"]["mqtt"]["host"], tables["acceptors"]["mqtt"]["port"]) == (host, port)
    told = {each.place.line for each in found.report.findings}
    assert told >= set(range(1, 2 + len(text.splitlines())))


def test_port_and_address_are_the_default_listeners_wherever_they_stand(tmp_path: Path) -> None:
    tables, _ = conf("listener 1884 10.0.0.1\nbind_address 10.0.0.2\nmax_qos 1\n", tmp_path)
    ours, named, _ = tables["acceptors"].values()
    assert (ours["host"], ours["port"], ours["maximum-qos"]) == ("10.0.0.2", 1883, 1)
    assert (named["host"], named["port"]) == ("10.0.0.1", 1884)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("listener 0 /run/mosquitto.sock", "Unix sockets"),
        ("listener many", "from 1 to 65535"),
        ("listener 65536", "from 1 to 65535"),
        ("listener " + "9" * 5000, "from 1 to 65535"),
        ("listener", "from 1 to 65535"),
        ("listener 8080\nprotocol http_api", "the acceptor for HTTP"),
        ("listener 1884\nprotocol mqttsn", "not supported"),
    ],
)
def test_listeners_that_are_no_acceptors(text: str, why: str, tmp_path: Path) -> None:
    tables, found = conf(f"max_packet_size 5000\npersistent_client_expiration 1d\n{text}\nmax_qos 1", tmp_path)
    assert "mqtt" not in tables.get("acceptors", {})
    assert why in finding(found, "listener").why
    assert finding(found, "max_packet_size").why == "no listener has become an acceptor"


def test_listeners_of_one_port_stay_two_and_the_second_cannot_be(tmp_path: Path) -> None:
    tables, found = conf("listener 1883 10.0.0.1\nlistener 1883 10.0.0.2\nlistener 1883 10.0.0.2\n", tmp_path)
    assert [acceptor.get("host") for acceptor in tables["acceptors"].values()] == ["10.0.0.1", "10.0.0.2", None]
    assert any("listens there already" in each.why for each in found.report.findings if each.place.line == 3)


def test_websockets(tmp_path: Path) -> None:
    tables, found = imported(MOSQUITTO, tmp_path)
    web = tables["acceptors"]["mqtt-9001"]
    assert web["websocket"] is True
    assert web["websocket-origins"] == ["https://app.example.org", "https://www.example.org"]
    assert finding(found, "listener 9001: accept_protocol_versions").outcome is Outcome.LEFT
    _, found = acceptor("protocol telex", tmp_path)
    assert finding(found, "listener 1883: protocol").outcome is Outcome.LEFT


def test_tls_keeps_its_files_and_waits_for_an_operator(tmp_path: Path) -> None:
    tables, found = imported(MOSQUITTO, tmp_path)
    assert tables["acceptors"]["mqtt-8883"]["enabled"] is False
    for name in ("certfile", "keyfile"):
        assert "set enabled = true" in finding(found, f"listener 8883: {name}").why
    assert tables["acceptors"]["mqtt-8883"]["tls"] == {
        "certificate": "/etc/mosquitto/server.crt",
        "key": "/etc/mosquitto/server.key",
        "client-ca": "/etc/mosquitto/ca.crt",
        "crl": "/etc/mosquitto/crl.pem",
        "need-client-auth": True,
        "versions": ["1.3"],
        "ciphers": "ECDHE-RSA-AES256-GCM-SHA384",
    }


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("cafile /ca.pem", Outcome.LEFT),
        ("crlfile /crl.pem", Outcome.LEFT),
        ("require_certificate false", Outcome.TAKEN),
        ("tls_version tlsv1.2", Outcome.TAKEN),
        ("tls_version tlsv1.1", Outcome.LEFT),
        ("tls_keyform pem", Outcome.TAKEN),
        ("disable_client_cert_date_checks true", Outcome.LEFT),
        ("ciphers_tls1.3 TLS_AES_128_GCM_SHA256", Outcome.LEFT),
        ("proxy_protocol_v2_require_tls false", Outcome.TAKEN),
    ],
)
def test_tls_without_certificates_of_clients(line: str, outcome: Outcome, tmp_path: Path) -> None:
    found, report = acceptor(f"certfile /c.pem\nkeyfile /k.pem\n{line}", tmp_path)
    assert "client-ca" not in found["tls"]
    assert not report.report.count()[Outcome.STRICTER]
    assert finding(report, f"listener 1883: {line.partition(' ')[0]}").outcome is outcome


def test_without_a_certificate_the_rest_of_tls_means_nothing(tmp_path: Path) -> None:
    found, report = acceptor("cafile /ca.pem\ntls_version tlsv1.3", tmp_path)
    assert "tls" not in found
    assert "no effect" in finding(report, "listener 1883: cafile").why
