"""A chat in the terminal, or through a pipe: the transport of the first minute."""

from transports.console.client import Console

__all__ = ["Console"]
