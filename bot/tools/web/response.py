"""What a server said, as a value; light, so that whoever only names it imports no HTTP library."""

from __future__ import annotations

from dataclasses import dataclass

from bot.guards.urls import Url
from bot.ports.tool import ItemError


@dataclass(slots=True)
class Response:
    """``data`` is decompressed; ``missing`` tells why it is only the beginning, if it is.

    ``moved`` is where the page is if that is another site: fetching it is a call of its own, for which rules and
    permissions may say something else.
    """

    url: Url
    status: int = 0
    media_type: str = ""
    length: int | None = None
    retry_after: str = ""
    location: str = ""
    data: bytes | bytearray = b""
    missing: ItemError | None = None
    moved: Url | None = None

    @property
    def kind(self) -> str:
        """Return the media type without its parameters; empty when the server named none."""
        return self.media_type.partition(";")[0].strip().lower()

    @property
    def is_text(self) -> bool:
        """Return whether the beginning of it is worth something without the end."""
        return self.kind.startswith("text/") or self.kind.endswith(
            ("html", "xml", "json", "yaml", "javascript")
        )
