"""Nobody opens a door by following the report: what made the old broker stricter is taken over, or told loudly."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from broker.importing import Imported, Outcome
from broker.importing.doors import _SUITE, _openssl
from tests.broker.importing.harness import broker, core, finding, imported


def artemis(parameters: str, tmp_path: Path) -> tuple[dict[str, Any], Imported]:
    """An acceptor of Artemis for AMQP."""
    uri = f"tcp://0.0.0.0:5671?protocols=AMQP;{parameters}"
    tables, found = imported(core(f'<acceptors><acceptor name="a">{uri}</acceptor></acceptors>'), tmp_path)
    return tables["acceptors"]["a"], found


def classic(parameters: str, tmp_path: Path, scheme: str = "amqp+ssl") -> tuple[dict[str, Any], Imported]:
    """A connector of ActiveMQ Classic for AMQP."""
    uri = f"{scheme}://0.0.0.0:5671?{parameters}"
    inner = f'<transportConnectors><transportConnector name="a" uri="{uri}"/></transportConnectors>'
    tables, found = imported(broker(inner), tmp_path)
    return tables["acceptors"]["a"], found


@pytest.mark.parametrize("need", [True, False])
def test_client_certificates_of_artemis(tmp_path: Path, need: bool) -> None:
    parameter = "needClientAuth" if need else "wantClientAuth"
    acceptor, found = artemis(f"{parameter}=true;sslEnabled=true;trustStorePath=t.jks;keyStorePath=k.jks", tmp_path)
    assert acceptor["enabled"] is False
    tls = acceptor["tls"]
    assert tls["need-client-auth" if need else "want-client-auth"] is True
    assert tls["client-ca"] == "/etc/bartleby/a-clients.pem"
    assert (tls["certificate"], tls["key"]) == ("/etc/bartleby/a.pem", "/etc/bartleby/a.key")
    assert "client-ca" in finding(found, f"acceptor a: {parameter}").why


@pytest.mark.parametrize("prefix", ["", "transport.", "socket."])
@pytest.mark.parametrize("scheme", ["amqp+ssl", "amqp+nio+ssl"])
def test_client_certificates_of_classic(tmp_path: Path, prefix: str, scheme: str) -> None:
    acceptor, _ = classic(f"{prefix}needClientAuth=true", tmp_path, scheme)
    assert acceptor["enabled"] is False
    assert acceptor["tls"]["need-client-auth"] is True


def test_without_tls_they_mean_nothing(tmp_path: Path) -> None:
    acceptor, found = artemis("needClientAuth=true;sslEnabled=false", tmp_path)
    assert "tls" not in acceptor
    assert "enabled" not in acceptor
    assert finding(found, "acceptor a: needClientAuth").outcome is Outcome.LEFT


@pytest.mark.parametrize(
    ("parameters", "key", "value"),
    [
        ("enabledProtocols=TLSv1.3", "versions", ["1.3"]),
        ("enabledProtocols=TLSv1.1, TLSv1.2,TLSv1.3", "versions", ["1.2", "1.3"]),
        ("enabledProtocols=SSLv3,TLSv1", "versions", None),
        ("enabledCipherSuites=TLS_AES_256_GCM_SHA384", "versions", ["1.3"]),
        ("enabledCipherSuites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ciphers", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("enabledCipherSuites=TLS_RSA_WITH_AES_128_CBC_SHA", "ciphers", None),
        ("needClientAuth=true;crlPath=/etc/crl.pem", "crl", "/etc/crl.pem"),
        ("crlPath=/etc/crl.pem", "crl", None),
        ("sniHost=broker\\.example\\.org", "sni-hosts", ["broker.example.org"]),
        ("sniHost=a.example.org|b.example.org", "sni-hosts", ["a.example.org", "b.example.org"]),
    ],
)
def test_settings_that_the_tls_section_has_too(tmp_path: Path, parameters: str, key: str, value: object) -> None:
    acceptor, found = artemis(f"sslEnabled=true;{parameters}", tmp_path)
    assert acceptor["tls"].get(key) == value
    assert not found.report.count()[Outcome.STRICTER]


@pytest.mark.parametrize("exchange", ["ECDHE_RSA", "ECDHE_ECDSA"])
@pytest.mark.parametrize("cipher", ["AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256"])
def test_suites_are_openssls(exchange: str, cipher: str) -> None:
    suite = f"TLS_{exchange}_WITH_{cipher}"
    assert _SUITE.fullmatch(suite)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(_openssl(suite))
    assert _openssl(suite) in [each["name"] for each in context.get_ciphers()]


@pytest.mark.parametrize(
    "parameter",
    [
        "securityDomain=other",
        "saslMechanisms=EXTERNAL",
        "saslMechanisms=GSSAPI",
        "verifyHost=true",
        "trustManagerFactoryPlugin=org.example.Mine",
        "ocspResponderURL=http://ocsp.example.org",
        "sniHost=.*\\.example\\.org",
    ],
)
def test_settings_without_a_counterpart_shut_the_door_and_come_first(tmp_path: Path, parameter: str) -> None:
    acceptor, found = artemis(("sslEnabled=true;" if "sni" in parameter else "") + parameter, tmp_path)
    assert acceptor["enabled"] is False
    what = f"acceptor a: {parameter.partition('=')[0]}"
    assert finding(found, what).outcome is Outcome.STRICTER
    lines = list(found.report.lines())
    assert "1 that the old broker was stricter in" in lines[0]
    assert lines[2].startswith("Stricter in the old broker")
    assert what in lines[3]


def test_an_acceptor_that_is_not_started_is_not_started(tmp_path: Path) -> None:
    acceptor, _ = artemis("autoStart=false", tmp_path)
    assert acceptor["enabled"] is False


@pytest.mark.parametrize("parameter", ["saslMechanisms=PLAIN,SCRAM-SHA-512", "verifyHost=false", "trustAll=true"])
def test_settings_that_were_not_stricter_shut_nothing(tmp_path: Path, parameter: str) -> None:
    acceptor, found = artemis(parameter, tmp_path)
    assert "enabled" not in acceptor
    assert not found.report.count()[Outcome.STRICTER]


ALL = '<security-setting match="#"><permission type="send" roles="everybody"/></security-setting>'


@pytest.mark.parametrize("inner", ["", '<permission type="view" roles="x"/>', '<permission type="send" roles=""/>'])
def test_an_entry_that_permits_nothing_stays(tmp_path: Path, inner: str) -> None:
    """Without it that of # would decide."""
    entry = f'<security-setting match="secret.#">{inner}</security-setting>'
    tables, _ = imported(core(f"<security-settings>{ALL}{entry}</security-settings>"), tmp_path)
    assert {"match": "secret.#", "send": []} in tables["security-settings"]


def test_an_entry_of_classic_that_permits_nothing_stays(tmp_path: Path) -> None:
    entries = '<authorizationEntry queue=">" read="everybody"/><authorizationEntry queue="secret.>"/>'
    frame = f"<map><authorizationMap><authorizationEntries>{entries}</authorizationEntries></authorizationMap></map>"
    tables, _ = imported(broker(f"<plugins><authorizationPlugin>{frame}</authorizationPlugin></plugins>"), tmp_path)
    assert {"match": "secret.#", "send": []} in tables["security-settings"]


@pytest.mark.parametrize("inner", ["", '<permission type="send" roles="admins"/>'])
def test_an_entry_that_cannot_be_is_told_loudly(tmp_path: Path, inner: str) -> None:
    entry = f'<security-setting match="a.#.secret">{inner}</security-setting>'
    _, found = imported(core(f"<security-settings>{ALL}{entry}</security-settings>"), tmp_path)
    (told, *_) = [each for each in found.report.findings if each.outcome is Outcome.STRICTER]
    assert "a.#.secret" in told.place.what
    assert "broader match" in told.why
