"""Making a long queue short enough for one tick, without keeping others waiting."""

from __future__ import annotations

import asyncio

from broker.engine import Queue
from broker.management.ports import Broker


async def shortened(broker: Broker, queue: Queue) -> int:
    """Purge a queue, of what it has now, until the rest can be done at once; returns how many are gone."""
    long = queue.message_count - queue.delivering - broker.engine.limits.purge_step_max
    purged = 0
    while purged < long and not queue.deleted:
        broker.tick.enter()
        some = broker.engine.messages.purge_some(queue)
        if not some:
            break
        purged += some
        await asyncio.sleep(0)
    return purged
