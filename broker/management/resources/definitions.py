"""The calls to export and import a broker's definitions, everything except its messages, as one document."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from broker.management.calls import Calls, authorize_whole
from broker.management.definitions.exporting import Exporting
from broker.management.definitions.importing import Importing
from broker.management.durable import durable
from broker.management.models.base import Flag
from broker.management.models.definitions import Definitions, DefinitionsImported
from broker.management.names import Names
from broker.management.operator_log import log_action
from broker.management.ports import Broker

#: Bytes of a document to import: 1,000 queues, with selectors.  It is parsed within some 20 ms.
BODY_BYTES_MAX: Final = 2 << 20

Automatic = Annotated[
    Flag, Query(description="true: include anycast queues and addresses that were created automatically.")
]
DryRun = Annotated[Flag, Query(description="true: only report what would change.")]


class DefinitionCalls:
    """The calls on one broker's definitions, for callers who manage the broker as a whole."""

    def __init__(self, broker: Broker, names: Names) -> None:
        self._broker = broker
        self._names = names

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add("GET", "/definitions", self.export, authorize=authorize_whole, response_model=Definitions)
        calls.add(
            "POST",
            "/definitions",
            self.import_,
            authorize=authorize_whole,
            problems=(507,),
            body_bytes_max=BODY_BYTES_MAX,
        )

    async def export(self, auto_created: Automatic = False) -> Response:
        """All definitions: addresses, queues, diverts, address settings, permissions and users."""
        pieces = Exporting(self._broker, self._names, automatic=auto_created).pieces()
        return StreamingResponse(pieces, media_type="application/json")

    async def import_(self, request: Request, body: Definitions, dry_run: DryRun = False) -> DefinitionsImported:
        """Create and change what a document defines, and delete nothing; answered once that is on disk.

        Address settings, permissions and users are in files, so the answer only says how they differ.
        """
        changes = await Importing(self._broker, partial(log_action, request), dry_run=dry_run).run(body)
        await durable(self._broker.engine)
        return DefinitionsImported(dry_run=dry_run, changes=changes)
