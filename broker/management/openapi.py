"""The OpenAPI document of the API, made from its calls and models, and the page that shows it."""

from __future__ import annotations

import asyncio
import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from broker.management import lines, replaying
from broker.management.calls import PREFIX
from broker.management.models.base import Problem
from broker.management.problems import ALL_KINDS

#: The description of the API as a whole.
DESCRIPTION: Final = (
    "The management API of the Bartleby message broker.  Names in paths are percent-encoded.  Times are milliseconds "
    "since the epoch (0: none), sizes bytes.  A list returns `next`: pass it as `after` to get the next page.  A "
    "call that changes something is answered once the change is on disk.  A refused call is answered with a problem "
    "document (RFC 9457)."
)

#: How callers log in.
SECURITY: Final = {
    "user": {"type": "http", "scheme": "basic", "description": "A user of the broker, and its password."},
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The broker's own token, in management.token in its data directory, or a token of the issuer.",
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
    schemas |= problem.pop("$defs") | {"Problem": problem, "Replay": replaying.SCHEMA, "MessagesToImport": lines.SCHEMA}
    components["securitySchemes"] = SECURITY
    made["security"] = [{name: []} for name in SECURITY]
    for methods in made["paths"].values():
        for call in methods.values():
            call["responses"].pop("422", None)
            if "requestBody" in call:
                call["responses"]["415"] = call["responses"]["413"]
            call["responses"] = dict(sorted(call["responses"].items()))
    return made


class Reference:
    """The document and the page of an API, made at the first request: that takes a third of a second."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._made: tuple[bytes, bytes, str] | None = None

    def add_to(self, app: FastAPI) -> None:
        """Serve them without login: they are the same for every broker of this version."""
        app.add_route(f"{PREFIX}/openapi.json", self.document)
        app.add_route(f"{PREFIX}/docs", self.page)

    async def document(self, request: Request) -> Response:
        """The OpenAPI document."""
        text, _, _ = await self._all()
        return Response(text, media_type="application/json")

    async def page(self, request: Request) -> Response:
        """The page, which loads nothing and may use only its own style."""
        _, html, policy = await self._all()
        return Response(html, headers={"content-security-policy": policy}, media_type="text/html")

    async def _all(self) -> tuple[bytes, bytes, str]:
        if self._made is None:
            self._made = await asyncio.to_thread(self._make)
        return self._made

    def _make(self) -> tuple[bytes, bytes, str]:
        made = document(self._app)
        style = (_TEMPLATES / "reference.css").read_text("utf-8")
        digest = base64.b64encode(sha256(style.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"
        return json.dumps(made).encode(), page(made, style).encode(), policy


_TEMPLATES: Final = Path(__file__).parent / "templates"


def prose(text: str) -> Markup:
    """A text as HTML, with what is between backticks as code."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def page(document: dict[str, Any], style: str) -> str:
    """The page that shows a document."""
    tags: dict[str, list[tuple[str, str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            tags.setdefault(call["tags"][0], []).append((method, path, call))
    # Undefined names render as empty: optional members of the document.
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True)
    environment.filters["prose"] = prose
    template = environment.get_template("reference.html")
    return template.render(document=document, tags=tags, kinds=ALL_KINDS, style=style)
