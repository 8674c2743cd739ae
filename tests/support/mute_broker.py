"""An AMQP 1.0 broker in a process of its own that receives messages and never settles them.

python -m tests.support.mute_broker PORT
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.support.peers import PeerProcess
from tests.support.process import ROOT, Process, spawn

#: Credit that it grants on each link, in messages.
CREDIT: Final = 100


class MuteBroker(PeerProcess):
    """Its process; it reports on its output how many messages it received: `got 3`."""

    name = "mute broker"
    protocols: Sequence[str] = ("amqp",)
    ready = re.compile("READY")

    def launch(self) -> Process:
        """See BrokerProcess."""
        command = [sys.executable, "-m", "tests.support.mute_broker", str(self.ports["amqp"])]
        return spawn(command, {"PYTHONPATH": str(ROOT)}, merged=True)

    @property
    def got(self) -> int:
        """Messages that it received since its start."""
        return sum(line.startswith("got") for line in self._said)


class _Mute(MessagingHandler):
    def __init__(self, port: str) -> None:
        super().__init__(auto_accept=False, auto_settle=False, prefetch=CREDIT)
        self._port = port

    def on_start(self, event: Any) -> None:
        event.container.listen(f"127.0.0.1:{self._port}")
        print("READY", flush=True)

    def on_link_opening(self, event: Any) -> None:
        event.link.source.copy(event.link.remote_source)  # every address exists
        event.link.target.copy(event.link.remote_target)

    def on_message(self, event: Any) -> None:
        print("got", event.message.id, flush=True)


if __name__ == "__main__":
    Container(_Mute(sys.argv[1])).run()
