"""Everything that can go wrong with one call, and the script that says when.

``applied=True``: the call was carried out all the same, only its answer is lost or a lie.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.faults import Gate, Slow, Stall

__all__ = ["Cut", "Fault", "Garbage", "Gate", "RateLimited", "Refused", "Slow", "Stall", "Status"]


@dataclass(frozen=True)
class Status:
    """A bare status, with a page or with JSON that says nothing; *location* is where a redirect leads."""

    status: int = 503
    applied: bool = False
    html: bool = True
    location: str = ""


@dataclass(frozen=True)
class RateLimited:
    """429. Without *via* and with a page it is Cloudflare's: the address is banned."""

    seconds: float = 1.0
    via: bool = True
    is_global: bool = False
    applied: bool = False


@dataclass(frozen=True)
class Refused:
    """One of Discord's JSON errors."""

    status: int
    code: int
    message: str = "Refused"
    applied: bool = False


@dataclass(frozen=True)
class Cut:
    """The connection is reset without an answer. aiohttp tries a GET, PUT or DELETE a second time by itself."""

    applied: bool = False


@dataclass(frozen=True)
class Garbage:
    """200, and a body that is no JSON though its header says so."""

    applied: bool = False
    body: str = '{"id": tr'


Fault = Status | RateLimited | Refused | Cut | Stall | Slow | Garbage | Gate
