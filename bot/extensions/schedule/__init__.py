"""Messages that are sent later: the tools that schedule them, and `/schedule`. The clock is in `bot.schedules`."""
