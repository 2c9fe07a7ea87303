"""Slack's rules as far as they are documented or were measured: sizes, blocks, and what a text would set off.

Pure. A broken rule is raised as ``Refusal``, which is the error body of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.fakes.slack.records import Json

TEXT, UPDATE_TEXT, MARKDOWN, BLOCKS, VALUE = 40_000, 4_000, 12_000, 50, 2_000
STREAM_BYTES, STREAM_SECONDS = 11_900, 300.0


class Refusal(Exception):
    """``{"ok": false, "error": error, **more}``."""

    def __init__(self, error: str, *messages: str, **more: Any) -> None:
        super().__init__(error)
        self.error = error
        self.more = more
        if messages:
            self.more["response_metadata"] = {"messages": [f"[ERROR] {message}" for message in messages]}


# what a text sets off

_TOKEN = re.compile(r"<(?:!(channel|here|everyone|group)|!(subteam\^\w+)|@([UW]\w*))(?:\|[^<>]*)?>")
_PLAIN = re.compile(r"(?<![\w/@.])@(channel|here|everyone)\b")
_CODE = re.compile(r"```.*?(?:```|\Z)|(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK_TOKEN = re.compile(r"<(https?://[^<>|\s]+)(?:\|[^<>]*)?>", re.IGNORECASE)
_BARE = re.compile(r"https?://[^\s<>|)\"\]`]+", re.IGNORECASE)


class SetOff(NamedTuple):
    pings: list[str]
    urls: list[str]


def set_off(text: str, blocks: Iterable[Json] = (), *, parse: str = "none") -> SetOff:
    """What *text* and *blocks* would ping and make Slack fetch.

    Tokens in angle brackets are parsed even inside code, plain ``@here`` only with parse client or full;
    a bare address is a link everywhere but in code. ``&lt;`` is never read again as a token.
    """
    pings: list[str] = []
    urls: list[str] = []
    for spoken in (text, *_spoken(blocks, pings, urls)):
        if not spoken:
            continue
        for token in _TOKEN.finditer(spoken):
            pings.append(next(name for name in token.groups() if name))
        if parse in ("client", "full"):
            pings += _PLAIN.findall(spoken)
        urls += _LINK_TOKEN.findall(spoken)
        urls += _BARE.findall(_CODE.sub(" ", _LINK_TOKEN.sub(" ", spoken)))
    return SetOff(pings, urls)


def _spoken(node: Any, pings: list[str], urls: list[str]) -> Iterator[str]:
    """Texts of blocks in which tokens live; entities of rich text and images are put where they belong."""
    if isinstance(node, list | tuple):
        for item in node:
            yield from _spoken(item, pings, urls)
    if not isinstance(node, dict):
        return
    match node:
        case {"type": "markdown" | "mrkdwn" | "markdown_text", "text": str(text)}:
            yield text
        case {"type": "broadcast", "range": str(to)} | {"type": "user", "user_id": str(to)}:
            pings.append(to)
        case {"type": "usergroup", "usergroup_id": str(to)}:
            pings.append(f"subteam^{to}")
        case {"type": "link", "url": str(url)} | {"type": "image", "image_url": str(url)}:
            urls.append(url)
    for value in node.values():
        if isinstance(value, dict | list):
            yield from _spoken(value, pings, urls)


# sizes


def check_markdown(text: str) -> None:
    if len(text) > MARKDOWN:
        raise Refusal("msg_too_long")


def check_metadata(metadata: Any) -> None:
    match metadata:
        case None | {"event_type": str(), "event_payload": dict()}:
            return
    raise Refusal("invalid_metadata_format")


def check_blocks(blocks: Any) -> None:
    """Refuse what Slack refuses: invalid_blocks, with every fault in ``response_metadata``."""
    if not isinstance(blocks, list):
        raise Refusal("invalid_blocks_format")
    faults = list(_faults(blocks))
    if faults:
        raise Refusal("invalid_blocks", *faults, errors=faults)
    if sum(len(block["text"]) for block in blocks if block["type"] == "markdown") > MARKDOWN:
        raise Refusal("msg_blocks_too_long")


def _faults(blocks: list[Any]) -> Iterator[str]:
    if len(blocks) > BLOCKS:
        yield f"no more than {BLOCKS} items allowed [json-pointer:/blocks]"
    ids: set[str] = set()
    for number, block in enumerate(blocks):
        where = f"[json-pointer:/blocks/{number}]"
        if not isinstance(block, dict):
            yield f"must be an object {where}"
            continue
        if block.get("type") not in _FAULTS:
            yield f"unsupported type: {block.get('type')} {where}"
            continue
        name = block.get("block_id")
        if name is not None and (not isinstance(name, str) or len(name) > 255 or name in ids):
            yield f"block_id must be unique and at most 255 characters {where}"
        elif name:
            ids.add(name)
        for fault in _FAULTS[block["type"]](block):
            yield f"{fault} {where}"


def _sized(text: Any, limit: int, kinds: tuple[str, ...] = ("mrkdwn", "plain_text")) -> Iterator[str]:
    match text:
        case {"type": str(kind), "text": str(words)} if kind in kinds:
            if not words:
                yield "must be more than 0 characters"
            if len(words) > limit:
                yield f"must be less than {limit + 1} characters"
        case _:
            yield "missing required field: text"


def _markdown(block: Json) -> Iterator[str]:
    if not isinstance(block.get("text"), str) or not block["text"]:
        yield "missing required field: text"


def _actions(block: Json) -> Iterator[str]:
    elements = block.get("elements")
    if not isinstance(elements, list) or not elements:
        yield "missing required field: elements"
        return
    if len(elements) > (5 if block["type"] == "context_actions" else 25):
        yield "too many elements"
    ids = [
        element["action_id"] for element in elements if isinstance(element, dict) and "action_id" in element
    ]
    if len(set(ids)) != len(ids):
        yield "action_id must be unique in a block"
    for element in elements:
        yield from _element(element)


def _element(element: Any) -> Iterator[str]:
    if not isinstance(element, dict) or not isinstance(element.get("type"), str):
        yield "unsupported type of element"
        return
    if len(element.get("action_id", "")) > 255:
        yield "action_id must be less than 256 characters"
    if len(element.get("value", "")) > VALUE:
        yield f"value must be less than {VALUE + 1} characters"
    if element["type"] == "button":
        yield from _sized(element.get("text"), 75, ("plain_text",))
    if element["type"] == "feedback_buttons":
        for side in ("positive_button", "negative_button"):
            match element.get(side):
                case {"text": text, "value": str(value)} if len(value) <= VALUE:
                    yield from _sized(text, 75, ("plain_text",))
                case _:
                    yield f"missing required field: {side}"


def _context(block: Json) -> Iterator[str]:
    elements = block.get("elements")
    if not isinstance(elements, list) or not 1 <= len(elements) <= 10:
        yield "1 to 10 elements"
        return
    for element in elements:
        if isinstance(element, dict) and element.get("type") != "image":
            yield from _sized(element, 2_000)


_FAULTS = {  # only what the bot sends: any other type of block is a fault here
    "markdown": _markdown,
    "actions": _actions,
    "context_actions": _actions,
    "context": _context,
}
