"""A chat in the terminal, or through a pipe: the transport of the first minute."""

from transports.console.client import CONSOLE_USER, Console

__all__ = ["CONSOLE_USER", "Console"]
