"""The seam between the tool and Chromium: a request for a page, and the view of it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic.dataclasses import dataclass as validated


class BrowserFailed(Exception):
    """The browser did not start, died, or does not answer; ``str(error)`` is for the operator's log."""


class PageFailed(Exception):
    """The page gave nothing in time, or its tab died; the browser works. ``str(error)`` is a clause."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page to view. ``wait_for`` is a selector to wait for; ``full_page`` asks for more than the screen."""

    url: str
    wait_for: str = ""
    picture: bool = False
    full_page: bool = False


@validated(frozen=True, slots=True)
class PageView:
    """A page as a person would see it. ``status`` is HTTP's, or 0; ``links`` has one on each line.

    ``height`` is in CSS pixels. ``unready`` says what the page did not do in time. ``refused`` are the hosts that it
    was denied, and why. ``picture`` is a JPEG, or ``unpictured`` says for the log why there is none.
    """

    url: str
    title: str
    text: str
    links: str = ""
    status: int = 0
    cut: bool = False
    height: float = 0
    unready: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    picture: bytes = b""
    unpictured: str = ""
