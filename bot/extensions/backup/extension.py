"""`threadfast backup` and `restore`: a copy of the data folder while the bot runs, and back again."""

from bot.host.extension import Extension

extension = Extension("backup", "copies the data folder while the bot runs", page="docs/operations.md")
