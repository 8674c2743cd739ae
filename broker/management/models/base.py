"""What all models of the API share: strict types, no unknown fields, and the parameters that many calls have.

Names of fields are snake_case.  Attributes of queues and address settings are called as in the configuration:
`ring-size`.  Times are milliseconds since the epoch (0: none), sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

#: Entries of a list by default, and at most: making a list takes some ms.
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000

#: The largest message id.
ID_MAX: Final = (1 << 63) - 1

#: Digits of a number in a path or query: more than any valid number has.
DIGITS_MAX: Final = 100

#: How long a call may wait for the end of a task, in ms: shorter than the timeouts of proxies.
WAIT_MS_MAX: Final = 20_000

#: Characters of a cursor: it holds a name of at most 1 KiB, escaped and in Base64, and little else.
CURSOR_CHARS_MAX: Final = 9_000

#: Characters of a text to search names for: names are no longer.
NAME_CHARS_MAX: Final = 1_024

#: Characters of an operator's reason that is sent to a client.
REASON_CHARS_MAX: Final = 200

#: Characters of the id of an upload, which the caller chooses.
UPLOAD_ID_CHARS_MAX: Final = 100

#: Characters of a word or log line to explain.
WORD_CHARS_MAX: Final = 2_000

RoutingTypeName = Literal["ANYCAST", "MULTICAST"]

#: The type of a validation error that becomes a problem's `code` of the same name.
INVALID_NAME: Final = "invalid-name"


class Shown(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Shown)


def model_of(model: type[Model], *sources: object, **other: Any) -> Model:
    """A model with these other fields; the rest are attributes of the same name of the first source that has them."""
    rest = model.model_fields.keys() - other.keys()
    fields = {name: next(getattr(each, name) for each in sources if hasattr(each, name)) for name in rest}
    return model(**other, **fields)


class Body(BaseModel):
    """The JSON body of a request."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """Reject an unknown field with a list of the known ones."""
        if isinstance(given, dict):
            fields = [field.alias or name for name, field in cls.model_fields.items()]
            unknown = next((name for name in given if name not in fields), None)
            if unknown is not None:
                there_are = f"there are {', '.join(sorted(fields))}" if fields else "there are none"
                why = f"there is no field {unknown[:100]!a}; {there_are}"
                raise PydanticCustomError("unknown-field", "{why}", {"why": why})
        return given


def _unquoted(text: object) -> object:
    assert isinstance(text, str)
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise PydanticCustomError(INVALID_NAME, "the name is not percent-encoded UTF-8") from None


def number(text: object) -> object:
    """Parse ASCII digits only: pydantic would also accept 1.0 and digits of other scripts."""
    if isinstance(text, str):
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
            raise PydanticCustomError("not-a-number", f"must be a whole number of at most {DIGITS_MAX} digits")
        return int(text)
    return text


def _flag(text: object) -> object:
    if isinstance(text, str):
        if text not in ("true", "false"):
            raise PydanticCustomError("not-a-flag", "must be true or false")
        return text == "true"
    return text


Flag = Annotated[bool, BeforeValidator(_flag)]

Name = Annotated[str, BeforeValidator(_unquoted), Path(description="The name, percent-encoded.")]
Id = Annotated[str, BeforeValidator(_unquoted), Path(description="The id, as shown in the list.")]
UploadId = Annotated[
    str,
    BeforeValidator(_unquoted),
    Path(
        min_length=1,
        max_length=UPLOAD_ID_CHARS_MAX,
        description="A name for the upload, chosen by the caller; it must be unique.",
    ),
]
Word = Annotated[
    str,
    BeforeValidator(_unquoted),
    Path(max_length=WORD_CHARS_MAX, description="A word or a log line, percent-encoded."),
]
TaskId = Annotated[int, Field(ge=1), BeforeValidator(number), Path(description="The task's number.")]
Wait = Annotated[
    int,
    Field(ge=0, le=WAIT_MS_MAX),
    BeforeValidator(number),
    Query(description="How many ms to wait at most for the task to end or pause."),
]
MessageId = Annotated[int, Field(ge=1), BeforeValidator(number), Path(description="The message's id.")]
Limit = Annotated[
    int, Field(ge=1, le=LIMIT_MAX), BeforeValidator(number), Query(description="The most entries to return.")
]
PageLimit = Annotated[
    int,
    Field(ge=0, le=LIMIT_MAX),
    BeforeValidator(number),
    Query(description="The most entries to return; 0: as set by management-browse-page-size."),
]
After = Annotated[
    str, Query(max_length=CURSOR_CHARS_MAX, description="The `next` of the previous page; empty: the first page.")
]
Search = Annotated[str, Query(max_length=NAME_CHARS_MAX, description="Only names that contain this text; empty: all.")]
Internal = Annotated[Flag, Query(description="true: include the broker's own.")]
Force = Annotated[Flag, Query(description="true: even if it is not empty or is in use.")]
Reason = Annotated[str, Query(max_length=REASON_CHARS_MAX, description="A reason to send to the client.")]

#: `next` in a list.
Next = Annotated[str | None, Field(description="The `after` of the next page; null: this is the last page.")]
Total = Annotated[int, Field(description="How many the caller manages in all.")]


class FieldProblem(Shown):
    """What is wrong with one field or parameter."""

    where: Literal["body", "path", "query", "header"]
    field: str
    detail: str


class Problem(BaseModel):
    """Why a call was refused (RFC 9457)."""

    type: str = Field(description="The broker's page about this kind of problem.")
    title: str = Field(description="The kind of problem in words.")
    status: int
    detail: str = Field(description="What is wrong with this request.")
    code: str = Field(description="The kind of problem as a word for programs.")
    errors: list[FieldProblem] = Field(default=[], description="The invalid fields or parameters, if any.")
