"""`bartleby config check`: what the start would find in the files that a configuration names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.config import Config, load
from broker.config.links import PORTS
from broker.daemon.linking import make_dialer
from broker.security import checks
from broker.security.reload import prepare
from broker.security.users_file import StoredUser, UnusableFile, write_users
from broker.security.validity import SOON_DAYS, Span, first_end
from tests.broker.cli.harness import invoke
from tests.support.certificates import Authority
from tests.support.sim_broker import SimBroker
from tests.support.sim_gate import cheap_user
from tests.support.sim_links import SimLinks

SETTINGS = """
[broker]
data-directory = "{0}/data"
[security]
users-file = "{0}/users.toml"
audit-file = "{0}/audit.jsonl"
[security.jwt]
issuer = "https://issuer.example"
audience = "bartleby"
keys-file = "{0}/jwks.json"
[acceptors.stomp]
protocol = "stomp"
port = 0
[acceptors.stomp.tls]
certificate = "{0}/server.pem"
key = "{0}/server.key"
client-ca = "{0}/ca.pem"
need-client-auth = true
crl = "{0}/revoked.pem"
"""

_JWKS = {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}


class Site:
    """A configuration whose files are all in order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        (directory / "ca.pem").write_bytes(self.authority.path.read_bytes())
        self.authority.issue("server", file="server")
        self.authority.revoke("server")
        write_users(directory / "users.toml", {"alice": cheap_user("secret")})
        (directory / "jwks.json").write_text(json.dumps(_JWKS))
        self.file = directory / "broker.toml"
        self.file.write_text(SETTINGS.format(directory))

    def path(self, name: str) -> Path:
        return self.directory / name

    def refusal(self, config: Config) -> str:
        """What the start says, without the file's name; nothing if it does not mind."""
        try:
            prepare(config, known=False)
        except UnusableFile as error:
            return str(error).rpartition(": ")[2]
        return ""

    def check(self) -> list[str]:
        """The problems; those of the start are the first of them."""
        config = load(self.file)
        found = [str(problem) for problem in checks.problems(config, str(self.file))]
        refusal = self.refusal(config)
        assert any(refusal in problem for problem in found) if refusal else all("audit" in each for each in found)
        assert all(problem.startswith(f"{self.file}: ") for problem in found)
        return [problem.removeprefix(f"{self.file}: ") for problem in found]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_files_in_order_are_ok(site: Site) -> None:
    assert site.check() == []
    result = invoke("config", "check", "--config", str(site.file))
    assert (result.exit_code, result.stdout) == (0, f"{site.file}: ok\n")
    assert not (site.directory / "audit.jsonl").exists()
    assert not (site.directory / "data").exists()


@pytest.mark.parametrize("name", ["users.toml", "jwks.json", "server.pem", "server.key", "ca.pem", "revoked.pem"])
def test_each_file_that_the_start_reads_is_read_again_when_it_changes(site: Site, name: str) -> None:
    config = load(site.file)
    before = prepare(config, known=False).stamp
    assert prepare(config, known=False).stamp == before
    path = site.path(name)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert prepare(config, known=False).stamp != before


def replaced(name: str, content: bytes) -> Callable[[Site], None]:
    return lambda site: (site.path(name).write_bytes(content), None)[1]


def gone(name: str) -> Callable[[Site], None]:
    return lambda site: site.path(name).unlink()


def other_key(site: Site) -> None:
    _, key = site.authority.issue("other", file="other")
    site.path("server.key").write_bytes(key.read_bytes())


def certificate_for_list(site: Site) -> None:
    site.path("revoked.pem").write_bytes(site.path("ca.pem").read_bytes())


def list_for_authority(site: Site) -> None:
    site.path("ca.pem").write_bytes(site.path("revoked.pem").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "setting", "text"),
    [
        (gone("users.toml"), "security.users-file", "there is no users file: create it with `bartleby user add`"),
        (lambda site: site.path("users.toml").chmod(0o644), "security.users-file", "chmod 600"),
        (replaced("users.toml", b"[alice]\npass = 1\n"), "security.users-file", "there is no key pass"),
        (gone("jwks.json"), "security.jwt.keys-file", "let the broker's user read it"),
        (lambda site: site.path("jwks.json").chmod(0o666), "security.jwt.keys-file", "chmod 644"),
        (replaced("jwks.json", b"{}"), "security.jwt.keys-file", "it is not a key set"),
        (gone("server.pem"), "acceptors.stomp.tls", "server.pem: it cannot be read: No such file or directory: name a"),
        (gone("server.key"), "acceptors.stomp.tls", "server.key: the key cannot be read: No such file or directory"),
        (lambda site: site.path("server.key").chmod(0o644), "acceptors.stomp.tls", "chmod 600"),
        (replaced("server.pem", b"x"), "acceptors.stomp.tls", "server.pem: it cannot be used for TLS"),
        (replaced("server.key", b"x"), "acceptors.stomp.tls", "server.key: it cannot be used for TLS"),
        (other_key, "acceptors.stomp.tls", "server.pem: name a pair that belongs together"),
        (replaced("ca.pem", b""), "acceptors.stomp.tls", "ca.pem: it cannot be used for TLS"),
        (list_for_authority, "acceptors.stomp.tls", "contains no certificate of an authority"),
        (replaced("revoked.pem", b"x"), "acceptors.stomp.tls", "revoked.pem: it cannot be used for TLS"),
        (certificate_for_list, "acceptors.stomp.tls", "revoked.pem contains no revocation list"),
        (lambda site: site.path("audit.jsonl").mkdir(), "security.audit-file", "it cannot be written"),
    ],
)
def test_each_file_that_is_wrong_is_told_with_its_setting(
    site: Site, spoil: Callable[[Site], None], setting: str, text: str
) -> None:
    spoil(site)
    [problem] = site.check()
    assert problem.startswith(setting)
    assert text in problem


@pytest.mark.parametrize(
    ("name", "setting", "text"),
    [
        (
            "link.password",
            "links.paris.password-file",
            "the password cannot be read: No such file or directory",
        ),
        ("ca.pem", "links.paris", "ca.pem: it cannot be read: No such file or directory: name a file"),
        ("server.pem", "links.paris", "server.pem: it cannot be read: No such file or directory: name a file"),
    ],
)
def test_files_of_links(site: Site, name: str, setting: str, text: str) -> None:
    place = site.directory
    place.joinpath("link.password").write_text("secret")
    files = f'password-file = "{place}/link.password"\nca = "{place}/ca.pem"\ncertificate = "{place}/server.pem"'
    link = f'[links.paris]\nurl = "amqps://paris"\nuser = "u"\n{files}\nkey = "{place}/server.key"\n'
    site.file.write_text(link)
    assert checks.problems(load(site.file), "broker.toml") == []
    site.path(name).unlink()
    [problem] = map(str, checks.problems(load(site.file), "broker.toml"))
    assert problem.startswith(f"broker.toml: {setting}")
    assert text in problem


def test_all_at_once(site: Site) -> None:
    for name in ("users.toml", "jwks.json", "server.key"):
        site.path(name).unlink()
    result = invoke("config", "check", "--config", str(site.file))
    assert result.exit_code == 2
    assert [name in result.stderr for name in ("users-file", "keys-file", "stomp.tls")] == [True] * 3


def test_a_directory_for_the_audit_log_that_is_not_there(site: Site) -> None:
    site.file.write_text(site.file.read_text().replace("audit.jsonl", "logs/audit.jsonl"))
    [problem] = site.check()
    assert "create it" in problem


def test_authorities_of_the_issuer_s_url(site: Site) -> None:
    other = f'keys-url = "https://issuer.example/keys"\nca-file = "{site.directory}/ca.pem"'
    site.file.write_text(site.file.read_text().replace(f'keys-file = "{site.directory}/jwks.json"', other))
    assert site.check() == []
    site.path("ca.pem").write_bytes(b"x")
    found = [str(problem) for problem in checks.problems(load(site.file), "x")]
    assert any("security.jwt.ca-file" in problem for problem in found)


@pytest.mark.parametrize(("days", "text"), [(-5, "not valid before"), (0, "expires on"), (2, "expired on")])
def test_a_certificate_that_ends_soon_or_has_ended_is_a_warning(site: Site, days: int, text: str) -> None:
    """Those of the tests last from yesterday until tomorrow."""
    found = [str(each) for each in checks.warnings(load(site.file), "x", datetime.now(UTC) + timedelta(days=days))]
    assert len(found) == 3
    for key, each in zip(("certificate", "client-ca", "crl"), found, strict=True):
        assert each.startswith(f"x: acceptors.stomp.tls.{key} = ")
        assert text in each


def test_the_warning_comes_in_time() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    end = begin + timedelta(days=90)
    span = Span("it", begin, end)
    soon = end - timedelta(days=SOON_DAYS)
    moment = timedelta(seconds=1)
    assert (span.doubt(begin), span.doubt(soon)) == ("", "")
    assert "before 2026-01-01 00:00 UTC" in span.doubt(begin - moment)
    assert f"in {SOON_DAYS - 1} days" in span.doubt(soon + moment)
    assert "in 0 days" in span.doubt(end - moment)
    assert "expired on 2026-04-01" in span.doubt(end)
    assert Span("it", begin, None).doubt(end) == ""


def test_the_end_of_a_file_is_that_of_its_first_certificate_to_end(site: Site) -> None:
    late, early = (site.authority.issue("server", age=timedelta(hours=hours))[0].read_bytes() for hours in (0, 5))
    chain = site.path("chain.pem")
    chain.write_bytes(late + early)
    assert 18 < (first_end(chain) / 1000 - datetime.now(UTC).timestamp()) / 3600 < 19
    chain.write_bytes(b"x")
    assert first_end(chain) == first_end(site.path("none.pem")) == 0
    prepared = prepare(load(site.file), known=False)
    assert prepared.certificate_ends == {"stomp": first_end(site.path("server.pem"))}


def test_warnings_are_no_failure(site: Site) -> None:
    result = invoke("config", "check", "--config", str(site.file))
    assert result.exit_code == 0
    assert result.stderr.count("warning: ") == 3


def test_an_acceptor_that_is_switched_off_is_not_looked_at(site: Site) -> None:
    site.path("server.pem").unlink()
    site.file.write_text(site.file.read_text().replace('protocol = "stomp"', 'protocol = "stomp"\nenabled = false'))
    assert site.check() == []
    assert checks.warnings(load(site.file), "x", datetime.now(UTC)) == []


def test_files_that_the_operator_may_not_read(site: Site) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    site.path("server.key").chmod(0o000)
    [problem] = site.check()
    assert "let the broker's user read it" in problem


def test_an_empty_users_file_lets_nobody_in_but_is_no_problem(site: Site) -> None:
    write_users(site.path("users.toml"), {})
    assert site.check() == []
    write_users(site.path("users.toml"), {"bob": StoredUser()})
    assert site.check() == []


@pytest.mark.parametrize(
    ("url", "more", "fix"),
    [
        (
            "amqp://paris.example:5672",
            "",
            "if the other broker offers only PLAIN: use amqps, or sasl-mechanisms without",
        ),
        ("amqp://paris.example:5672", 'sasl-mechanisms = ["PLAIN"]', "use amqps, or sasl-mechanisms without PLAIN"),
        ("amqp://paris.example:5672", 'sasl-mechanisms = ["SCRAM-SHA-512", "SCRAM-SHA-256"]', ""),
        ("mqtt://192.0.2.1", "", "the password crosses the network readable: use mqtts"),
        ("amqps://paris.example", "", ""),
        ("mqtts://paris.example", "", ""),
        ("amqp://127.0.0.1", "", ""),
        ("amqp://[::1]:5672", "", ""),
        ("mqtt://localhost", "", ""),
        ("amqp://paris.example:5672", "enabled = false", ""),
    ],
)
@pytest.mark.parametrize("password", [True, False])
def test_a_password_that_crosses_the_network_readable_is_a_warning(
    tmp_path: Path, url: str, more: str, fix: str, password: bool
) -> None:
    """`config check` says so, and the log at the start."""
    (tmp_path / "password").write_text("secret\n")
    file = tmp_path / "broker.toml"
    login = f'user = "u"\npassword-file = "{tmp_path}/password"\n{more}\n' if password else ""
    file.write_text(f'[links.paris]\nurl = "{url}"\n{login}')
    config = load(file)
    warned = bool(fix) and password
    found = checks.warnings(config, str(file), datetime.now(UTC))
    assert [each.key for each in found] == (["links.paris.url"] if warned else [])
    assert all(fix in each.fix for each in found)
    broker = SimBroker(config)
    links = SimLinks(broker, {})
    make_dialer(config, broker.tick, links.links, links.make_session, broker.engine.report)
    port = "" if url.count(":") > 1 else f":{PORTS[url.partition(':')[0]]}"
    assert broker.reported("link.password_readable") == ([{"link": "paris", "remote": url + port}] if warned else [])
