"""The crash run over Discord: the real bot and discord.py against a guild that outlives them, and its judge."""
