"""How a call of the API is declared: the permission it needs, what it may be sent, and how it may be refused.

    calls.add("DELETE", "/queues/{name}", self.delete, authorize=self._authorize, problems=(409,))

`authorize` checks the permission: a coroutine with parameters as the call has them (`name`, `body`, `access`), which
raises Denied or NotFound for a caller who may not make the call.  It runs in one place for all calls, before anything
else is done, and no call can be declared without it.  A request passes these steps:

    1. its length and content type are checked, before a byte of its body is read
    2. its caller logs in, as a user or with the broker's token (`callers`), else 401
    3. parameters and body are checked against their models, else 400
    4. `authorize` checks the permission, else 403 or 404
    5. it is logged as `management.called` if it changes something, and answered
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from broker.engine.model.access import Access
from broker.engine.model.errors import EngineError
from broker.management import problems
from broker.management.callers import ACCESS, CHALLENGE, LOG_IN, Callers, Unknown, require_whole
from broker.management.json_bodies import VALUES_MAX, has_more_values_outside_texts
from broker.management.operator_log import REPORT, caller_fields
from broker.management.ports import Broker
from broker.management.problems import Refused


class _Digits(StringConvertor):
    """A path parameter of digits only, `{task:digits}`; anything else does not match the path."""

    regex = "[0-9]+"


class _Bare(StringConvertor):
    """A path parameter that a verb may follow, `{name:bare}:start`: its own colons are encoded."""

    regex = "[^/:]+"


register_url_convertor("digits", _Digits())
register_url_convertor("bare", _Bare())

#: The prefix of each path.
PREFIX: Final = "/api/v1"

#: Bytes of a body unless a call sets another limit: enough for names, selectors and settings.
BODY_BYTES_MAX: Final = 64 << 10

#: Methods that change nothing.
_READING: Final = ("GET", "HEAD")

#: Problems that each call may have.
_COMMON: Final = (400, 401, 403, 411, 413, 421, 500)

#: Checks a call's permission: raises Denied or NotFound for a caller who may not make it.
Authorize = Callable[..., Coroutine[Any, Any, None]]

#: A call's coroutine.
Endpoint = Callable[..., Coroutine[Any, Any, Any]]


async def _access(request: Request) -> Access:
    access: Access = getattr(request.state, ACCESS)
    return access


#: What the caller may do.
CallerAccess = Annotated[Access, Depends(_access)]


async def anybody() -> None:
    """Any logged-in user: a list shows only what its caller manages."""


async def authorize_whole(access: CallerAccess) -> None:
    """Callers who manage the broker as a whole.  Raises Denied."""
    require_whole(access)


class RequestGuard:
    """Authenticates each request, and handles the failures that no call expects."""

    def __init__(self, broker: Broker, callers: Callers) -> None:
        self._broker = broker
        self._callers = callers
        self._report = broker.engine.report

    async def answer(self, request: Request, inner: Endpoint) -> Response:
        """The answer to a request once its caller is authenticated."""
        try:
            access = await self._callers.access(request)
        except Unknown:
            client = request.client
            where = f"{client.host}:{client.port}" if client else "unknown"
            self._report("management.denied", remote=where, method=request.method, path=request.url.path)
            raise Refused("not-logged-in", LOG_IN, {"www-authenticate": CHALLENGE}) from None
        setattr(request.state, ACCESS, access)
        setattr(request.state, REPORT, self._report)
        try:
            response: Response = await inner(request)
        except (EngineError, Refused, HTTPException, RequestValidationError):
            raise
        except ClientDisconnect:
            raise Refused("invalid-body", "the connection ended before the body did") from None
        except Exception as error:  # before anything else happens: a verb may have been interrupted
            self._broker.tick.failed(None, error)
            return problems.of_bug()
        return response

    def whole_broker(self, handler: Endpoint) -> Endpoint:
        """A handler outside the API, restricted to callers who manage the broker as a whole."""

        async def allowed(request: Request) -> Response:
            require_whole(getattr(request.state, ACCESS))
            self.begin(request)
            response: Response = await handler(request)
            return response

        async def guarded(request: Request) -> Response:
            return await self.answer(request, allowed)

        return guarded

    def begin(self, request: Request) -> None:
        """Log a permitted call that changes something, and begin its verb."""
        if request.method not in _READING:
            access: Access = getattr(request.state, ACCESS)
            self._report(
                "management.called", method=request.method, path=request.url.path, **caller_fields(request, access)
            )
        self._broker.engine.ticks.begin_verb()


class Calls:
    """The calls of one resource of the API; `tag`: its heading in the reference."""

    def __init__(self, app: FastAPI, guard: RequestGuard, tag: str) -> None:
        self._app = app
        if not hasattr(app.state, "calls"):
            app.state.calls = {}
        self._guard = guard
        self._tag = tag

    def add(
        self,
        method: str,
        path: str,
        endpoint: Endpoint,
        *,
        authorize: Authorize,
        status: int = 200,
        problems: Sequence[int] = (),
        body_bytes_max: int = BODY_BYTES_MAX,
        documented: Mapping[int | str, dict[str, Any]] | None = None,
        **more: Any,
    ) -> None:
        """Declare a call; its docstring, parameters and types are its documentation.

        `problems`: the statuses of its refusals, besides those of all calls; `body_bytes_max`: the limit of its body,
        if it has one; `documented`: answers that are no models, by status; `more`: as FastAPI's `add_api_route`.
        """
        key = (method, path, getattr(endpoint, "__func__", endpoint))
        self._app.state.calls[key] = _Call(self._guard, endpoint, authorize)
        if key not in _READ:
            _READ[key] = self._read(
                key,
                methods=[method],
                status_code=status,
                tags=[self._tag],
                responses={**{each: _DOCUMENTED for each in _refusals(path, problems)}, **(documented or {})},
                route_class_override=_route_class(key, body_bytes_max),
                name=f"{endpoint.__name__.replace('_', ' ').capitalize()}",
                operation_id=f"{self._tag.replace(' ', '-').lower()}-{endpoint.__name__.replace('_', '-')}",
                **more,
            )
        self._app.router.routes.append(_READ[key])

    def _read(self, key: _Key, **more: Any) -> BaseRoute:
        """The route to a call, in this application and in others with the same key."""
        call: _Call = self._app.state.calls[key]

        router = APIRouter()
        router.add_api_route(
            PREFIX + key[1],
            _resolved(key, "endpoint", call.endpoint, begins=True),
            dependencies=[Depends(_resolved(key, "authorize", call.authorize))],
            **more,
        )
        return router.routes[0]


#: What a route leads to: a method, a path, and the function without the object that it may be bound to.
_Key = tuple[str, str, Callable[..., Any]]

#: The routes to all calls as FastAPI has parsed them.  Parsing takes a tenth of a second and is done once for all
#: applications of a process; the `_Call` of a route is looked up in the application that is called.
_READ: Final[dict[_Key, BaseRoute]] = {}


class _Call(NamedTuple):
    """What a route leads to in one application."""

    guard: RequestGuard
    endpoint: Endpoint
    authorize: Authorize


def _call(request: Request, key: _Key) -> _Call:
    call: _Call = request.app.state.calls[key]
    return call


def _resolved(key: _Key, part: str, function: Endpoint, *, begins: bool = False) -> Endpoint:
    """A coroutine with the signature of `function` that awaits its counterpart in the called application.

    With `begins`, the call is logged, and its verb begun, once the whole request is known to be valid.
    """

    async def found(request: Request) -> Endpoint:
        call = _call(request, key)
        endpoint: Endpoint = getattr(call, part)

        async def begun(**arguments: Any) -> Any:
            call.guard.begin(request)
            return await endpoint(**arguments)

        return begun if begins else endpoint

    async def resolved(*, _found: Endpoint, **arguments: Any) -> Any:
        return await _found(**arguments)

    declared = signature(function, eval_str=True)
    more = Parameter("_found", Parameter.KEYWORD_ONLY, annotation=Annotated[Any, Depends(found)])
    vars(resolved)["__signature__"] = declared.replace(parameters=[*declared.parameters.values(), more])
    resolved.__doc__ = function.__doc__
    return resolved


_DOCUMENTED: Final[dict[str, Any]] = {
    "description": "Refused.",
    "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def _refusals(path: str, more: Sequence[int]) -> list[int]:
    """The statuses of a call's refusals."""
    named = (404,) if "{" in path else ()
    return sorted({*_COMMON, *named, *more})


def _route_class(key: _Key, body_bytes_max: int) -> type[APIRoute]:
    """A class of routes whose requests pass the guard first."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            inner = super().get_route_handler()
            known = _parameters(self.dependant)
            longest = body_bytes_max if self.body_field or self.openapi_extra else 0

            async def handler(request: Request) -> Response:
                _check_body(request, longest)
                return await _call(request, key).guard.answer(request, checked)

            async def checked(request: Request) -> Response:
                _check_parameters(request, known)
                if self.body_field:
                    _read(request, await request.body())
                return await inner(request)

            return handler

    return Guarded


def _parameters(dependant: Dependant) -> set[str]:
    """The names of a call's query parameters."""
    return {field.alias for field in dependant.query_params}.union(*map(_parameters, dependant.dependencies))


def _check_parameters(request: Request, known: set[str]) -> None:
    """Raises Refused for a parameter that the call does not have, or that is given more than once."""
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        listed = ", ".join(sorted(known)) or "none"
        raise Refused("invalid-parameter", f"there is no parameter {unknown[0][:100]!a}; there are {listed}")
    twice = _repeated(name for name, _ in request.query_params.multi_items())
    if twice:
        raise Refused("invalid-parameter", f"the parameter {twice} is given more than once")


def _check_body(request: Request, longest: int) -> None:
    """Raises Refused for a body that is too long or not JSON."""
    length = int(request.headers.get("content-length", "0"))
    if length > longest:
        detail = f"a body has at most {longest} bytes" if longest else "send no body: this call takes none"
        raise Refused("body-too-large", detail, {"connection": "close"})
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if length and kind != "application/json":
        raise Refused("not-json", "send the body as JSON, with Content-Type: application/json")


def _repeated(names: Iterable[str]) -> str:
    """The first repeated name; empty if there is none."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _read(request: Request, body: bytes) -> None:
    """Parse a body, once for all.

    Raises Refused if it has too many values; for a repeated field of an object, of which JSON would silently take the
    last one; and if it is not Unicode, which JSON can hide in an escaped half of a surrogate pair.
    """
    if has_more_values_outside_texts(body, VALUES_MAX):
        raise Refused("body-too-large", f"a body has at most {VALUES_MAX} values")

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            twice = _repeated(name for name, _ in pairs)
            raise Refused("invalid-body", f"the field {twice[:100]!a} is given more than once")
        return fields

    try:
        text = body.decode()
        parsed = json.loads(text, object_pairs_hook=unique)
        if "\\ud" in text.lower():
            json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeError:
        raise Refused("invalid-body", "the body is not valid Unicode") from None
    except (ValueError, RecursionError):
        return  # reported when it is parsed again
    vars(request)["_json"] = parsed  # what `Request.json` returns
