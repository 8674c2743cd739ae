"""What these tests start from."""

from __future__ import annotations

from tests.broker.management.fixtures import anyio_backend, broker, call_limits, client, engine_limits, served

__all__ = ["anyio_backend", "broker", "call_limits", "client", "engine_limits", "served"]
