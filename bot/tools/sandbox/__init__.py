"""The walls around commands. `open_sandbox` finds the best layer that holds here and says which, or why none does."""

from .opened import Mode, Sandbox, open_sandbox
from .run import Ran

__all__ = ["Mode", "Ran", "Sandbox", "open_sandbox"]
