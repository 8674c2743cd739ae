"""What must hold between settings; at the limit it is allowed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from broker.config import Config, ConfigError, load

STOMP = '[acceptors.a]\nprotocol = "stomp"\n'
TLS = '[acceptors.a]\nprotocol = "stomp"\n[acceptors.a.tls]\ncertificate = "a"\nkey = "b"\n'
SETTING = '[[address-settings]]\nmatch = "#"\n'
PERMISSIONS = '[[security-settings]]\nmatch = "#"\n'
RESOURCES = '[[resource-limit-settings]]\nmatch = "alice"\n'
JWT = '[security.jwt]\nissuer = "https://i"\n'
REMOTE_QUEUE = "[links.'{link}']\nurl = 'amqp://b'\n[links.'{link}'.remote-queues.r]\nqueue = 'q'\n"
TOPICS = "[links.a]\nurl = 'amqp://b'\n[links.a.topics.r]\naddress = '{}'\n[links.a.topics.s]\naddress = '{}'\n"
LOGIN = "[links.a]\nurl = '{}'\n{}\nsasl-mechanisms = [\"PLAIN\"]\n"
MQTT_ROUTE = "[links.a]\nurl = 'mqtt://b'\n[links.a.mqtt.r]\n"
RULE = "[[dead-letter-rules]]\nname = 'a'\n"
TELEMETRY = "[telemetry]\nendpoint = "
CERTIFICATE = '[[certificate-users]]\nuser = "%cn"\nsubject = '


def read(directory: Path, text: str) -> Config:
    path = directory / "broker.toml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "key", "value", "fix"),
    [
        # 32 MiB is half of a segment, less 64 KiB of headers
        ("[limits]\nbody-bytes-max = 33488897\n", "limits.body-bytes-max", "33488897B", "half of journal.segment-size"),
        (
            "[journal]\nlog = 'postgresql'\n[journal.postgresql]\ndsn = 'host=one'\nredirect = true\n",
            "journal.postgresql.redirect",
            "true",
            "say in broker.failover-hosts where to",
        ),
        (
            "[journal]\nsegment-size = '20MiB'\nreserve = 0\n",
            "limits.body-bytes-max",
            "10MiB",
            "raise journal.segment-size",
        ),
        ("[limits]\ntransaction-bytes-max = 33554433\n", "limits.transaction-bytes-max", "33554433B", "(32MiB)"),
        (
            "[journal]\nreserve = 16777217\n",
            "journal.reserve",
            "16777217B",
            "a quarter of journal.segment-size (16MiB)",
        ),
        ("[limits]\nheader-line-bytes-max = 65537\n", "limits.header-line-bytes-max", "65537B", "(64KiB)"),
        (
            STOMP + "connection-ttl-min = '5s'\nconnection-ttl-max = '4s'\n",
            "acceptors.a.connection-ttl-min",
            "5s",
            "give at most acceptors.a.connection-ttl-max (4s)",
        ),
        (STOMP + "connection-ttl = 999\n", "acceptors.a.connection-ttl", "999ms", "or -1 for never"),
        ("[broker]\nconnection-ttl = 0\n" + STOMP, "broker.connection-ttl", "0", "acceptors.a.connection-ttl-min (1s)"),
        (STOMP + "connections-allowed = 10001\n", "acceptors.a.connections-allowed", "10001", "(10000)"),
        (
            STOMP + 'anycast-prefix = "/q/,/x/"\nmulticast-prefix = "/x/"\n',
            "acceptors.a.multicast-prefix",
            '"/x/"',
            "also in acceptors.a.anycast-prefix",
        ),
        (STOMP + 'also = "b"\n', "acceptors.a.also", '"b"', "name other messaging acceptors: none"),
        (STOMP + 'also = "a"\n', "acceptors.a.also", '"a"', "name other messaging acceptors: none"),
        (
            STOMP + 'also = "b"\n[acceptors.b]\nprotocol = "stomp"\nport = 0\n',
            "acceptors.a.also",
            '"b"',
            "acceptors.a speaks stomp too",
        ),
        (
            STOMP + 'also = "b"\n[acceptors.b]\nprotocol = "amqp"\nwebsocket = true\n',
            "acceptors.a.also",
            '"b"',
            "a WebSocket needs its own port",
        ),
        (
            STOMP + 'websocket-origins = ["https://app.example.org"]\n',
            "acceptors.a.websocket-origins",
            '"https://app.example.org"',
            "set acceptors.a.websocket too",
        ),
        (
            '[acceptors.b]\nprotocol = "amqp"\namqp-credits = 10\namqp-low-credits = 10\n',
            "acceptors.b.amqp-low-credits",
            "10",
            "give less than acceptors.b.amqp-credits (10)",
        ),
        (
            STOMP + '[acceptors.b]\nprotocol = "http"\nport = 61613\n',
            "acceptors.b.port",
            "61613",
            "acceptors.a listens there already",
        ),
        (RESOURCES + RESOURCES, 'resource-limit-settings["alice"].match', "", "appears twice"),
        ('[security.jwt]\naudience = "x"\n', "security.jwt.issuer", "", "only with an issuer"),
        ("[telemetry]\nsample-ratio = 0.5\n", "telemetry.sample-ratio", "0.5", "give telemetry.endpoint"),
        (TELEMETRY + '"localhost:4318"\n', "telemetry.endpoint", '"localhost:4318"', "http://localhost:4318/v1/traces"),
        (TELEMETRY + '"http://me:secret@x/"\n', "telemetry.endpoint", "", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
        (JWT + 'keys-file = "k"\n', "security.jwt.audience", "", "give the audience"),
        (JWT + 'audience = "x"\n', "security.jwt.keys-url", "", "give one of them"),
        (JWT + 'audience = "x"\nkeys-file = "k"\nkeys-url = "https://x/"\n', "security.jwt.keys-url", "", "one of"),
        (JWT + 'audience = "x"\nkeys-url = "http://x/"\n', "security.jwt.keys-url", '"http://x/"', "https://"),
        (PERMISSIONS + PERMISSIONS, 'security-settings["#"].match', "", "appears twice"),
        ('[[security-settings]]\nmatch = "a.#.%u"\n', 'security-settings["a.#.%u"].match', "", "last character"),
        (CERTIFICATE + '"alice"\n', "certificate-users[0].subject", '"alice"', "write a subject as"),
        (CERTIFICATE + '"O=x"\n', "certificate-users[0].subject", '"O=x"', "needs one CN"),
        (TLS + "need-client-auth = true\n", "acceptors.a.tls.need-client-auth", "true", "client-ca"),
        (TLS + 'client-ca = "c"\n', "acceptors.a.tls.client-ca", '"c"', "want-client-auth"),
        (TLS + 'crl = "c"\n', "acceptors.a.tls.crl", '"c"', "client-ca"),
        ("[addresses.a]\n", "addresses.a.routing-types", "", 'routing-types = ["ANYCAST"]'),
        ('[addresses."a::b"]\nrouting-types = ["ANYCAST"]\n', "addresses.a::b", '"a::b"', "rename it"),
        ('[addresses.a.queues.""]\nrouting-type = "ANYCAST"\n', "addresses.a.queues.", '""', "name is empty"),
        (
            '[addresses.a.queues."$share.g.a"]\nrouting-type = "MULTICAST"\n',
            "addresses.a.queues.$share.g.a",
            '"$share.g.a"',
            "a shared subscription: rename it",
        ),
        (
            '[addresses.a.queues.q]\nrouting-type = "ANYCAST"\nfilter = "a ="\n',
            "addresses.a.queues.q.filter",
            '"a ="',
            "correct the selector",
        ),
        (
            '[addresses.a.queues.q]\nrouting-type = "ANYCAST"\n[addresses.b.queues.q]\nrouting-type = "ANYCAST"\n',
            "addresses.b.queues.q",
            "",
            "addresses.a has a queue of this name",
        ),
        (SETTING + SETTING, 'address-settings["#"].match', "", "appears twice"),
        ('[[address-settings]]\nmatch = "a.#.b"\n', 'address-settings["a.#.b"].match', "", "last character"),
        (
            SETTING + "min-expiry-delay = '2s'\nmax-expiry-delay = '1s'\n",
            'address-settings["#"].min-expiry-delay',
            "2s",
            "give at most max-expiry-delay (1s)",
        ),
        (
            SETTING + "redelivery-delay = 2\nmax-redelivery-delay = 1\n",
            'address-settings["#"].redelivery-delay',
            "2ms",
            "give at most max-redelivery-delay (1ms)",
        ),
        (SETTING + 'dead-letter-address = "a.*"\n', 'address-settings["#"].dead-letter-address', '"a.*"', "wildcard"),
        (SETTING + 'expiry-address = "a::b"\n', 'address-settings["#"].expiry-address', '"a::b"', "one address"),
        (
            SETTING + 'delivery-count-persistence = "strict"\npersist-delivery-count-before-delivery = false\n',
            'address-settings["#"].persist-delivery-count-before-delivery',
            "false",
            "says the opposite",
        ),
        (
            RULE + "action = 'move'\n",
            'dead-letter-rules["a"].to',
            '""',
            "name one address",
        ),
        (
            RULE + "action = 'leave'\nreasons = ['admin']\n",
            'dead-letter-rules["a"].reasons[0]',
            '"admin"',
            "no such reason: give one of max-deliveries",
        ),
        (RULE + "action = 'move'\nto = 'x::'\n", 'dead-letter-rules["a"].to', '"x::"', "no queue name after ::"),
        (RULE + "action = 'leave'\nto = 'x'\n", 'dead-letter-rules["a"].to', "", "has no effect with leave"),
        (
            RULE.replace("'a'", '"a\\nb"') + "action = 'leave'\n",
            'dead-letter-rules["a\nb"].name',
            '"a\\nb"',
            "printable characters",
        ),
        (
            RULE.replace("'a'", f"'{'n' * 101}'") + "action = 'leave'\n",
            f'dead-letter-rules["{"n" * 101}"].name',
            '"' + "n" * 74 + "...",
            "give at most 100 characters",
        ),
        (RULE + "action = 'retry'\nevery = '99ms'\n", 'dead-letter-rules["a"].every', '"99ms"', "give 100 or more"),
        (RULE + "action = 'retry'\nat-most = 1441\n", 'dead-letter-rules["a"].at-most', "1441", "give 1440 or less"),
        (RULE + "action = 'discard'\nevery = 100\n", 'dead-letter-rules["a"].every', "", "has no effect with discard"),
        (RULE + "action = 'move'\nto = 'x'\nat-most = 1\n", 'dead-letter-rules["a"].at-most', "", "remove it"),
        (RULE + "action = 'leave'\nselector = '('\n", 'dead-letter-rules["a"].selector', '"("', "correct the selector"),
        (RULE + "action = 'leave'\nqueue = '#.x'\n", 'dead-letter-rules["a"].queue', '"#.x"', "only be the last"),
        (
            (RULE + "action = 'retry'\n") * 2,
            'dead-letter-rules["a"].name',
            "",
            "this name appears twice",
        ),
        (
            RULE + "action = 'leave'\n" + RULE.replace("'a'", "'b'") + "action = 'retry'\n",
            'dead-letter-rules["b"]',
            "",
            'dead-letter-rules["a"] matches every dead letter',
        ),
        (
            "".join(RULE.replace("'a'", f"'{n}'") + "action = 'retry'\n" for n in range(257)),
            "dead-letter-rules",
            "257",
            "at most 256",
        ),
        (
            REMOTE_QUEUE.format(link="a.#"),
            "links.a.#.remote-queues.r.transmission-queue",
            '"link.a.#"',
            "rename the link",
        ),
        (
            REMOTE_QUEUE.format(link="a") + "transmission-queue = 'out.*'\n",
            "links.a.remote-queues.r.transmission-queue",
            '"out.*"',
            "name a queue of this broker",
        ),
        (
            LOGIN.format("mqtt://b", 'user = "u"'),
            "links.a.sasl-mechanisms",
            "",
            "only AMQP logs in so: remove this",
        ),
        (
            LOGIN.format("amqp://b", ""),
            "links.a.sasl-mechanisms",
            "",
            "it is for a user's login: give user",
        ),
        (
            LOGIN.format("amqp://b", "").replace('sasl-mechanisms = ["PLAIN"]', "scram-iterations-max = 4096"),
            "links.a.scram-iterations-max",
            "4096",
            "give user",
        ),
        (
            TOPICS.format("news.#", "*.sport"),
            "links.a.topics.r.address",
            '"*.sport"',
            "make one route of both",
        ),
        (
            MQTT_ROUTE + "topic = 'a/#/b'\n",
            "links.a.mqtt.r.topic",
            '"a/#/b"',
            "give a topic filter",
        ),
        (
            MQTT_ROUTE + "topic = 'b'\nremote-prefix = 'x/+/'\n",
            "links.a.mqtt.r.remote-prefix",
            '"x/+/"',
            "prefixes without wildcards",
        ),
        (
            MQTT_ROUTE + "topic = 'a/b'\n[links.a.mqtt.s]\ntopic = 'b'\nlocal-prefix = 'a/'\n",
            "links.a.mqtt.s.topic",
            '"a/b"',
            "for direction out",
        ),
    ],
)
def test_refused_combinations(tmp_path: Path, text: str, key: str, value: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    [problem] = caught.value.problems
    assert (problem.key, problem.value) == (key, value)
    assert fix in problem.fix


def test_topics_routes_that_share_no_topic(tmp_path: Path) -> None:
    links = read(tmp_path, TOPICS.format("news.#", "sport.*")).links
    assert len(links["a"].topics) == 2


def test_tokens_need_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, JWT + 'audience = "x"\nkeys-file = "k"\n')
    [problem] = caught.value.problems
    assert problem.key == "security.jwt.issuer"
    assert "PyJWT" in problem.fix
    assert "pip install '.[jwt]'" in problem.fix
    read(tmp_path, "")


@pytest.mark.parametrize("all_missing", [True, False])
def test_traces_need_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_missing: bool) -> None:
    """None of its packages is there, or only the one that other libraries bring too."""

    def nothing(name: str) -> None:
        raise ModuleNotFoundError(name)

    if all_missing:
        monkeypatch.setattr("broker.build.find_spec", nothing)
    else:
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, TELEMETRY + '"http://localhost:4318/v1/traces"\n')
    [problem] = caught.value.problems
    assert problem.key == "telemetry.endpoint"
    assert "pip install '.[otel]'" in problem.fix
    read(tmp_path, "")


@pytest.mark.parametrize(
    "text",
    [
        "[limits]\nbody-bytes-max = 33488896\ntransaction-bytes-max = '32MiB'\nheader-line-bytes-max = '64KiB'\n",
        "[journal]\nreserve = '16MiB'\n",
        STOMP + "connection-ttl-min = '5s'\nconnection-ttl-max = '5s'\nconnection-ttl = '5s'\n",
        STOMP + "connection-ttl = -1\nconnections-allowed = 10000\n",
        STOMP + 'anycast-prefix = ""\nmulticast-prefix = ""\n',
        STOMP + '[acceptors.b]\nprotocol = "http"\nport = 61613\nhost = "127.0.0.2"\n',
        STOMP + '[acceptors.b]\nprotocol = "http"\nport = 61613\nenabled = false\n',
        STOMP + 'port = 0\n[acceptors.b]\nprotocol = "http"\nport = 0\n',
        STOMP + 'also = "b"\n[acceptors.b]\nprotocol = "amqp"\nenabled = false\n',
        '[acceptors.b]\nprotocol = "amqp"\namqp-credits = 10\namqp-low-credits = 9\n',
        STOMP + 'host = "0.0.0.0"\n',
        '[[security-settings]]\nmatch = "a.%u.%c.#"\nsend = ["x"]\n',
        CERTIFICATE + '"CN=*,O=x"\n',
        TLS + 'client-ca = "c"\nwant-client-auth = true\ncrl = "d"\n',
        STOMP + 'host = "0.0.0.0"\n[security]\nanonymous = true\n',
        STOMP + 'host = "0.0.0.0"\nenabled = false\n',
        '[acceptors.b]\nprotocol = "http"\nhost = "0.0.0.0"\n',
        '[addresses.a]\nrouting-types = ["ANYCAST", "MULTICAST"]\n',
        SETTING + "min-expiry-delay = 1\nmax-expiry-delay = 1\nredelivery-delay = 1\nmax-redelivery-delay = 1\n",
        SETTING + "min-expiry-delay = 1\nmax-expiry-delay = -1\nredelivery-delay = 1\nmax-redelivery-delay = -1\n",
        SETTING + 'dead-letter-address = ""\nexpiry-address = ""\n',
        SETTING + 'delivery-count-persistence = "strict"\npersist-delivery-count-before-delivery = true\n',
        '[[address-settings]]\nmatch = "a"\n[[address-settings]]\nmatch = "a.#"\n',
        "".join(RULE.replace("'a'", f"'{n}'") + "action = 'retry'\nat-most = 1440\nevery = 100\n" for n in range(256)),
        RULE + "action = 'leave'\n" + RULE.replace("'a'", "'b'") + "action = 'discard'\nqueue = 'DLQ.copy'\n",
        RULE + "action = 'move'\nto = 'a::b'\n" + RULE.replace("'a'", "'b'") + "action = 'leave'\nqueue = 'c'\n",
    ],
)
def test_permitted_combinations(tmp_path: Path, text: str) -> None:
    read(tmp_path, text)
