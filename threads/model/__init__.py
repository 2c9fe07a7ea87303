"""The words everything else is written in: values only, no I/O, no policy, no platform.

Import them from here: `from threads.model import Incoming`. This is the only place that re-exports.
"""
# ruff: noqa: F403 - all that these modules define is the model

from .conversation import *
from .events import *
from .ids import *
from .messages import *
from .questions import *
from .turn import *
