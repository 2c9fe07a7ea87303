"""The words of a message's blocks, in Slack's markup; pure. `KINDS` says what is read of each kind.

A kind that is not in the table is named in the text, so that the model knows that people see more than it reads. The
kinds are those of docs.slack.dev ("Block Kit", November 2026) and of slack_sdk's models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pydantic import JsonValue

from transports.slack.api.json_fields import Shape, count, parts, string

DEEPEST = 20
"""How deep blocks and lists may nest; Slack's own nest twelve deep."""

MOST_INDENTS = 10
"""Levels of a list inside lists; Slack's own have nine."""

MOST_CELLS = 5_000
"""Cells of one table; Slack's own have 2,000 at most."""

MOST_PARTS = 1_000
"""Elements of one block; Slack's own have 100 at most."""

_KIND = re.compile(r"[A-Za-z0-9_.-]{1,60}")

_IN_ADDRESS = str.maketrans({"<": "%3C", ">": "%3E", "|": "%7C"})


@dataclass(frozen=True, slots=True)
class Walk:
    """A way through blocks, which goes so many ``levels`` deeper. It notes the kinds that it cannot read."""

    unread: set[str]
    levels: int = DEEPEST

    def deeper(self) -> Walk:
        return Walk(self.unread, self.levels - 1)


Read = Callable[[Shape, Walk], str]
"""Returns the words of a block or an element."""


def words_of(blocks: JsonValue, unread: set[str]) -> str:
    """Return what people read in a list of blocks, in one line or more for each. Note the *unread* kinds."""
    return (
        _list([one for one in blocks if isinstance(one, dict)], Walk(unread), "\n")
        if isinstance(blocks, list)
        else ""
    )


def unreadable(what: str) -> str:
    """Return the mark for something that people see and the bot cannot read."""
    return f"[{what} that I cannot read]"


def unknown(what: str, kind: str, unread: set[str]) -> str:
    """Return the mark for a block, a message or a file of a *kind* that is not known, and note the kind."""
    is_name = _KIND.fullmatch(kind)
    unread.add(kind if is_name else "unnamed")
    return unreadable(f"a {what} of type {kind}" if is_name else f"a {what} of an unknown type")


def _words(value: JsonValue, walk: Walk) -> str:
    """Return the words of a field: a string, an element, or a list of them."""
    match value:
        case str():
            return escape(value, quote=False)
        case list() if walk.levels:
            return _list(value, walk.deeper(), "\n")
        case dict() if walk.levels:
            return _element(value, walk.deeper())
        case list() | dict():
            return unreadable("more blocks inside blocks")
        case _:
            return ""


def _list(values: Sequence[JsonValue], walk: Walk, between: str) -> str:
    words = [_words(value, walk) for value in values[:MOST_PARTS]]
    if len(values) > MOST_PARTS:
        words.append(f"[{len(values) - MOST_PARTS} more are not shown]")
    return between.join(filter(None, words))


def _element(shape: Shape, walk: Walk) -> str:
    kind = string(shape, "type")
    read = KINDS.get(kind)
    return read(shape, walk) if read else unknown("block", kind, walk.unread)


def _fields(*names: str) -> Read:
    """Read these fields, each on a line of its own."""

    def read(shape: Shape, walk: Walk) -> str:
        return "\n".join(filter(None, (_words(shape.get(name), walk) for name in names)))

    return read


def _nothing(_: Shape, __: Walk) -> str:
    return ""


def _as_it_is(shape: Shape, _: Walk) -> str:
    return string(shape, "text")


def _link(*labels: str, url: str = "url") -> Read:
    """Read an element that leads to an address: the first of these fields is its label."""

    def read(shape: Shape, walk: Walk) -> str:
        label = next(filter(None, (_words(shape.get(name), walk) for name in labels)), "")
        address = string(shape, url).translate(_IN_ADDRESS)
        if "<" in label:
            return f"{label} <{address}>" if address else label
        return f"<{address}{'|' if label else ''}{label}>" if address else label

    return read


def _button(shape: Shape, walk: Walk) -> str:
    return f"[button: {_link('text', 'label')(shape, walk)}]"


def _titled(read: Read, *titles: str, url: str) -> Read:
    """Read an element whose title leads to an address."""
    title = _link(*titles, url=url)

    def all_of(shape: Shape, walk: Walk) -> str:
        return "\n".join(filter(None, (title(shape, walk), read(shape, walk))))

    return all_of


def _named(what: str, *names: str, url: str = "url") -> Read:
    """Read something that people open elsewhere: what it is, and the first of these fields as its name."""
    link = _link(*names, url=url)

    def read(shape: Shape, walk: Walk) -> str:
        name = link(shape, walk)
        return f"[{what}{': ' if name else ''}{name}]"

    return read


def _mention(mark: str, field: str) -> Read:
    return lambda shape, _: f"<{mark}{string(shape, field)}>"


def _options(shape: Shape, walk: Walk) -> str:
    """Read what a menu or a group of buttons says and offers."""
    words = shape.get("label") or shape.get("placeholder") or shape.get("text")
    groups = [*parts(shape, "option_groups"), shape]
    lines = [f"- {_option(option, walk)}" for group in groups for option in parts(group, "options")]
    return "\n".join(filter(None, [_words(words, walk), *lines[:MOST_PARTS]]))


def _option(option: Shape, walk: Walk) -> str:
    return " - ".join(filter(None, (_words(option.get(name), walk) for name in ("text", "description"))))


def _inline(shape: Shape, walk: Walk) -> str:
    elements = shape.get("elements")
    return _list(elements if isinstance(elements, list) else [], walk, "")


def _items(shape: Shape, walk: Walk) -> str:
    ordered, indent = string(shape, "style") == "ordered", shape.get("indent")
    space = "  " * min(indent, MOST_INDENTS) if isinstance(indent, int) else ""
    first = offset if isinstance(offset := shape.get("offset"), int) else 0
    items = [_words(dict(item), walk) for item in parts(shape, "elements")]
    return "\n".join(
        f"{space}{f'{number}.' if ordered else '-'} {item}" for number, item in enumerate(items, first + 1)
    )


def _quote(shape: Shape, walk: Walk) -> str:
    return "\n".join(f"> {line}" for line in _inline(shape, walk).split("\n"))


def _table(shape: Shape, walk: Walk) -> str:
    """Read a table as Markdown, the form in which models know tables."""
    given = shape.get("rows")
    rows = [row for row in given if isinstance(row, list)] if isinstance(given, list) else []
    lines: list[str] = []
    room = MOST_CELLS
    for row in rows:
        if room < len(row):
            lines.append(f"[{len(rows) - len(lines)} more rows are not shown]")
            break
        lines.append(_row([_cell(cell, walk) for cell in row]))
        room -= max(1, len(row))
    if rows and lines[0].startswith("|"):
        lines.insert(1, _row(["---"] * len(rows[0])))
    return "\n".join(filter(None, [_words(shape.get("caption"), walk), *lines]))


def _row(cells: Sequence[str]) -> str:
    return "".join(["|", *(f" {cell} |" for cell in cells)])


def _cell(cell: JsonValue, walk: Walk) -> str:
    return " ".join(_words(cell, walk).split()).replace("|", "\\|")


def _date(shape: Shape, _: Walk) -> str:
    """Read a date as it stands in texts: its form, and what people without it see."""
    fallback = escape(string(shape, "fallback"), quote=False)
    return f"<!date^{count(shape, 'timestamp')}^{string(shape, 'format').translate(_IN_ADDRESS)}|{fallback}>"


def _emoji(shape: Shape, _: Walk) -> str:
    tone = count(shape, "skin_tone")
    return f":{string(shape, 'name')}:{f':skin-tone-{tone}:' if tone else ''}"


def _number(shape: Shape, _: Walk) -> str:
    value = shape.get("value")
    return escape(string(shape, "text"), quote=False) or (
        str(value) if isinstance(value, int | float) else ""
    )


def _chart(shape: Shape, walk: Walk) -> str:
    """Read a chart: its title, and each series with its points."""
    lines = [f"[chart: {_words(shape.get('title'), walk)}]"]
    chart = shape.get("chart")
    for series in [*parts(chart if isinstance(chart, dict) else shape, "series"), *parts(shape, "segments")]:
        points = ", ".join(
            f"{_label(point, walk)} {point.get('value', '')}" for point in parts(series, "data")
        )
        lines.append(f"{_label(series, walk)}: {points or series.get('value', '')}")
    return "\n".join(lines)


def _label(shape: Shape, walk: Walk) -> str:
    return _words(shape.get("label") or shape.get("name"), walk)


def _task(shape: Shape, walk: Walk) -> str:
    status = string(shape, "status")
    title = f"{_words(shape.get('title'), walk)}{f' ({status})' if status else ''}"
    return "\n".join(filter(None, (title, _fields("details", "output", "sources")(shape, walk))))


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
    "rich_text_preformatted": lambda shape, walk: f"```\n{_inline(shape, walk)}\n```",
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
    "date": _date,
    "emoji": _emoji,
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
