"""Slack's files. The token goes to Slack's hosts only.

Without the files:read scope Slack answers 200 and a login page (docs.slack.dev, "Working with files").
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import aiohttp
from yarl import URL

from threads.errors import PostFailed
from threads.model import Attachment
from transports.shared.downloads import GONE, FileHost, opened, read, unavailable
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.http_session import trusted
from transports.slack.events.lookups import Lookups
from transports.slack.events.parse_message import attachment_of, withheld_as

WITHHELD = (
    "it belongs to another company, and Slack does not give it to me. I can read a copy that is sent here."
)
REASONS = {
    "hidden_by_limit": "Slack hides it, because this workspace has reached the limit of its plan.",
    "huddle_transcript": "it is the transcript of a huddle, which Slack does not give to apps.",
    "list": "it is a Slack List, which I cannot read. I can read a CSV file that is exported from it.",
}
"""Why a file cannot be read, by its mode, in a sentence for people."""

OTHER_KIND = "it is of a kind that I do not know, and Slack does not say where its content is."
HIDDEN = "Slack does not let me see it. I can read a copy that is sent here."
UNHEARD = "Slack does not tell me where it is. Sending it again may help."
NO_ACCESS = "I may not read files here: whoever runs this bot needs to add the files:read permission."


async def located(attachment: Attachment, lookups: Lookups) -> Attachment:
    """Return the attachment with its address, which Slack is asked for if it did not come with the message.

    Raises `FileUnavailable`.
    """
    if reason := _reason(attachment):
        raise unavailable(attachment.url, reason)
    if attachment.url not in ("", withheld_as("file_access")) or not attachment.id:
        return attachment
    try:
        found = attachment_of(await lookups.file(attachment.id), "")
    except SlackRefused as refused:
        raise unavailable(str(refused), _refusal(refused)) from None
    except PostFailed as error:
        raise unavailable(str(error), UNHEARD) from None
    if reason := _reason(found):
        raise unavailable(found.url, reason)
    if found.url == withheld_as("file_access"):
        raise unavailable(found.url, WITHHELD)
    return replace(attachment, url=found.url, size=found.size)


def _reason(attachment: Attachment) -> str:
    """Return why a file of this mode cannot be read, blank for others."""
    address = attachment.url
    if address == withheld_as("file_access") or not address.startswith(withheld_as("")):
        return ""
    return next((reason for mode, reason in REASONS.items() if address == withheld_as(mode)), OTHER_KIND)


def _refusal(refused: SlackRefused) -> str:
    match refused.kind:
        case "gone":
            return GONE
        case "scope" | "token":
            return NO_ACCESS
        case _:
            return HIDDEN


@asynccontextmanager
async def open_download(
    session: aiohttp.ClientSession,
    attachment: Attachment,
    *,
    token: str,
    own: URL | None = None,
    granted: bool = True,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open the file's content, in chunks of 64 KB at most; it ends only when all of it was read.

    *own* is what `own_origin` says, and *granted* whether the bot may read files. Raises `FileUnavailable`, also
    midway: what was read until then is incomplete.
    """
    slack = FileHost("Slack", partial(trusted, own=own), NO_ACCESS, {"Authorization": f"Bearer {token}"})
    async with opened(session, attachment.url, slack) as response:
        _check(response, attachment, granted=granted)
        yield read(response, attachment.size)


def _check(response: aiohttp.ClientResponse, attachment: Attachment, *, granted: bool) -> None:
    """Tell a login page from the file. The size of a canvas, which is a page too, is not known before."""
    if response.content_type != "text/html":
        return
    length = response.content_length
    differs = not granted if not attachment.size else length not in (None, attachment.size)
    if differs or not _is_html(attachment):
        raise unavailable("a login page in place of the file", NO_ACCESS)


def _is_html(attachment: Attachment) -> bool:
    return attachment.media_type == "text/html" or attachment.name.lower().endswith((".html", ".htm"))
