"""Makes docs/reading.md."""

from __future__ import annotations

from collections.abc import Iterable

from docs.generate.reading import Row, discord, slack

INTRODUCTION = """# What the model reads

What people see in a message, the model reads, wherever it stands: in a new message, an earlier line, a forward, the
target of a reply, an edit, or after a restart. What it cannot read is named in its place. What others say in a
message, such as a forward, is text from outside. These tables are made from the examples with which the tests try
each kind (`docs/generate/reading`).
"""


def page() -> str:
    parts = [
        INTRODUCTION,
        *_section("Slack: blocks", slack.BLOCKS),
        *_section("Slack: texts in blocks", slack.TEXTS),
        *_section("Slack: buttons, menus and fields", slack.ELEMENTS),
        *_section("Slack: rich text", slack.RICH_TEXT),
        *_section("Slack: fields of attachments", slack.ATTACHMENTS),
        *_section("Slack: modes of files", slack.FILES),
        *_section("Slack: messages", slack.SAID),
        *_section("Slack: notes among the messages", slack.NOTED),
        *_section("Slack: changes", slack.UNSEEN),
        *_section("Discord: parts of a message", discord.PARTS),
        *_section("Discord: embeds", discord.EMBEDS),
        *_section("Discord: components", discord.COMPONENTS),
        *_section("Discord: stickers", discord.STICKERS),
        *_section("Discord: flags", discord.FLAGS),
        *_section("Discord: types of messages", discord.MESSAGES),
    ]
    return "\n".join(parts)


def _section(title: str, rows: Iterable[Row]) -> Iterable[str]:
    yield f"## {title}\n"
    yield "| kind | what people see | what the model reads of an example | why not more |"
    yield "|---|---|---|---|"
    for row in rows:
        yield f"| {row.kind and f'`{row.kind}`'} | {row.sees} | {_cell(row.reads)} | {row.why} |"
    yield ""


def _cell(words: str) -> str:
    escaped = words.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return "<br>".join(f"<code>{line}</code>" for line in escaped.split("\n") if line) or "nothing"
