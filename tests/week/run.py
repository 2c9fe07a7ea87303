"""One composition of the bot through some days: ``python -m tests.week.run NAME DAYS FOLDER``.

What it finds wrong is printed one a line. The bot is what `threadfast run` starts, or `threadfast chat` for the console
alone; it is stopped and started again once a day. Where several edges are served, the console is one of them.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from tests.week import clock

SPRING, AUTUMN = datetime(2027, 3, 25, 22, 30, tzinfo=UTC), datetime(2027, 10, 28, 20, tzinfo=UTC)
"""Three days before the clocks change in Europe; the month ends in the week too."""
WEEKS = {
    "all": (("slack", "discord", "web", "console"), SPRING),
    "slack": (("slack",), AUTUMN),
    "discord": (("discord",), SPRING),
    "web": (("web",), AUTUMN),
    "console": (("console",), SPRING),
}

if __name__ == "__main__":
    CLOCK = clock.install(WEEKS[sys.argv[1]][1])
    from pathlib import Path

    from tests.week.life import live

    names, _ = WEEKS[sys.argv[1]]
    for fault in live(CLOCK, names, float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]):
        print(fault)
