"""The words of a message's blocks, in Slack's markup; pure. `KINDS` says what is read of each kind.

A kind that is not in the table is named in the text, so that the model knows that people see more than it reads. The
kinds are those of docs.slack.dev ("Block Kit", November 2026) and of slack_sdk's models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape

from pydantic import JsonValue

from transports.slack.api.json_fields import Shape, parts, string

DEEPEST = 10
"""How deep blocks may nest; Slack's own nest six deep."""

MOST_PARTS = 1_000
"""Elements of one block, or rows of one table; Slack's own have 201 at most."""

_KIND = re.compile(r"[A-Za-z0-9_.-]{1,60}")

Read = Callable[[Shape, int], str]
"""Returns the words of a block or an element, which may nest so deep."""


def words_of(blocks: JsonValue) -> str:
    """Return what people read in a list of blocks, in one line or more for each."""
    return (
        _list([one for one in blocks if isinstance(one, dict)], DEEPEST, "\n")
        if isinstance(blocks, list)
        else ""
    )


def unreadable(what: str) -> str:
    """Return the mark for something that people see and the bot cannot read."""
    return f"[{what} that I cannot read]"


def _words(value: JsonValue, depth: int) -> str:
    """Return the words of a field: a string, an element, or a list of them."""
    match value:
        case str():
            return escape(value, quote=False)
        case list():
            return _list(value, depth, "\n")
        case dict():
            return _element(value, depth)
        case _:
            return ""


def _list(values: Sequence[JsonValue], depth: int, between: str) -> str:
    words = [_words(value, depth) for value in values[:MOST_PARTS]]
    if len(values) > MOST_PARTS:
        words.append(f"[{len(values) - MOST_PARTS} more are not shown]")
    return between.join(filter(None, words))


def _element(shape: Shape, depth: int) -> str:
    kind = string(shape, "type")
    read = KINDS.get(kind)
    if read is None:
        return unreadable(
            f"a block of type {kind}" if _KIND.fullmatch(kind) else "a block of an unknown type"
        )
    return read(shape, depth - 1) if depth else unreadable("more blocks inside blocks")


def _fields(*names: str) -> Read:
    """Read these fields, each on a line of its own."""

    def read(shape: Shape, depth: int) -> str:
        return "\n".join(filter(None, (_words(shape.get(name), depth) for name in names)))

    return read


def _nothing(_: Shape, __: int) -> str:
    return ""


def _as_it_is(shape: Shape, _: int) -> str:
    return string(shape, "text")


def _link(*labels: str, url: str = "url") -> Read:
    """Read an element that leads to an address: the first of these fields is its label."""

    def read(shape: Shape, depth: int) -> str:
        label = next(filter(None, (_words(shape.get(name), depth) for name in labels)), "")
        address = string(shape, url)
        return f"<{address}{'|' if label else ''}{label}>" if address else label

    return read


def _button(shape: Shape, depth: int) -> str:
    return f"[button: {_link('text', 'label')(shape, depth)}]"


def _titled(read: Read, *titles: str, url: str) -> Read:
    """Read an element whose title leads to an address."""
    title = _link(*titles, url=url)

    def all_of(shape: Shape, depth: int) -> str:
        return "\n".join(filter(None, (title(shape, depth), read(shape, depth))))

    return all_of


def _named(what: str, *names: str, url: str = "url") -> Read:
    """Read something that people open elsewhere: what it is, and the first of these fields as its name."""
    link = _link(*names, url=url)

    def read(shape: Shape, depth: int) -> str:
        name = link(shape, depth)
        return f"[{what}{': ' if name else ''}{name}]"

    return read


def _mention(mark: str, field: str) -> Read:
    return lambda shape, _: f"<{mark}{string(shape, field)}>"


def _options(shape: Shape, depth: int) -> str:
    """Read what a menu or a group of buttons says and offers."""
    words = shape.get("label") or shape.get("placeholder") or shape.get("text")
    groups = [*parts(shape, "option_groups"), shape]
    lines = [f"- {_option(option, depth)}" for group in groups for option in parts(group, "options")]
    return "\n".join(filter(None, [_words(words, depth), *lines[:MOST_PARTS]]))


def _option(option: Shape, depth: int) -> str:
    return " - ".join(filter(None, (_words(option.get(name), depth) for name in ("text", "description"))))


def _inline(shape: Shape, depth: int) -> str:
    elements = shape.get("elements")
    return _list(elements if isinstance(elements, list) else [], depth, "")


def _items(shape: Shape, depth: int) -> str:
    ordered, indent = string(shape, "style") == "ordered", shape.get("indent")
    space = "  " * min(indent, DEEPEST) if isinstance(indent, int) else ""
    first = offset if isinstance(offset := shape.get("offset"), int) else 0
    items = [_words(dict(item), depth) for item in parts(shape, "elements")]
    return "\n".join(
        f"{space}{f'{number}.' if ordered else '-'} {item}" for number, item in enumerate(items, first + 1)
    )


def _quote(shape: Shape, depth: int) -> str:
    return "\n".join(f"> {line}" for line in _inline(shape, depth).split("\n"))


def _table(shape: Shape, depth: int) -> str:
    """Read a table as Markdown, the form in which models know tables."""
    rows = shape.get("rows")
    caption = _words(shape.get("caption"), depth)
    lines = [_row(row, depth) for row in rows[:MOST_PARTS]] if isinstance(rows, list) else []
    if lines:
        lines.insert(1, "|" + " --- |" * (lines[0].count("|") - 1 - lines[0].count("\\|")))
    if isinstance(rows, list) and len(rows) > MOST_PARTS:
        lines.append(f"[{len(rows) - MOST_PARTS} more rows are not shown]")
    return "\n".join(filter(None, [caption, *lines]))


def _row(row: JsonValue, depth: int) -> str:
    cells = row[:MOST_PARTS] if isinstance(row, list) else []
    return "".join(["|", *(f" {_cell(cell, depth)} |" for cell in cells)])


def _cell(cell: JsonValue, depth: int) -> str:
    return " ".join(_words(cell, depth).split()).replace("|", "\\|")


def _number(shape: Shape, _: int) -> str:
    value = shape.get("value")
    return escape(string(shape, "text"), quote=False) or (
        str(value) if isinstance(value, int | float) else ""
    )


def _chart(shape: Shape, depth: int) -> str:
    """Read a chart: its title, and each series with its points."""
    lines = [f"[chart: {_words(shape.get('title'), depth)}]"]
    chart = shape.get("chart")
    for series in [*parts(chart if isinstance(chart, dict) else shape, "series"), *parts(shape, "segments")]:
        points = ", ".join(
            f"{_label(point, depth)} {point.get('value', '')}" for point in parts(series, "data")
        )
        lines.append(f"{_label(series, depth)}: {points or series.get('value', '')}")
    return "\n".join(lines)


def _label(shape: Shape, depth: int) -> str:
    return _words(shape.get("label") or shape.get("name"), depth)


def _task(shape: Shape, depth: int) -> str:
    status = string(shape, "status")
    title = f"{_words(shape.get('title'), depth)}{f' ({status})' if status else ''}"
    return "\n".join(filter(None, (title, _fields("details", "output", "sources")(shape, depth))))


_IMAGE = _named("image", "alt_text", "title", url="")
_INPUT = _fields("label", "placeholder", "initial_value")
_SELECT = _options

KINDS: Mapping[str, Read] = {
    # Blocks.
    "actions": _fields("elements"),
    "alert": _fields("text"),
    "auth_provider": _fields("name", "description", "connected_identity", "connected_context", "fallback"),
    "call": _named("call"),
    "card": _fields("icon", "title", "subtitle", "subtext", "body", "hero_image", "actions"),
    "carousel": _fields("elements"),
    "container": _fields("title", "rich_text_title", "subtitle", "icon", "child_blocks"),
    "context": _fields("elements"),
    "context_actions": _nothing,
    "data_table": _table,
    "data_visualization": _chart,
    "divider": _nothing,
    "file": _named("file", "label", "title", "name", "text", "external_id", "file_id"),
    "header": _fields("text"),
    "image": _IMAGE,
    "input": _fields("label", "hint", "element"),
    "markdown": _as_it_is,
    "plan": _fields("title", "tasks"),
    "rich_text": _fields("elements"),
    "section": _fields("text", "fields", "accessory"),
    "table": _table,
    "task_card": _task,
    "video": _titled(
        _fields("description", "author_name", "provider_name"), "title", "alt_text", url="title_url"
    ),
    # Texts.
    "mrkdwn": _as_it_is,
    "plain_text": _fields("text"),
    "raw_number": _number,
    "raw_text": _fields("text"),
    # Elements that people press, choose from or fill in.
    "button": _button,
    "channels_select": _SELECT,
    "checkboxes": _options,
    "conversations_select": _SELECT,
    "datepicker": _INPUT,
    "datetimepicker": _INPUT,
    "email_text_input": _INPUT,
    "external_select": _SELECT,
    "feedback_buttons": _nothing,
    "file_input": _INPUT,
    "icon_button": _button,
    "multi_channels_select": _SELECT,
    "multi_conversations_select": _SELECT,
    "multi_external_select": _SELECT,
    "multi_static_select": _SELECT,
    "multi_users_select": _SELECT,
    "number_input": _INPUT,
    "overflow": _options,
    "plain_text_input": _INPUT,
    "radio_buttons": _options,
    "select": _options,
    "rich_text_input": _INPUT,
    "static_select": _SELECT,
    "timepicker": _INPUT,
    "url": _link("text"),
    "url_text_input": _INPUT,
    "users_select": _SELECT,
    "workflow_button": _button,
    # Rich text.
    "rich_text_divider": _nothing,
    "rich_text_header": _fields("text", "elements"),
    "rich_text_list": _items,
    "rich_text_preformatted": lambda shape, depth: f"```\n{_inline(shape, depth)}\n```",
    "rich_text_quote": _quote,
    "rich_text_section": _inline,
    "attachment_mention": _named("attachment", "text", "title", "label"),
    "broadcast": _mention("!", "range"),
    "canvas": _named("canvas", "label", "title", "text", "file_id"),
    "canvas_message_unfurl": _named("message", "text"),
    "canvas_user_mention": _mention("@", "user_id"),
    "channel": _mention("#", "channel_id"),
    "citation": _link("text", "title", "label"),
    "color": _fields("value"),
    "date": _link("fallback"),
    "emoji": lambda shape, _: f":{string(shape, 'name')}:",
    "link": _link("text"),
    "list_record": _named("list record", "text", "title", "label", "record_id", "file_id"),
    "message_mention": _named("message", "text"),
    "salesforce_data_field": _named("Salesforce field", "text", "label", "value"),
    "tag": _fields("text", "label"),
    "team": lambda shape, _: f"@{string(shape, 'team_id')}",
    "text": _fields("text"),
    "user": _mention("@", "user_id"),
    "usergroup": _mention("!subteam^", "usergroup_id"),
    "workflow_mention": _named("workflow", "text", "title", "label", "workflow_id"),
    "work_object_mention": _named("item", "text", "title", "label"),
}
