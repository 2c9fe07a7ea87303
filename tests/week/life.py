"""The life of one composition: fakes, people and faults around the real program, and what is watched meanwhile."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio

import bot.wiring.run as product
import tests.soak.brains
from bot.config.load import SettingsFile
from bot.observe import watchdog
from bot.wiring.chat import run_chat
from tests.crash.book import write_about
from tests.fakes import anthropic, openai
from tests.fakes.discord import TOKEN
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN
from tests.soak.plan import CANARIES
from tests.week.clock import Clock
from tests.week.faults import ASK, REMIND, Providers, break_links
from tests.week.judging import REMINDERS, Verdict
from tests.week.loop import Loop, without_threads
from tests.week.people import DAY_S, places
from tests.week.watch import LOOK_S, Watch
from threads.background import background_tasks
from threads.journal import journal
from transports.console import Console
from transports.web.client import WebTransport

ENVIRON = CANARIES | {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "DISCORD_TOKEN": TOKEN}
WATCHDOG_S = 30
DOWN_S = 45.0
"""How long the bot is away at each restart."""
MAKE = product._transports
COMPACT_ABOVE = 100_000
"""Bytes of the journal, so that it is written anew each day."""
RESTART = 14.1
"""The hour of the daily restart: in the middle of a busy time."""


def settings(names: Sequence[str], world: dict[str, Any], anthropic: str, openai: str) -> dict[str, Any]:
    """Return the settings: the defaults, but for the addresses."""
    edges = {}
    if slack := world.get("slack"):
        edges["slack"] = {"api_base_url": slack.fake.api_base_url}
    if discord := world.get("discord"):
        edges["discord"] = {
            "api_base_url": discord.fake.api_base_url,
            "gateway_url": discord.fake.gateway_url,
        }
    if "web" in names:
        edges["web"] = {"port": int(world["web"]._site.url.rpartition(":")[2])}
    return {
        "data": "data",
        "model": "anthropic/claude-sonnet-5-5",
        "fallback_models": ["openai/gpt-6.1-terra"],
        "providers": {"anthropic": {"base_url": anthropic}, "openai": {"base_url": openai}},
        "tools": {"enabled": ["files", "schedule"], "policy": {"write_file": "ask"}},
        "access": {"users": ["*"]},
        "transports": edges,
        "observe": {"slow_loop_ms": 604_800_000, "log_format": "json", "log_level": "info"},
    }


class Life:
    def __init__(self, clock: Clock, names: Sequence[str], days: float, folder: Path) -> None:
        self._clock, self._names, self._days, self._folder = clock, names, days, folder
        self._watch = Watch(clock, folder, names)
        self._brains = Providers(7)
        self._brains.wall, self._brains.calm = clock.wall, True

    async def run(self) -> list[str]:
        folder, watch = self._folder, self._watch
        (folder / "data").mkdir(mode=0o700)
        for name in self._names:
            (folder / name).mkdir()
            (folder / name / "data").symlink_to(Path("..") / "data")
            write_about(folder / name, seed=7)
        self._places = world = places(self._names, folder, 7, self._clock.wall)
        sys.stderr = watch
        async with (
            anthropic.FakeAnthropic(self._brains.anthropic) as near,
            openai.FakeOpenAI(self._brains.openai) as far,
            anyio.create_task_group() as tasks,
        ):
            for place in world.values():
                await tasks.start(place.serve)
            given = settings(self._names, world, near.base_url, far.base_url)
            (folder / "settings.json").write_text(json.dumps(given))
            for work in (
                watch.supervise,
                watch.ask,
                watch.count,
                self._keep_journal,
                partial(break_links, world, self._clock.wall),
                self._send_again,
                self._visit,
            ):
                tasks.start_soon(work)
            async with background_tasks() as talking:
                talking.start_soon(self._live)
                await anyio.sleep(60)
                for place in world.values():
                    talking.start_soon(place.talk)
                await anyio.sleep(self._days * DAY_S - 60)
                for place in world.values():
                    place.talking = False
                with anyio.move_on_after(7200) as late:
                    for place in world.values():
                        await place.until_settled()
                if late.cancelled_caught:
                    watch.found(f"still owed: {[(name, place.owed) for name, place in world.items()]}")
                self._stop()
                await self._ended.wait()
            for place in world.values():
                place.close()
            tasks.cancel_scope.cancel()
            asked = len(near.requests) + len(far.requests)
        verdict = Verdict(folder, self._clock.start, self._days, world, watch.log, asked)
        return [*watch.faults, *watch.growth(), *verdict.faults()]

    async def _live(self) -> None:
        """Run the bot again and again; a restart comes once a day."""
        environ, path = ENVIRON, self._folder / "settings.json"
        while True:
            self._ended = anyio.Event()
            os.environ |= {
                "NOTIFY_SOCKET": str(self._folder / "notify"),
                "WATCHDOG_USEC": f"{WATCHDOG_S}000000",
            }
            file = SettingsFile(path, None)
            async with background_tasks() as tasks:
                tasks.start_soon(self._stop_once)
                await self._serve(file, environ)
            self._ended.set()
            await anyio.sleep(DOWN_S)

    async def _stop_once(self) -> None:
        await self._until(RESTART)
        self._stop()

    async def _serve(self, file: SettingsFile, environ: dict[str, str]) -> None:
        """Run the bot until it is stopped. Where it serves others too, the console is added to what is named."""
        if "console" not in self._places:
            return await product.run_transports(file.load(environ), environ, file)
        streams = self._places["console"].open()
        if len(self._places) == 1:
            sys.stdin, sys.stdout = streams.values()
            await run_chat(file.load(environ), environ, file)
            return None
        session = format(int(self._clock.wall() * 1000), "x")
        console = Console(session=session, stderr=streams["stdout"], interactive=False, **streams)
        with patch.object(product, "_transports", lambda *given: [*MAKE(*given), console]):
            return await product.run_transports(file.load(environ), environ, file)

    def _stop(self) -> None:
        """Ask the bot to stop, as systemd does, or the end of the input."""
        if len(self._places) == 1 and "console" in self._places:
            self._places["console"].hang_up()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    async def _visit(self) -> None:
        """Ask for reminders once, and each day something that nobody decides; open links in time, and too late."""
        if web := self._places.get("web"):
            person, thread = REMINDERS.split(":")[2:]
            await web.say_once(person, thread, REMIND)
            while True:
                await self._until(11)
                await web.say_once(person, thread, ASK)
                if (statuses := [await web.enter_late("p9", late) for late in (590, 610)]) != [200, 403]:
                    self._watch.found(f"links that are 590 and 610 s old: {statuses}")

    async def _send_again(self) -> None:
        """Send again what Slack sent within the last hour."""
        if slack := self._places.get("slack"):
            while True:
                await self._until(10.5)
                for sent in list(slack.fake.sockets.deliveries):
                    if sent.acked and time.monotonic() - sent.sent_at < 3600:
                        slack.fake.redeliver(sent)

    async def _until(self, hour: float) -> None:
        """Return when it is this hour of the day the next time."""
        await anyio.sleep((hour * 3600 - self._clock.wall()) % DAY_S or DAY_S)

    async def _keep_journal(self) -> None:
        """Keep every line that was ever in the journal: the bot forgets old messages."""
        path, kept = self._folder / "data" / "journal.jsonl", self._folder / "journal.jsonl"
        seen, last, inode = set[tuple[str, ...]](), 0, 0
        while True:
            await anyio.sleep(LOOK_S)
            if path.exists() and (about := path.stat()).st_mtime_ns != last:
                last = about.st_mtime_ns
                self._watch.log["journal written anew"] += about.st_ino != inode
                inode = about.st_ino
                with kept.open("ab") as file:
                    for line in path.read_bytes().split(b"\n")[:-1]:
                        told = json.loads(line)  # its numbers change when the file is written anew
                        record = told["kind"], told["thread_id"], told["message_id"], told["at"]
                        if record not in seen:
                            seen.add(record)
                            file.write(line + b"\n")


def live(clock: Clock, names: Sequence[str], days: float, folder: Path, spoils: Sequence[str]) -> list[str]:
    without_threads()
    journal.COMPACT_ABOVE = COMPACT_ABOVE
    tests.soak.brains.LONG = {0: 90}
    if "silence" in spoils:
        watchdog.Silence, WebTransport.silent_s = OldSilence, 0.0
    life = Life(clock, names, days, folder)
    streams = sys.stdin, sys.stdout, sys.stderr
    try:
        found = anyio.run(life.run, backend_options={"loop_factory": lambda: Loop(clock)})
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
    for night in life._watch.nights:
        print(
            {k: v for k, v in night.items() if k in ("tasks", "descriptors", "MB")},
            sum(night.values()),
            file=sys.stderr,
        )
    print(life._watch.log, f"{time.process_time():.0f} s of CPU", file=sys.stderr)
    return found


class OldSilence:
    """The rule by which only a falling age was a sign of life."""

    lasted_s = 0.0
    last: float | None = None

    def beat(self, silent_s: float | None, seconds: float) -> None:
        received = silent_s is None or self.last is None or silent_s < self.last
        self.lasted_s = 0.0 if received else self.lasted_s + seconds
        self.last = silent_s
