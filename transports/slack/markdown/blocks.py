"""The blocks we post, as Block Kit documents them; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from threads.model import Choice

Block = dict[str, JsonValue]

MAX_BLOCKS, MAX_BUTTONS = 50, 25
_MAX_LABEL, _MAX_VALUE, _MAX_NOTE = 75, 2_000, 2_000


def markdown_block(text: str) -> Block:
    return {"type": "markdown", "text": text}


def choice_block(choices: Sequence[Choice]) -> Block:
    """Return a button for each of the first 25 choices; pressing one sends its command as the value."""
    return {
        "type": "actions",
        "elements": [_button(*numbered) for numbered in enumerate(choices[:MAX_BUTTONS])],
    }


def _button(number: int, choice: Choice) -> Block:
    button: Block = {
        "type": "button",
        "action_id": f"choice:{number}",
        "text": _plain(_shorten(choice.label.strip() or choice.command, _MAX_LABEL), emoji=True),
        "value": choice.command[:_MAX_VALUE],
    }
    style = _style(choice.command, first=number == 0)
    return {**button, "style": style} if style else button


def _style(command: str, *, first: bool) -> str:
    match command.split(maxsplit=1)[:1]:
        case ["/deny"]:
            return "danger"
        case ["/approve" | "/retry"] if first:
            return "primary"
        case _:
            return ""


def feedback_block() -> Block:
    """Return thumbs up and down; the press says ``up`` or ``down``."""
    return {
        "type": "context_actions",
        "elements": [
            {
                "type": "feedback_buttons",
                "action_id": "feedback",
                "positive_button": _thumb("Good answer", "up"),
                "negative_button": _thumb("Bad answer", "down"),
            }
        ],
    }


def _thumb(text: str, value: str) -> Block:
    return {"text": _plain(text, emoji=True), "accessibility_label": text, "value": value}


def note_block(text: str) -> Block:
    """Return a small line of words; nothing in it is read as a mention, a link or Markdown."""
    return {"type": "context", "elements": [_plain(_shorten(text.strip() or "…", _MAX_NOTE), emoji=False)]}


def without_actions(blocks: Sequence[Mapping[str, JsonValue]], note: str = "") -> list[Block]:
    """Return the blocks of a message whose button was pressed: *note*, if any, stands where its buttons were."""
    result = [dict(block) for block in blocks if block.get("type") != "actions"]
    at = next((at for at, block in enumerate(blocks) if block.get("type") == "actions"), len(result))
    result = result[: MAX_BLOCKS - 1]
    return [*result[:at], *([note_block(note)] if note else ()), *result[at:]]


def _plain(text: str, *, emoji: bool) -> Block:
    return {"type": "plain_text", "text": text, "emoji": emoji}


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
