"""What is asked of a browser and what it saw: the seam between the tool and Chromium."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class BrowserFailed(Exception):
    """The browser did not start, died, or does not answer; ``str(error)`` is for the operator's log."""


class PageFailed(Exception):
    """The page gave nothing in its time, or its tab died; the browser itself is well. ``str(error)`` is a clause."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page to see. ``wait_for`` is a selector to be visible first; ``whole``: picture more than the screen."""

    url: str
    wait_for: str = ""
    picture: bool = False
    full_page: bool = False


@dataclass(frozen=True, slots=True)
class PageView:
    """A page as a person would see it. ``status`` is HTTP's, 0 if there was none; ``links`` one a line.

    ``unready`` says what the page did not do in its time. ``refused`` are hosts that it asked for and was denied, and
    why. ``picture`` is a JPEG, or ``unpictured`` says for the log why there is none.
    """

    url: str
    title: str
    text: str
    links: str = ""
    status: int = 0
    cut: bool = False
    unready: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    picture: bytes = b""
    unpictured: str = ""


class Pages(Protocol):
    async def view(self, request: PageRequest, deadline: float) -> PageView:
        """Return the page by *deadline* (anyio's clock).

        Raises `BrowserFailed`, `PageFailed`, and `bot.ports.errors.ToolError` for what is the address's own fault.
        """
        ...
