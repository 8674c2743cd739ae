"""What all models of the API share: strict types, no unknown fields, and the parameters that many calls have.

Names of fields are snake_case.  Attributes of queues and address settings are called as in the configuration:
`ring-size`.  Times are milliseconds since the epoch (0: none), sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

#: Things in a list unless a call says otherwise, and the most that may be asked for: a list is made within some ms.
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000

#: The largest message id.
ID_MAX: Final = (1 << 63) - 1

#: Digits of a number in a path or query: more than any has that could be meant.
DIGITS_MAX: Final = 100

#: How long a call may wait for the end of a task, in ms: less than proxies wait for an answer.
WAIT_MS_MAX: Final = 20_000

#: Characters of a cursor: it holds a name of at most 1 KiB, escaped and in Base64, and little else.
CURSOR_CHARS_MAX: Final = 9_000

#: Characters of a text that names are searched for: a name has no more.
NAME_CHARS_MAX: Final = 1_024

#: Characters of an operator's reason that a client gets to see.
REASON_CHARS_MAX: Final = 200

#: Characters of the id of an upload, which the caller chooses.
UPLOAD_ID_CHARS_MAX: Final = 100

#: Characters of what is to be explained: a line of the log.
WORD_CHARS_MAX: Final = 2_000

RoutingTypeName = Literal["ANYCAST", "MULTICAST"]

#: A type of `code` in problems that a validator raises under its own name.
INVALID_NAME: Final = "invalid-name"


class Shown(BaseModel):
    """What the API answers."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Body(BaseModel):
    """What the API is asked, in JSON."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """An unknown field is told with those that there are."""
        if isinstance(given, dict):
            fields = [field.alias or name for name, field in cls.model_fields.items()]
            unknown = next((name for name in given if name not in fields), None)
            if unknown is not None:
                there_are = f"there are {', '.join(sorted(fields))}" if fields else "there are none"
                why = f"there is no field {unknown[:100]!a}; {there_are}"
                raise PydanticCustomError("unknown-field", "{why}", {"why": why})
        return given


# -- what paths and queries hold ---------------------------------------------------------------------------------------


def _unquoted(text: object) -> object:
    assert isinstance(text, str)
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise PydanticCustomError(INVALID_NAME, "the name is not percent-encoded UTF-8") from None


def number(text: object) -> object:
    """A number of digits; pydantic would also take 1.0, and digits of other scripts."""
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
Id = Annotated[str, BeforeValidator(_unquoted), Path(description="The id, as the list has it.")]
UploadId = Annotated[
    str,
    BeforeValidator(_unquoted),
    Path(min_length=1, max_length=UPLOAD_ID_CHARS_MAX, description="A name for the upload that nobody else has."),
]
Word = Annotated[
    str, BeforeValidator(_unquoted), Path(max_length=WORD_CHARS_MAX, description="A word or line, percent-encoded.")
]
TaskId = Annotated[int, Field(ge=1), BeforeValidator(number), Path(description="The task's number.")]
Wait = Annotated[
    int,
    Field(ge=0, le=WAIT_MS_MAX),
    BeforeValidator(number),
    Query(description="Wait so many ms at most until it runs no more."),
]
MessageId = Annotated[int, Field(ge=1), BeforeValidator(number), Path(description="The message's id.")]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX), BeforeValidator(number), Query(description="At most so many.")]
PageLimit = Annotated[
    int,
    Field(ge=0, le=LIMIT_MAX),
    BeforeValidator(number),
    Query(description="At most so many; 0: as the setting management-browse-page-size says."),
]
After = Annotated[
    str, Query(max_length=CURSOR_CHARS_MAX, description="Go on after what an answer gave as `next`; empty: begin.")
]
Search = Annotated[
    str, Query(max_length=NAME_CHARS_MAX, description="Only those with this text in their names; empty: all.")
]
Internal = Annotated[Flag, Query(description="true: also what the broker has for itself.")]
Force = Annotated[Flag, Query(description="true: with all that is in it.")]
Reason = Annotated[str, Query(max_length=REASON_CHARS_MAX, description="What the client is told.")]

#: `next` in a list.
Next = Annotated[str | None, Field(description="What to give as `after` for those that follow; null: there are none.")]
Total = Annotated[int, Field(description="How many there are that the caller manages.")]


# -- problems ----------------------------------------------------------------------------------------------------------


class FieldProblem(Shown):
    """What is wrong with one field or parameter."""

    where: Literal["body", "path", "query", "header"]
    field: str
    detail: str


class Problem(BaseModel):
    """Why a call was refused (RFC 9457)."""

    type: str = Field(description="A page about this kind of problem, at the broker.")
    title: str = Field(description="What kind of problem it is.")
    status: int
    detail: str = Field(description="What is wrong this time.")
    code: str = Field(description="The kind of problem, for programs.")
    errors: list[FieldProblem] = Field(default=[], description="Which fields are wrong, if it is about some.")
