"""What the page sends: the body of each request that changes something, as it is taken."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from transports.web.thread_list import one_line

LONGEST_TEXT = 200_000

Id = Annotated[str, StringConstraints(pattern=r"^[a-f0-9][a-f0-9-]{7,63}$")]
ROOT = re.compile(r"[A-Za-z0-9._-]{1,100}")
CURSOR = re.compile(rf"([0-9]{{1,12}}\.[0-9]{{1,12}}:{ROOT.pattern})?")
Root = Annotated[str, StringConstraints(pattern=f"^{ROOT.pattern}$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LinkBody(_Body):
    """``sure``: the person wants to leave the session of somebody else."""

    link: Annotated[str, Field(max_length=2_000)]
    sure: bool = False


class SentFileBody(_Body):
    id: Annotated[str, Field(max_length=64)]
    name: Annotated[str, Field(max_length=1_000)]


class MessageBody(_Body):
    id: Id
    thread: Root
    text: Annotated[str, Field(max_length=LONGEST_TEXT)]
    files: Annotated[tuple[SentFileBody, ...], Field(max_length=20, strict=False)] = ()


class EditBody(_Body):
    id: Id
    thread: Root
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]


class AgainBody(_Body):
    """``message`` is the id of the replaced one. ``text`` is its own, or another."""

    id: Id
    thread: Root
    message: Id
    text: Annotated[str, Field(max_length=LONGEST_TEXT)]


class DeleteBody(_Body):
    id: Id
    thread: Root


class FeedbackBody(_Body):
    id: Id
    thread: Root
    post: Annotated[str, Field(max_length=200)]
    verdict: Literal["up", "down"]


class CodeBody(_Body):
    language: Annotated[str, Field(max_length=30)]
    code: Annotated[str, Field(max_length=LONGEST_TEXT)]


class SaidBody(_Body):
    """What a person says of a thread; a blank title gives it its first words back."""

    thread: Root
    title: Annotated[str, Field(max_length=1_000)] | None = None
    pinned: bool | None = None
    archived: bool | None = None
    deleted: bool | None = None

    def changes(self) -> dict[str, str | bool]:
        """Return the changes of a `transports.web.thread_list.ThreadNote`."""
        said: dict[str, str | bool] = self.model_dump(include={"pinned", "archived"}, exclude_none=True)
        if self.title is not None:
            said |= {"title": (title := one_line(self.title)), "named": bool(title)}
        if self.deleted is not None:
            said["deleted_at"] = datetime.now(UTC).isoformat(timespec="seconds") if self.deleted else ""
        return said


B = TypeVar("B", bound=_Body)


async def read_body(request: Request, shape: type[B]) -> B:
    try:
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise HTTPException(415, "Send JSON.")
        return shape.model_validate_json(await request.body())
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, f['loc'])) or 'body'}: {f['msg']}" for f in error.errors()[:5]
        )
        raise HTTPException(422, faults) from error
