"""The commands that look into what happened: threads, messages, money, decisions and dead letters."""
