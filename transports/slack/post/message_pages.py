"""From a post to its messages: how many, the blocks below them, and their plain text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from threads.model import Choice, Outgoing
from transports.slack.markdown.blocks import Block, choice_block, feedback_block, markdown_block, note_block
from transports.slack.markdown.links import Links
from transports.slack.markdown.split import plain, split_markdown, words
from transports.slack.post.post_tags import Tag

MAX_PARTS = 4
"""An answer that needs more messages is a file, with its beginning in a message."""

MOST_PARTS = 20
"""Messages of an answer where no file can be sent; the last one says that it is cut."""

CUT = "The answer goes on, but it is too long to be posted here."


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One message. ``below`` are the blocks under its text, and ``aside`` is their plain text."""

    markdown: str
    tag: Tag
    below: tuple[Block, ...] = ()
    aside: str = ""
    own: frozenset[str] = frozenset()
    """Addresses that stay links."""

    @property
    def blocks(self) -> list[Block]:
        return [markdown_block(self.markdown), *self.below]

    @property
    def plain(self) -> str:
        """The beginning of the text, for notifications and for search."""
        return plain(self.markdown, self.own)

    @property
    def words(self) -> str:
        """All of the page as plain text, where blocks are refused; ``chat.postMessage`` takes 40,000 characters."""
        return "\n\n".join(filter(None, (words(self.markdown, self.own), self.aside)))


def pages(
    outgoing: Outgoing, links: Links, *, inert: bool, feedback: bool = False, most: int = MOST_PARTS
) -> list[MessagePage]:
    """Return the messages that show *outgoing*, the last one with its choices and, under a reply, the feedback.

    *inert* is for methods without an unfurl switch: only links that *links* allows stay links. A text in several
    parts is always inert: it must be split into the same parts when a post goes on after a crash.
    """
    text = outgoing.text.strip() or "…"
    own = frozenset(outgoing.links)
    shown = split_markdown(text, Links(links.allowed, own=own))
    if len(shown) == 1 and not inert and "`" in shown[0]:  # a link may have become code
        shown = split_markdown(text, Links(links.allowed, live=True, own=own))
    posted = shown[:most]
    result = [
        MessagePage(part, Tag(outgoing.key, number, len(posted)), own=own)
        for number, part in enumerate(posted)
    ]
    if len(posted) < len(shown):
        result[-1] = _with_note(result[-1], CUT)
    result[-1] = _with_controls(result[-1], outgoing, feedback=feedback)
    return result


def beginning(page: MessagePage, outgoing: Outgoing, file: str, *, feedback: bool) -> MessagePage:
    """Return the first page of an answer whose whole text is in a file."""
    alone = replace(page, tag=Tag(outgoing.key, file=file))
    noted = _with_note(alone, f"This is only the beginning: the whole answer is in the file {file}.")
    return _with_controls(noted, outgoing, feedback=feedback)


def _with_note(page: MessagePage, note: str) -> MessagePage:
    return replace(page, below=(*page.below, note_block(note)), aside=_join_lines(page.aside, note))


def _with_controls(page: MessagePage, outgoing: Outgoing, *, feedback: bool) -> MessagePage:
    below, aside = page.below, page.aside
    if outgoing.choices:
        below = (*below, choice_block(outgoing.choices))
        aside = _join_lines(aside, _choices_as_text(outgoing.choices))
    if feedback and outgoing.kind == "reply":
        below = (*below, feedback_block())
    return MessagePage(page.markdown, page.tag, below, aside, page.own)


def _choices_as_text(choices: Sequence[Choice]) -> str:
    return "\n".join(escape(f"{choice.label}: {choice.command}", quote=False) for choice in choices)


def _join_lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))
