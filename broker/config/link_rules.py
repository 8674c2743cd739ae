"""Checks of links."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from broker.config.clash import Clash, checked, syntax_of
from broker.config.explain import format_value
from broker.config.links import LinkSection
from broker.config.model import Config
from broker.engine import compile_filter
from broker.engine.model.names import check_name, check_queue_name, check_sendable
from broker.engine.model.row import kebab
from broker.engine.model.span import Span
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.topics import check_topic_filter, check_topic_name, prefixed

#: Characters of the names of links and routes, which are labels of metrics and parts of queue names.
NAME_CHARS_MAX = 100

#: Topics may be as large as on the most permissive acceptor.
_TOPICS = Limits()

#: The fix for invalid topics.
_FIX = 'give a topic filter, "sensors/#", and prefixes without wildcards, "site1/"'


def link_problems(config: Config) -> Iterator[Clash]:
    """The problems in [links.NAME]."""
    for name, link in config.links.items():
        key = f"links.{name}"
        yield from _named(key, name, link)
        yield from _connection(key, link)
        yield from _routes(config, name, link)
    yield from _twice(config)


def _named(key: str, name: str, link: LinkSection) -> Iterator[Clash]:
    routes = (*link.send, *link.receive, *link.remote_queues, *link.topics, *link.mqtt)
    for each in (name, *routes):
        if not each or len(each) > NAME_CHARS_MAX or not each.isprintable() or "::" in each or " " in each:
            fix = f"give a name of at most {NAME_CHARS_MAX} printable characters, without spaces and ::"
            yield Clash((key if each == name else f"{key}.{each}",), format_value(each), fix)
    for each in {each for each in routes if routes.count(each) > 1}:
        yield Clash((f"{key}.{each}",), format_value(each), "two routes of the link have this name: rename one")


def _connection(key: str, link: LinkSection) -> Iterator[Clash]:
    urls = link.urls
    if len({url.mqtt for url in urls}) > 1:
        yield Clash(
            (f"{key}.url",), format_value(link.url), "all URLs of a link must be AMQP, or all MQTT: make two links"
        )
    secure = any(url.secure for url in urls)
    for setting in ("ca", "certificate", "key"):
        path = getattr(link, setting)
        if path is not None and not secure:
            yield Clash(
                (f"{key}.{setting}",),
                format_value(path),
                "only amqps and mqtts use TLS: change the URL, or remove this",
            )
    if (link.certificate is None) is not (link.key is None):
        given = "certificate" if link.key is None else "key"
        yield Clash((f"{key}.{given}",), format_value(getattr(link, given)), "give certificate and key together")
    if link.password_file is not None and not link.user:
        yield Clash((f"{key}.password-file",), format_value(link.password_file), "a password needs a user: give user")
    for field in ("sasl_mechanisms", "scram_iterations_max"):
        if field in link.model_fields_set and (link.speaks_mqtt or not link.user):
            fix = "only AMQP logs in so: remove this" if link.speaks_mqtt else "it is for a user's login: give user"
            yield Clash((f"{key}.{kebab(field)}",), format_value(getattr(link, field)), fix)
    if link.retry_interval > link.retry_interval_max:
        keys = (f"{key}.retry-interval", f"{key}.retry-interval-max")
        yield Clash(
            keys, format_value(link.retry_interval), f"give at most retry-interval-max ({link.retry_interval_max} ms)"
        )


def _routes(config: Config, link_name: str, link: LinkSection) -> Iterator[Clash]:
    key = f"links.{link_name}"
    if link.speaks_mqtt:
        for kind in ("send", "receive", "remote-queues", "topics"):
            for name in getattr(link, kind.replace("-", "_")):
                yield Clash((f"{key}.{kind}.{name}",), "", f"an MQTT link carries topics: use [{key}.mqtt.{name}]")
        yield from _topics(key, link)
        return
    for name in link.mqtt:
        yield Clash((f"{key}.mqtt.{name}",), "", f"an AMQP link has no MQTT topics: use [{key}.topics.{name}]")
    syntax = syntax_of(config)

    def one_address(text: str) -> None:
        check_sendable(text, syntax)

    for name, send in link.send.items():
        yield from checked(check_queue_name, f"{key}.send.{name}.queue", send.queue, "name a queue of this broker")
    for name, receive in link.receive.items():
        where = f"{key}.receive.{name}"
        yield from checked(one_address, f"{where}.address", receive.address, "name one address of this broker")
        yield from checked(compile_filter, f"{where}.selector", receive.selector, "correct the selector")
    for name, remote in link.remote_queues.items():
        where = f"{key}.remote-queues.{name}"
        yield from checked(one_address, where, name, "name one address of this broker")
        queue = remote.waits_on(link_name)
        fix = "rename the link" if not remote.transmission_queue else "name a queue of this broker"
        yield from checked(one_address, f"{where}.transmission-queue", queue, fix)
        if queue == name:
            yield Clash(
                (f"{where}.transmission-queue",),
                format_value(queue),
                "give another name: messages would go in a circle",
            )
    for name, topics in link.topics.items():
        yield from checked(check_name, f"{key}.topics.{name}.address", topics.address, "name an address or a pattern")
    for (one, first), (other, second) in combinations(link.topics.items(), 2):
        if Span(first.address, syntax).overlaps(syntax.words(second.address)):
            keys = (f"{key}.topics.{one}.address", f"{key}.topics.{other}.address")
            fix = f"some topics are also those of {first.address}: make one route of both, or links of their own"
            yield Clash(keys, format_value(second.address), fix)


def _topics(key: str, link: LinkSection) -> Iterator[Clash]:
    """The problems in the routes of an MQTT link: topic filters must be valid, and unique in each direction."""
    seen: dict[tuple[str, str], str] = {}
    for name, route in link.mqtt.items():
        where = f"{key}.mqtt.{name}"
        for setting, prefix, direction in (
            ("local-prefix", route.local_prefix, "out"),
            ("remote-prefix", route.remote_prefix, "in"),
        ):
            try:
                text = prefixed(prefix, route.topic)
                check_topic_name(prefix or "-", _TOPICS)
                check_topic_filter(text, _TOPICS)
            except MqttError as error:
                wrong = f"{where}.{setting if prefix else 'topic'}"
                yield Clash((wrong,), format_value(prefix or route.topic), f"{error.sentence}: {_FIX}")
                break
            if route.direction in (direction, "both"):
                other = seen.setdefault((direction, text), name)
                if other != name:
                    keys = (f"{where}.topic", f"{key}.mqtt.{other}.topic")
                    yield Clash(
                        keys,
                        format_value(text),
                        f"two routes have this topic filter for direction {direction}: give one",
                    )


def _twice(config: Config) -> Iterator[Clash]:
    """The remote queues defined by several links."""
    seen: dict[str, str] = {}
    for name, link in config.links.items():
        for remote in link.remote_queues:
            if remote in seen:
                keys = (f"links.{name}.remote-queues.{remote}", f"links.{seen[remote]}.remote-queues.{remote}")
                yield Clash(keys, format_value(remote), "two links have a remote queue of this name: rename one")
            seen.setdefault(remote, name)
