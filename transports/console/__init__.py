"""A chat in the terminal, or through a pipe: the transport of the first minute."""

from transports.console.ask import OneQuestion
from transports.console.client import Console
from transports.console.files import read_attachment
from transports.console.lookups import Exchange, Lookups
from transports.console.parse import BAD_NAME, is_thread_name

__all__ = ["BAD_NAME", "Console", "Exchange", "Lookups", "OneQuestion", "is_thread_name", "read_attachment"]
