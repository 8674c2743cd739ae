"""`--listen ACCEPTOR=HOST:PORT`, which overrides where an acceptor of the file listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.config.explain import format_value
from broker.config.model import Config
from broker.config.problems import Problem

OPTION: Final = "--listen"
_FORM: Final = "give ACCEPTOR=HOST:PORT, such as stomp=127.0.0.1:61613 or stomp=[::1]:0 (0: a free port)"
_PORT_MAX: Final = 65_535


def parse_listen(text: str) -> tuple[str, str, int]:
    """Acceptor, host and port; an IPv6 address is in brackets.  Raises ValueError with the fix."""
    name, equals, where = text.partition("=")
    host, colon, port = where.rpartition(":")
    if not (name and equals and host and colon and port.isascii() and port.isdigit()):
        raise ValueError(_FORM)
    if len(port) > len(str(_PORT_MAX)) or int(port) > _PORT_MAX:
        raise ValueError(f"the port is at most {_PORT_MAX}: {_FORM}")
    if host.startswith("[") and host.endswith("]") and len(host) > 2:
        return name, host[1:-1], int(port)
    if any(bracket in host for bracket in "[]:"):
        raise ValueError(f"write an IPv6 address in brackets: {_FORM}")
    return name, host, int(port)


def overridden(config: Config, listen: Sequence[str]) -> tuple[Config, list[Problem], set[str]]:
    """The configuration with these listeners, the problems, and the keys that were set."""
    acceptors = dict(config.acceptors)
    problems: list[Problem] = []
    keys: set[str] = set()
    for text in listen:
        try:
            name, host, port = parse_listen(text)
        except ValueError as error:
            problems.append(Problem(OPTION, "acceptors", format_value(text), str(error)))
            continue
        if name not in acceptors:
            known = ", ".join(sorted(acceptors)) or "none"
            fix = f"there is no acceptor {format_value(name)}: the configuration has {known}"
            problems.append(Problem(OPTION, "acceptors", format_value(text), fix))
            continue
        acceptors[name] = acceptors[name].model_copy(update={"host": host, "port": port, "enabled": True})
        keys |= {f"acceptors.{name}.host", f"acceptors.{name}.port"}
    return config.model_copy(update={"acceptors": acceptors}), problems, keys
