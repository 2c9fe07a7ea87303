"""The words in a message's blocks, in Slack's markup: a message may have blocks and no text; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from transports.slack.api.json_fields import Shape, part, parts, string

DEEPEST = 8
"""How deep blocks may nest; Slack's own nest four deep."""


def words_of(blocks: Sequence[Shape]) -> str:
    return "\n".join(_all(blocks, DEEPEST))


def _all(shapes: Sequence[Shape], depth: int) -> list[str]:
    return [words for shape in shapes if (words := _words(shape, depth))]


def _words(shape: Shape, depth: int) -> str:
    kind = string(shape, "type")
    if write := _LEAVES.get(kind):
        return write(shape)
    if depth == 0 or kind not in _BRANCHES:
        return ""
    inner = [part(shape, "text"), *parts(shape, "fields"), *parts(shape, "elements")]
    return _BRANCHES[kind](_all(inner, depth - 1), shape)


def _plain(shape: Shape) -> str:
    return escape(string(shape, "text"), quote=False)


def _link(shape: Shape) -> str:
    label = _plain(shape)
    return f"<{string(shape, 'url')}{'|' if label else ''}{label}>"


_LEAVES: Mapping[str, Callable[[Shape], str]] = {
    "text": _plain,
    "plain_text": _plain,
    "mrkdwn": lambda shape: string(shape, "text"),
    "markdown": lambda shape: string(shape, "text"),
    "link": _link,
    "user": lambda shape: f"<@{string(shape, 'user_id')}>",
    "usergroup": lambda shape: f"<!subteam^{string(shape, 'usergroup_id')}>",
    "channel": lambda shape: f"<#{string(shape, 'channel_id')}>",
    "broadcast": lambda shape: f"<!{string(shape, 'range')}>",
    "emoji": lambda shape: f":{string(shape, 'name')}:",
}


def _lines(inner: list[str], _: Shape) -> str:
    return "\n".join(inner)


def _items(inner: list[str], shape: Shape) -> str:
    ordered = string(shape, "style") == "ordered"
    return "\n".join(f"{number}. {item}" if ordered else f"- {item}" for number, item in enumerate(inner, 1))


_BRANCHES: Mapping[str, Callable[[list[str], Shape], str]] = {
    "rich_text": _lines,
    "section": _lines,
    "header": _lines,
    "context": _lines,
    "rich_text_section": lambda inner, _: "".join(inner),
    "rich_text_list": _items,
    "rich_text_preformatted": lambda inner, _: f"```\n{''.join(inner)}\n```",
    "rich_text_quote": lambda inner, _: "\n".join(f"> {line}" for line in "".join(inner).split("\n")),
}
