"""The crash run's stage on the page."""

from __future__ import annotations

from tests.crash.run import Stage
from tests.crash.web.platform import STEPS, Place

WEB = Stage("web", Place, "tests.crash.web.child", "tests.judge.web", STEPS, mend_s=8.0)
