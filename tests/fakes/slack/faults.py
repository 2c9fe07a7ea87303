"""Everything that can go wrong with one call, and the script that says when.

``applied=True``: the call was carried out all the same, only its answer is lost or a lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tests.fakes.faults import Gate, Slow, Stall
from tests.fakes.slack.records import Json

__all__ = ["ApiError", "Cut", "Fault", "Garbage", "Gate", "Html", "RateLimited", "Slow", "Stall"]


@dataclass(frozen=True)
class RateLimited:
    """429 with Retry-After."""

    retry_after: int = 1
    applied: bool = False


@dataclass(frozen=True)
class Html:
    """A 5xx (or any status) with a page instead of JSON."""

    status: int = 503
    applied: bool = False


@dataclass(frozen=True)
class Cut:
    """The connection ends without an answer: reset, or closed politely."""

    applied: bool = False
    how: Literal["rst", "fin"] = "rst"


@dataclass(frozen=True)
class Garbage:
    """200 and a body that is no JSON."""

    applied: bool = False
    body: str = '{"ok": tr'
    kind: str = "application/json"


@dataclass(frozen=True)
class ApiError:
    """``{"ok": false, "error": error, **more}``."""

    error: str
    more: Json = field(default_factory=dict)
    applied: bool = False


Fault = RateLimited | Html | Cut | Stall | Garbage | ApiError | Slow | Gate
