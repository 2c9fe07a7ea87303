"""Pages that show what the bot does and did: threads, messages, money, models and decisions. They change nothing."""
