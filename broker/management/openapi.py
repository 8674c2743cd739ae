"""The OpenAPI document of the API, made from its calls and models, and the page that shows it."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from broker.management.models.base import Problem

#: What the document says of the API as a whole.
DESCRIPTION: Final = (
    "The management API of the Bartleby message broker.  Names in paths are percent-encoded.  Times are milliseconds "
    "since the epoch (0: none), sizes bytes.  A list answers `next`, to be given as `after` for what follows.  What "
    "changes something is answered when the change is on disk.  Whatever is refused is answered by a problem document "
    "(RFC 9457)."
)

#: How callers log in.
SECURITY: Final = {
    "user": {"type": "http", "scheme": "basic", "description": "A user of the broker, and its password."},
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The broker's own token, of management.token in its data directory, or one of an issuer.",
    },
}


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    made: dict[str, Any] = get_openapi(
        title="Bartleby", version="1", summary="Management API", description=DESCRIPTION, routes=app.routes
    )
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs") | {"Problem": problem}
    components["securitySchemes"] = SECURITY
    made["security"] = [{name: []} for name in SECURITY]
    for methods in made["paths"].values():
        for call in methods.values():
            call["responses"].pop("422", None)
            if "requestBody" in call:
                call["responses"]["415"] = call["responses"]["413"]
            call["responses"] = dict(sorted(call["responses"].items()))
    return made
