"""A message that is longer than the model can read, and what its author can do; pure.

| too long is                           | choices                                                           |
|---------------------------------------|-------------------------------------------------------------------|
| the message with its history          | compact, start over, or leave out an attachment                   |
| the message alone, by its attachment  | leave out the attachment                                          |
| the message alone, by its text        | nothing; the text advises to send it in parts, or as a file       |
| mostly the instructions and tools     | nothing; whoever runs the bot has to act                          |
"""

from __future__ import annotations

from dataclasses import replace

from bot import wording
from bot.agent.prompt.token_estimate import request_size
from bot.agent.prompt.user_message import has_files, user_message
from bot.ports.errors import ContextOverflow
from bot.ports.model import Request
from threads.model import Incoming, Way


def fits(request: Request, window: int | None) -> bool:
    """Return whether the request fits a window of so many tokens; None is unknown."""
    return window is None or request_size(request) <= window


def alone(request: Request, incoming: Incoming) -> Request:
    """Return the request with the message as its only one."""
    own = [one for one in request.messages if one.role == "user" and one.source == incoming.id]
    return replace(request, messages=own[:1])


def too_long(request: Request, incoming: Incoming, window: int | None, *, compacts: bool) -> ContextOverflow:
    """Return the error to raise; *compacts* is whether the settings allow a summary."""
    if fits(request, window):
        window = None  # The server says that it does not, so its window is another.
    own, others = alone(request, incoming), len(request.messages) > 1
    setup = request_size(replace(request, messages=()))
    if 2 * setup > (window or request_size(request)):
        error = overflow(setup, window)
        error.friendly = wording.setup_too_long(setup, window)
        return error
    could_fit = others and fits(own, window)
    ways: list[Way] = []
    if could_fit:
        ways += ["compact", "new"] if compacts else ["new"]
    if (incoming.files or any(map(has_files, own.messages))) and fits(
        replace(request, messages=[user_message(incoming)]), window
    ):
        ways.append("without-files")
    size = request_size(request if could_fit else own)
    error = overflow(size, window)
    error.ways = tuple(ways)
    error.friendly = wording.too_long(size, window, together=could_fit, ways=bool(ways))
    return error


def overflow(size: int, window: int | None) -> ContextOverflow:
    """Return the error for a conversation of *size* tokens."""
    error = ContextOverflow(f"the conversation has about {size} tokens, the model takes {window or 'fewer'}")
    error.fields["current_tokens"] = size
    if window is not None:
        error.fields["max_tokens"] = window
    return error
