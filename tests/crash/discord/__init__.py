"""The crash run over Discord: the real bot and discord.py against a guild that outlives them, and its judge."""

IN_PLACE = "in_place"
"""The file that names the channel in which the bot is set to open no threads."""
