"""What goes wrong in the week, and when; and the providers of the models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from tests.fakes import anthropic, openai
from tests.fakes.http import Reply, Seen, Stall
from tests.soak.brains import Brains, Said
from tests.week.people import DAY_S

ZONE = "Europe/Berlin"
REMIND, ASK = "remind me each night", "keep a note, and ask me first"
"""What the model makes a schedule of, and what nobody decides about, so that the question expires."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at an hour of each day, for so many minutes. ``tells`` begin what the log may say."""

    what: str
    hour: float
    minutes: float
    tells: tuple[str, ...]

    def now(self, wall: float, grace_s: float = 0.0) -> bool:
        return (wall - self.hour * 3600) % DAY_S < self.minutes * 60 + grace_s


FAULTS = (
    Fault("outage", 9.1, 10, ("model.", "circuit.")),
    Fault("blackout", 9.4, 10, ("model.", "circuit.", "turn.")),
    Fault("stall", 23.8, 18, ("model.", "circuit.", "turn.")),
    Fault("cut", 9.6, 1, ("transport.down",)),
    Fault("frozen", 3.0, 1, ("transport.down",)),
)
GRACE_S = 1200.0
USUAL = {"tool.failed", "post.no_threads"}
"""What the log may say at any time: the model reads a file that is not there, and one channel allows no threads."""


class Providers(Brains):
    """Both providers, well except while a fault is on. ``wall`` is the time of day."""

    wall: Callable[[], float]

    def _reply(self, said: Said, offered: set[str], answer: Any) -> Reply | None:
        if said[-1] == ("user", REMIND):
            given = {"cron": "30 2 * * *", "zone": ZONE, "text": "good morning"}
            return answer(anthropic.Tool("call-remind", "schedule", given))
        if said[-1] == ("user", ASK):
            given = {"path": "note.txt", "content": "nobody allows this"}
            return answer(anthropic.Tool("call-note", "write_file", given))
        return super()._reply(said, offered, answer)

    def anthropic(self, seen: Seen) -> Reply:
        return self._spoil(
            ("outage", "blackout"), anthropic.fault(529, "overloaded_error")
        ) or super().anthropic(seen)

    def openai(self, seen: Seen) -> Reply:
        return self._spoil(("blackout",), openai.fault(503, None, "no")) or super().openai(seen)

    def _spoil(self, kinds: Sequence[str], broken: Reply) -> Reply | None:
        now = [fault.what for fault in FAULTS if fault.now(self.wall())]
        if "stall" in now:
            return Reply(silent=(Stall(every=60.0),))
        return broken if set(kinds).intersection(now) else None


async def break_links(places: dict[str, Any], wall: Callable[[], float]) -> None:
    """Cut the links of the platforms, or let them fall silent, while that is due."""
    while True:
        await anyio.sleep(60.0)
        now = [fault.what for fault in FAULTS if fault.now(wall())]
        slack, discord = (places.get(name) for name in ("slack", "discord"))
        for link in [*(slack.fake.sockets.links if slack else ()), *(discord.fake.links if discord else ())]:
            if "cut" in now:
                (link.reset if slack and link in slack.fake.sockets.links else link.abort)()
            if "frozen" in now:
                link.freeze()
