"""Problem documents (RFC 9457), which say why a call was refused; all are made here.

Each has a `code` for programs: a word of broker/reasons, which defines its status, title and meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from broker.engine.model.errors import EngineError
from broker.management.models.base import INVALID_NAME
from broker.reasons.table import reasons

MEDIA_TYPE: Final = "application/problem+json"

#: The page that says what each code means.
PAGE: Final = "/api/v1/docs"

#: Field errors listed in one problem: the first ones are enough.
ERRORS_MAX: Final = 20


#: All kinds of problems, by code.
ALL_KINDS: Final = {reason.word: reason for reason in sorted(reasons(), key=attrgetter("word")) if reason.title}


class Refused(Exception):
    """Raised to refuse a request; `code` is one of ALL_KINDS."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.headers = headers


def problem(
    code: str,
    detail: str,
    *,
    status: int = 0,
    errors: Iterable[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer with a problem document; `status` 0: the status of its kind."""
    kind = ALL_KINDS[code]
    status = status or _status(code)
    document = {
        "type": f"{PAGE}#{code}",
        "title": kind.title,
        "status": status,
        "detail": detail,
        "code": code,
        "errors": list(errors),
    }
    # In ASCII: text taken from a request may not be encodable.
    return Response(json.dumps(document), status, dict(headers or {}), MEDIA_TYPE)


def of_refusal(error: Refused) -> Response:
    """The answer to a request that the API refuses."""
    return problem(error.code, error.detail, headers=error.headers)


def of_engine(error: EngineError) -> Response:
    """The answer to a call that the engine refuses."""
    return problem(_code(error), str(error))


def status_of(error: EngineError) -> int:
    """The HTTP status for a refusal of the engine."""
    return _status(_code(error))


def _status(code: str) -> int:
    status = ALL_KINDS[code].number
    assert status is not None, "each problem has a status"
    return status


def _code(error: EngineError) -> str:
    return error.code if error.code in ALL_KINDS else "refused"


def of_status(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that the router refuses."""
    code = {400: "invalid-body", 404: "no-such-call", 405: "no-such-method"}.get(status, "refused")
    return problem(code, detail, status=status, headers=headers)


def of_bug() -> Response:
    """The answer after an unexpected exception."""
    return problem("internal", "the broker failed to answer; its log has the reason")


#: The predicate by pydantic's type of error, for a sentence that begins with the field's name.
_WORDS: Final = {
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
    "string_too_long": "has more than {max_length} characters",
    "string_too_short": "is empty",
    "string_type": "must be a text",
    "string_unicode": "is not valid Unicode",
    "too_long": "has more than {max_length} entries",
    "too_short": "has fewer than {min_length} entries",
}


#: Types of errors for a body that is missing or no object.
_NO_OBJECT: Final = ("missing", "model_attributes_type", "model_type", "dict_type")


def of_validation(error: RequestValidationError) -> Response:
    """The answer to a request that does not fit the call's models."""
    # doubled where `about` reads the same parameter
    described = [_describe(each) for each in error.errors()[: 2 * ERRORS_MAX]]
    found = [each for at, each in enumerate(described) if each not in described[:at]][:ERRORS_MAX]
    code = "invalid-body" if found[0]["where"] == "body" else "invalid-parameter"
    if error.errors()[0]["type"] == INVALID_NAME:
        code = INVALID_NAME
    return problem(code, "; ".join(each["sentence"] for each in found), errors=[_field(each) for each in found])


def _describe(error: Mapping[str, Any]) -> dict[str, str]:
    where, *path = error["loc"]
    context = error.get("ctx") or {}
    if error["type"] == "json_invalid":
        return _one("body", "", f"the body is not JSON: {context.get('error', '')} at {path[0]}")
    field = ".".join(map(str, path))
    if error["type"] == "value_error":
        detail = str(context["error"])
    elif error["type"] in _WORDS:
        detail = _WORDS[error["type"]].format_map(context)
    else:
        detail = error["msg"]
    if where == "body" and not field and error["type"] in _NO_OBJECT:
        return _one("body", "", "the body must be a JSON object")
    return _one(where, field, detail)


def _one(where: str, field: str, detail: str) -> dict[str, str]:
    begins = detail.split(" ")[0] in ("must", "is", "has")
    return {"where": where, "field": field, "detail": detail, "sentence": f"{field} {detail}" if begins else detail}


def _field(found: Mapping[str, str]) -> dict[str, str]:
    return {name: found[name] for name in ("where", "field", "detail")}
