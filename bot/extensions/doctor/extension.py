"""`threadfast doctor`: checks all that a bot needs."""

from bot.host.extension import Extension

extension = Extension("doctor", "checks everything the bot needs", page="docs/operations.md")
