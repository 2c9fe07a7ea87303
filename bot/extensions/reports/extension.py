"""`threadfast threads`, `why`, `usage`, `audit` and `dead-letters`: what happened, read from the store."""

from bot.host.extension import Extension

extension = Extension("reports", "shows threads, messages, money and decisions", page="docs/operations.md")
