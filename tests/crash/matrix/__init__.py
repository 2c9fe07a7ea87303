"""The crash run over Matrix: the real bot and nio against a real Synapse, which dies as well, and its judge."""

ACCOUNT = "matrix-token"
"""The file with the bot's token."""
