"""Which standby servers the commits of a PostgreSQL server wait for, and whether each is one that can be promoted.

`synchronous_standby_names` names connections, not servers: whoever connects under a name in it can confirm a commit.
A running pg_basebackup or pg_receivewal, or a subscriber of logical replication, is no server that has the data: what
only such a connection has confirmed is lost with the primary.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

#: The setting, and each connection that counts as a synchronous standby: its name, its state, and whether it is a
#: server that replays what it gets.  A backup receives without replaying; a logical subscriber is in a database.  A
#: role without pg_read_all_stats sees names only.
STANDBYS: Final = b"""\
SELECT current_setting('synchronous_standby_names'), (
    SELECT json_agg(json_build_array(a.application_name, w.sync_state, w.replay_lsn IS NOT NULL AND a.datid IS NULL)
        ORDER BY a.application_name, w.pid)
    FROM pg_stat_get_wal_senders() w, LATERAL pg_stat_get_activity(w.pid) a
    WHERE w.sync_priority IS NULL OR w.sync_state IN ('sync', 'quorum'))"""

#: The names under which backups and archives connect unless they are given another one.
_BACKUPS: Final = frozenset({"pg_basebackup", "pg_receivewal", "pg_receivexlog", "pg_recvlogical"})

#: The tokens of the setting: quoted names, numbers and names, "*", punctuation.
_TOKEN: Final = re.compile(r'"(?:[^"]|"")*"|[\w$]+|[*(),]')

_NAME_THEM: Final = "name the standby servers, as in FIRST 1 (one, two)"


@dataclass(frozen=True, slots=True)
class Standbys:
    """What a server said after a commit.  `doubt`: why the commit may not be on a standby server; empty: it is.

    `confirming`: the names of the servers that commits wait for; empty if they cannot be seen.
    """

    confirming: tuple[str, ...] = ()
    visible: bool = True
    doubt: str = ""


def standby_names(setting: str) -> list[str]:
    """Return the names in a value of synchronous_standby_names, which the server has checked."""
    tokens = _TOKEN.findall(setting)
    if "(" in tokens:
        tokens = tokens[tokens.index("(") + 1 : -1]
    return [_unquoted(token) for token in tokens if token != ","]


def _unquoted(token: str) -> str:
    return token[1:-1].replace('""', '"') if token.startswith('"') else token


def doubt_about(setting: str) -> str:
    """Return why commits that wait as the setting says may be on no standby server; empty: its names are fit."""
    names = standby_names(setting)
    if not names:
        return (
            "PostgreSQL names no synchronous standby: set synchronous_standby_names, on the standby too, which may be"
            " promoted"
        )
    if "*" in names:  # quoted or not, it matches every connection
        return (
            f"synchronous_standby_names is {setting}: with * also a running backup counts as the standby; {_NAME_THEM}"
            " (Patroni does so when a standby has caught up)"
        )
    backups = [name for name in names if name.lower() in _BACKUPS]
    if backups:
        return f"synchronous_standby_names has {backups[0]}, as which backups connect: {_NAME_THEM}"
    return ""


def judged(setting: str, senders: str) -> Standbys:
    """Return what the two values of `STANDBYS` mean; `senders` is empty if nothing counts as a standby."""
    doubt = doubt_about(setting)
    confirming: list[str] = []
    visible = True
    for name, state, replays in json.loads(senders or "[]"):
        if state is None:
            visible = False
        elif replays:
            confirming.append(name)
        else:
            doubt = doubt or (
                f"a connection that calls itself {name} counts as the synchronous standby, but replays nothing (a"
                " backup, an archive or a logical subscriber): end it, or give it another application_name"
            )
    return Standbys(tuple(confirming), visible, doubt)
