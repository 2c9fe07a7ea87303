"""The values that every other module uses. No I/O, no policy, no platform.

Import them from here: `from threads.model import Incoming`. No other package re-exports names.
"""
# ruff: noqa: F403 - everything in these modules is part of the model

from .conversation import *
from .events import *
from .ids import *
from .messages import *
from .questions import *
from .turn import *
