"""`threadfast init`: the first settings, asked for and tested."""

from bot.host.extension import Extension

extension = Extension("setup", "sets the bot up: a model and chat platforms", page="docs/operations.md")
