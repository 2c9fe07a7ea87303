"""A bot as `bot.observe` sees it, without one."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from bot.observe.live_parts import LiveParts
from bot.observe.loop_lag import LoopLag
from bot.observe.systemd_notify import Notify
from bot.observe.watchdog import Watchdog
from bot.ports.status import CircuitStatus, Spend


@dataclass
class TransportLink:
    name: str = "slack"
    state: str = "connected"
    trouble: str = ""
    silent_s: float | None = 0.0


class Registry:
    waiting = settling = 0

    def __len__(self):
        return 2


@dataclass
class FakeBot:
    """What a test turns; ``told`` is what went to systemd."""

    edges: list = field(default_factory=lambda: [TransportLink()])
    troubles: list = field(default_factory=list)
    watchdog_s: float | None = 30.0
    stopping: bool = False
    store_trouble: str = ""

    def __post_init__(self):
        self.told = []
        self.workers = SimpleNamespace(state="free")
        self.registry = Registry()
        self.slots = SimpleNamespace(running=0, queued=0, close=lambda: None)
        self.journal = SimpleNamespace(ledger=SimpleNamespace(pending={}))
        self.systemd = Notify("", self.watchdog_s)
        self.systemd.send = lambda **fields: self.told.append(fields) or True

    def live(self, data):
        return LiveParts(
            data, "offline/demo", self.edges, (), self.registry, self.slots, self.journal,
            lambda: [CircuitStatus("offline/demo", "closed")],
            lambda: [Spend("day", 1.5, 0.0, 5.0), Spend("month", 1.5, 0.25, None)],
            {"sandbox": "bubblewrap"}, lambda: self.troubles, store_trouble=lambda: self.store_trouble,
        )  # fmt: skip

    def watchdog(self, data):
        return Watchdog(
            self.live(data), LoopLag(0.25), self.workers, self.systemd, stopping=lambda: self.stopping
        )

    def count(self, name):
        return sum(name in fields for fields in self.told)
