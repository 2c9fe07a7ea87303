"""Backups: a copy of the data folder while the bot runs, and back again."""
