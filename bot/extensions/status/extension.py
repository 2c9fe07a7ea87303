"""`threadfast status` and `threadfast events`: ask the running bot how it is, and what it does."""

from bot.host.extension import Extension

extension = Extension("status", "asks the running bot how it is, and what it does", page="docs/operations.md")
