"""Keeping a connection to a platform, through a proxy where one is set."""
