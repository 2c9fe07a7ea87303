"""`threadfast check` and `doctor`: what a bot needs; and `threadfast extensions`: what it can do."""

from bot.host.extension import Extension

extension = Extension("doctor", "checks everything the bot needs", page="docs/operations.md")
