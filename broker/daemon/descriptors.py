"""Which descriptors of the process are for what, so that connections cannot use up those of the journal.

open            what is open once the journal is recovered: segments, locks, standard streams, the event loop
reserve         what is opened later: segments, bodies, paging, files read by threads, links, accepted sockets
HTTP            connections of collectors, operators and health probes
connections     the rest, at most `limits.connections-max`: messaging clients
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.config import Config
from broker.config.acceptors import HttpAcceptor
from broker.engine.model.report import Report
from broker.management.limits import RESERVED_MAX
from broker.net.acceptor import ACCEPTED_AT_ONCE
from store.bodies import OPEN_MAX

#: Descriptors of the journal beyond those that are open (a segment, its spare, scratch files, directories), of files
#: that are read again (users, certificates), of the audit log, and of libraries.
FILES: Final = 16

#: For each link: its connection, name lookup, and the next one while it still closes.
OF_A_LINK: Final = 3

#: For a journal in PostgreSQL: its connections, and those that replace them.
OF_A_DATABASE: Final = 8

#: HTTP gets at most this part of what is left.
HTTP_SHARE: Final = 3

#: What counts as open where the system does not say it.
OPEN_UNSEEN: Final = 64

#: What counts as the limit of a process without one.
UNLIMITED: Final = 1 << 20


def raise_limit(report: Report) -> int:
    """Raise the limit of open files as far as the system permits it.  Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # as on macOS, where the soft limit has another maximum
        hard = soft
    if hard != soft:
        report("descriptors.raised", before=soft, now=_known(hard))
    return _known(hard)


def limit() -> int:
    """The limit of open files."""
    return _known(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _known(number: int) -> int:
    return UNLIMITED if number == resource.RLIM_INFINITY else number


def open_now() -> int:
    """How many descriptors are open."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # but for that of the directory
    except OSError:
        return OPEN_UNSEEN


def bodies_open_max(limit: int) -> int:
    """How many files of unfinished bodies may be open."""
    return min(OPEN_MAX, max(limit // 16, 1))


@dataclass(frozen=True, slots=True)
class Descriptors:
    """How many descriptors are for what; `http` by acceptor: its connections, and the reserved ones among them."""

    limit: int
    reserve: int
    connections: int
    http: dict[str, tuple[int, int]]


def share_out(config: Config, limit: int, open_now: int) -> Descriptors:
    """Share out the descriptors that are not open yet."""
    sockets = len(config.messaging_acceptors) + len(config.http_acceptors)
    readers = min(32, (os.cpu_count() or 1) + 4)  # of asyncio's threads
    reserve = FILES + readers + bodies_open_max(limit) + OF_A_LINK * len(config.links)
    reserve += sockets * 2 * (1 + ACCEPTED_AT_ONCE)  # for IPv4 and IPv6
    reserve += OF_A_DATABASE if config.journal.log == "postgresql" else 0
    left = max(limit - open_now - reserve, 0)
    http = _share_http(config.http_acceptors, left // HTTP_SHARE)
    clients = max(left - sum(map(sum, http.values())), 1)
    return Descriptors(limit, reserve, min(clients, config.limits.connections_max), http)


def _share_http(acceptors: dict[str, HttpAcceptor], left: int) -> dict[str, tuple[int, int]]:
    each = left // max(len(acceptors), 1)
    reserved = min(RESERVED_MAX, max(each // 2, 1))
    return {
        name: (max(min(acceptor.connections_allowed, each - reserved), 1), reserved)
        for name, acceptor in acceptors.items()
    }


def report_few(report: Report, config: Config, found: Descriptors) -> None:
    """Warn if fewer clients can connect than the configuration allows."""
    wanted = _wanted([each.connections_allowed for each in config.messaging_acceptors.values()], config)
    if found.connections < wanted:
        report(
            "descriptors.few",
            limit=found.limit,
            reserve=found.reserve,
            connections=found.connections,
            configured=wanted,
        )


def _wanted(allowed: Sequence[int], config: Config) -> int:
    most = config.limits.connections_max
    return most if any(each < 0 for each in allowed) else min(most, sum(allowed))
