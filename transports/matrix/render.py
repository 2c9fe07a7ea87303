"""A model's Markdown as the content of Matrix messages; pure.

The body is the Markdown itself, for clients that show nothing else. The formatted one is HTML of the tags that the
specification allows: HTML in the text stays text, and addresses that nobody allowed are code. So nothing is fetched
and nobody is called. https://spec.matrix.org/v1.16/client-server-api/#mroommessage-msgtypes
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType

from transports.base.model_forms import with_model_forms
from transports.base.text import clean, split
from transports.matrix.values import MARK

PAGE, MOST_HTML = 22_000, 25_000
"""Bytes of a message, as text and as HTML without its tags, and of the HTML. An event has 64 KiB, and encryption
takes a third more."""
FALLBACK = 200
"""Characters of an edit that apps show which know of none."""
_HOST = re.compile(r"https?://([a-z0-9_.-]+)(?::[0-9]{1,5})?(?=[/?#]|\Z)(?!.*\\)", re.IGNORECASE)


def pages(text: str) -> list[str]:
    """Return a text in messages, one at least."""
    return split(clean(text), PAGE, size=_size) or ["…"]


def _size(text: str) -> int:
    return sum(len(form.encode("utf-8", "replace")) for form in (text, escape(text)))


def content(
    text: str, mark: Mapping[str, Any], root: str = "", reply_to: str = "", links: Collection[str] = ()
) -> dict[str, Any]:
    """Return the content of a message, in the thread below *root*. It calls nobody. *links* are as for `html`."""
    message = {"msgtype": "m.text", "body": text, "m.mentions": {}, MARK: mark, **in_thread(root, reply_to)}
    formatted = {"format": "org.matrix.custom.html", "formatted_body": html(text, links)}
    return message | (formatted if len(formatted["formatted_body"].encode()) < MOST_HTML else {})


def in_thread(root: str, reply_to: str = "") -> dict[str, Any]:
    """Return the relation of a message in a thread; clients without threads show a reply. Empty outside of one."""
    fallback = {"is_falling_back": True, "m.in_reply_to": {"event_id": reply_to or root}}
    return {"m.relates_to": {"rel_type": "m.thread", "event_id": root, **fallback}} if root else {}


def edit(event: str, new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an event that replaces that of another one."""
    replaced = {name: value for name, value in new.items() if name != "m.relates_to"}
    shown = {"msgtype": new["msgtype"], "body": f"* {new['body'][:FALLBACK]}", "m.mentions": {}}
    return {**shown, "m.new_content": replaced, "m.relates_to": {"rel_type": "m.replace", "event_id": event}}


def html(text: str, links: Collection[str] = ()) -> str:
    """Return Markdown as HTML that is safe in any client. *links* are addresses, and hosts, that may be linked."""
    return str(_parser().render(text, {"links": links})).strip()


def plain(words: str) -> str:
    """Return plain words as Markdown that shows them as they are, in one line."""
    return re.sub(r"([\\`*_{}\[\]<>#+!|~-])", r"\\\1", " ".join(clean(words).split()))


class _Safe(RendererHTML):
    """Writes an address that may not be linked as code: an app would fetch it for a preview, and so tell its host."""

    def image(self, tokens: Sequence[Token], index: int, _: object, env: EnvType) -> str:
        return "".join(_link(str(tokens[index].attrs.get("src", "")), env, escape(tokens[index].content)))

    def address(self, tokens: Sequence[Token], index: int, _: object, env: EnvType) -> str:
        return "".join(_link(tokens[index].content, env, ""))

    def link_open(self, tokens: Sequence[Token], index: int, _: object, env: EnvType) -> str:
        return _link(str(tokens[index].attrs.get("href", "")), env, "…")[0]

    def link_close(self, tokens: Sequence[Token], index: int, _: object, env: EnvType) -> str:
        opening = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
        return _link(str(opening.attrs.get("href", "")), env, "…")[2]


def _link(address: str, env: EnvType, words: str) -> tuple[str, str, str]:
    """Return what stands before the words of a link, the words, and what stands after them."""
    shown, host = escape(address), _HOST.match(address)
    names = [f".{name.lower().strip('.')}" for name in env["links"]]
    if address in env["links"] or (host and any(f".{host[1].lower()}".endswith(name) for name in names)):
        return f'<a href="{shown}">', words or shown, "</a>"
    return ("", words, f" (<code>{shown}</code>)") if words else ("<code>", shown, "</code>")


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "breaks": True, "maxNesting": 30}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Safe).enable(["table", "strikethrough"])
    return with_model_forms(parser)
