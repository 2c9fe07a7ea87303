"""The sandbox of commands. `open_sandbox` finds the best layer that works here and says which, or why none does."""

from .run import CommandResult
from .selection import Sandbox, open_sandbox

__all__ = ["CommandResult", "Sandbox", "open_sandbox"]
