"""A model's Markdown as the content of Matrix messages; pure.

The body is the Markdown itself, for clients that show nothing else. The formatted one is HTML of the tags that the
specification allows: HTML in the text stays text, an image is a link to it, and a link to a person is text, so nothing
is fetched and nobody is called. https://spec.matrix.org/v1.16/client-server-api/#mroommessage-msgtypes
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from transports.base.model_forms import with_model_forms
from transports.base.text import clean, split
from transports.matrix.values import MARK, Mark

PAGE = 12_000
"""Characters of a message: with HTML, encryption and escapes it stays below the 64 KiB of an event."""
NOTHING = "…"
_SCHEMES = re.compile(r"(?:https?|mailto|matrix):", re.IGNORECASE)
_PERSON = re.compile(r"https?://matrix\.to/", re.IGNORECASE)


def pages(text: str) -> list[str]:
    """Return a text in messages, one at least."""
    return split(clean(text), PAGE) or [NOTHING]


def content(
    text: str, mark: Mark, related: Mapping[str, Any] | None = None, *, notice: bool = False
) -> dict[str, Any]:
    """Return the content of a message. It calls nobody."""
    return {
        "msgtype": "m.notice" if notice else "m.text",
        "body": text,
        "format": "org.matrix.custom.html",
        "formatted_body": html(text),
        "m.mentions": {},
        MARK: mark.content(),
        **({"m.relates_to": related} if related else {}),
    }


def edit(event: str, new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an event that replaces that of another one."""
    replaced = {name: value for name, value in new.items() if name != "m.relates_to"}
    return {
        **replaced,
        "body": f"* {new['body']}",
        "formatted_body": f"* {new['formatted_body']}",
        "m.new_content": replaced,
        "m.relates_to": {"rel_type": "m.replace", "event_id": event},
    }


def in_thread(root: str, reply_to: str) -> dict[str, Any] | None:
    """Return the relation of a message in a thread; clients without threads show a reply. None outside of one."""
    if not root:
        return None
    return {
        "rel_type": "m.thread",
        "event_id": root,
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": reply_to or root},
    }


def html(text: str) -> str:
    """Return Markdown as HTML that is safe in any client."""
    rendered: str = _parser().render(text)
    return rendered.strip()


def plain(words: str) -> str:
    """Return plain words as Markdown that shows them as they are, in one line."""
    return re.sub(r"([\\`*_{}\[\]<>#+!|~-])", r"\\\1", " ".join(clean(words).split()))


class _Safe(RendererHTML):
    def image(self, tokens: Sequence[Token], index: int, _: OptionsDict, __: EnvType) -> str:
        address, words = str(tokens[index].attrs.get("src", "")), tokens[index].content
        return (
            f'<a href="{escape(address)}">{escape(words or address)}</a>'
            if _may_link(address)
            else escape(words)
        )

    def link_open(self, tokens: Sequence[Token], index: int, _: OptionsDict, __: EnvType) -> str:
        address = str(tokens[index].attrs.get("href", ""))
        return f'<a href="{escape(address)}">' if _may_link(address) else "<span>"

    def address(self, tokens: Sequence[Token], index: int, _: OptionsDict, __: EnvType) -> str:
        address = escape(tokens[index].content)
        return f'<a href="{address}">{address}</a>' if _may_link(tokens[index].content) else address

    def link_close(self, tokens: Sequence[Token], index: int, _: OptionsDict, __: EnvType) -> str:
        opening = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
        return "</a>" if _may_link(str(opening.attrs.get("href", ""))) else "</span>"


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "breaks": True, "maxNesting": 30}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Safe).enable(["table", "strikethrough"])
    return with_model_forms(parser)


def _may_link(address: str) -> bool:
    return bool(_SCHEMES.match(address)) and not _PERSON.match(address)
