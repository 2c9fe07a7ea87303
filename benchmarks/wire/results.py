"""What was measured on one platform, of whom."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import anyio

from benchmarks.figures import Conditions, quantile
from benchmarks.versus.environments import last_error
from benchmarks.wire.contenders import Contender
from benchmarks.wire.meter import cpu_of
from benchmarks.wire.scenarios import Block, Bot, Scenario

IDLE_S, QUICK_IDLE_S = 10.0, 4.0
BLOCK_S = 60.0


@dataclass
class Found:
    """What was measured of one contender: its blocks by scenario, and how it idles."""

    blocks: dict[str, list[Block]] = field(default_factory=lambda: defaultdict(list))
    idle_ms: float = 0.0
    """Of CPU a second, after the first messages."""
    resident: int = 0
    """Bytes, after the last message."""

    def cpu_ms(self, scenario: str) -> float:
        return median(block.cpu_ms for block in self.blocks[scenario])

    def first_ms(self, scenario: str, share: float) -> float:
        return quantile([one for block in self.blocks[scenario] for one in block.first_ms], share)

    def answer_ms(self, scenario: str, share: float) -> float:
        return quantile([one for block in self.blocks[scenario] for one in block.answer_ms], share)


@dataclass
class Session:
    """One platform with all its contenders at work. Who fails is named and takes no further part."""

    conditions: Conditions
    platform: str
    bots: dict[str, tuple[Contender, Bot, Path]] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=lambda: defaultdict(Found))
    left_out: dict[str, str] = field(default_factory=dict)

    async def block(self, name: str, scenario: Scenario) -> Block | None:
        """Return what the contender did, or None if it has no part in the scenario, or no more."""
        contender, bot, output = self.bots[name]
        size = scenario.quick_size if self.conditions.quick else scenario.size
        who = f"{name}, {scenario.name}"
        if who in self.left_out or (scenario.needs_tool and not contender.tools):
            return None
        with anyio.move_on_after(BLOCK_S):
            return await scenario.block(bot, size)
        said = last_error(output.read_text(errors="replace"))
        why = f": {said}" if "error" in said.lower() else ""
        self.leave_out(who, f"a block takes more than {BLOCK_S:g} s{why}")
        self.found[name].blocks.pop(scenario.name, None)
        return None

    def leave_out(self, who: str, reason: str) -> None:
        self.left_out[who] = reason
        print(f"{self.platform}, {who}: {reason}: left out", file=sys.stderr, flush=True)

    async def idle(self) -> None:
        """Measure all of them at once while nobody says anything."""
        seconds = QUICK_IDLE_S if self.conditions.quick else IDLE_S
        await anyio.sleep(1)
        before = {name: cpu_of(bot.pid) for name, (_, bot, _) in self.bots.items()}
        await anyio.sleep(seconds)
        for name, (_, bot, _) in self.bots.items():
            self.found[name].idle_ms = (cpu_of(bot.pid) - before[name]) / seconds * 1e3
