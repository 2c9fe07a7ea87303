"""The crash run on the page: the real HTTP server, visitors whose pages stay open over all deaths, and its own judge."""
