"""The life of one composition: fakes, people and faults around the real program, and what is watched meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import anyio

import bot.wiring.run as product
import tests.soak.brains
from bot.config.load import SettingsFile
from bot.observe import watchdog
from bot.wiring.chat import run_chat
from tests.crash.platform import write_about
from tests.fakes import anthropic, openai
from tests.fakes.discord import TOKEN
from tests.fakes.http import Reply, Seen, Stall
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN
from tests.judge import soak as judges
from tests.judge.records import Fields, read_lines
from tests.soak.brains import Brains, Said
from tests.soak.plan import CANARIES
from tests.week.clock import Clock
from tests.week.loop import Loop, without_threads
from tests.week.people import DAY_S, places
from threads.journal import journal
from transports.console import Console
from transports.web.client import Web

REMINDERS, REMIND = "web::p8:reminders", "remind me each night"
ASK = "keep a note, and ask me first"
"""Nobody decides about that: the question expires."""
ZONE = "Europe/Berlin"
ENVIRON = CANARIES | {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "DISCORD_TOKEN": TOKEN}
WATCHDOG_S, LOOK_S, ASK_S = 30, 5.0, 600.0
NEXT_CALL = "tried again with the next call"
"""Of a circuit that delays nothing any more, and that nobody has called through yet."""
DOWN_S = 45.0
MAKE = product._transports
COMPACT_ABOVE = 100_000
"""Bytes of the journal, so that it is written anew each day."""


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
OURS = re.compile(r"(bot|threads|transports)\.")
SPARE = {"tasks": 0, "descriptors": 4, "MB": 30}
"""What may be there at a rest beyond the first. The fakes remember all that was said, in this process too."""
KEPT_A_REST = 60
"""Objects of one class of the bot that half a day may leave: what it keeps of its messages."""
USUAL = {"tool.failed", "post.no_threads"}
"""What the log may say at any time: the model reads a file that is not there, and one channel allows no threads."""
RESTART = 14.1
"""The hour of the daily restart: in the middle of a busy time."""


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


@dataclass
class Watch:
    """What is seen of the bot from outside, as faults in words."""

    clock: Clock
    folder: Path
    names: Sequence[str]
    faults: list[str] = field(default_factory=list)
    nights: list[Counter[str]] = field(default_factory=list)
    log: Counter[str] = field(default_factory=Counter)
    up = False

    def found(self, what: str) -> None:
        self.faults.append(f"{self.at}: {what}")

    @property
    def at(self) -> str:
        return f"{datetime.fromtimestamp(self.clock.wall(), UTC):%d %b %H:%M:%S}"

    @property
    def troubled(self) -> bool:
        return any(fault.now(self.clock.wall(), GRACE_S) for fault in FAULTS)

    # the log, as standard error

    encoding = "utf-8"

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 2

    def flush(self) -> None:
        pass

    def write(self, text: str) -> None:
        for line in text.splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                if line and not line.startswith("Model: "):
                    self.found(f"on standard error: {line[:300]}")
                continue
            self.log[f"{told['event']} {told['code']}" if "code" in told else told["event"]] += 1
            if told["level"] not in ("debug", "info"):
                caused = (fault for fault in FAULTS if fault.now(self.clock.wall(), GRACE_S))
                if told["event"] not in USUAL and not any(
                    told["event"].startswith(tell) for fault in caused for tell in fault.tells
                ):
                    self.found(f"log: {line[:600]}")

    # systemd, and whoever asks for its health

    async def supervise(self) -> None:
        """Read what the bot tells systemd."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as unit:
            unit.bind(str(self.folder / "notify"))
            while True:
                await anyio.sleep(LOOK_S)
                was_up, told = self.up, list(_datagrams(unit))
                self.up = (self.up or "READY=1" in told) and not any("STOPPING=1" in one for one in told)
                if was_up and self.up and "WATCHDOG=1" not in told:
                    self.found("no beat for systemd's watchdog")
                for line in told:
                    if "silent" in line:
                        self.found(f"systemd is told {line}")

    async def ask(self) -> None:
        while True:
            await anyio.sleep(ASK_S)
            if self.up:
                health, status = await self._get("/healthz"), await self._get("/status")
                if not self.up:
                    continue
                if " 200 " not in health.partition("\r\n")[0]:
                    self.found(f"healthz: {health}")
                for edge in json.loads(status.partition("\r\n\r\n")[2])["transports"]:
                    linked = edge["name"] in ("slack", "discord")
                    if (edge["silent_s"] is not None) > linked or (edge["silent_s"] or 0) > 90:
                        self.found(f"status: {edge}")
                told = json.loads(status.partition("\r\n\r\n")[2])["troubles"]
                if found := [one for one in told if not (self.troubled or one.endswith(NEXT_CALL))]:
                    self.found(f"troubles: {found}")

    async def _get(self, path: str) -> str:
        async with await anyio.connect_unix(str(self.folder / "data" / "status.sock")) as stream:
            await stream.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            text = b""
            with anyio.fail_after(10):
                async for piece in stream:
                    text += piece
        return text.decode()

    async def count(self) -> None:
        """Count what is held at the end of a night and of an afternoon, when nobody has talked for hours."""
        while True:
            await anyio.sleep(min((hour * 3600 - self.clock.wall()) % DAY_S or DAY_S for hour in (8.5, 19.5)))
            gc.collect()
            held = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
            held = Counter({kind: count for kind, count in held.items() if OURS.match(kind)})
            held["tasks"] = len(asyncio.all_tasks())
            held["descriptors"] = sum(1 for _ in Path("/proc/self/fd").iterdir())
            held["MB"] = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 1_000_000
            self.nights.append(held)

    def growth(self) -> Iterator[str]:
        """Compare what is held at each rest with the first: as many tasks, and no more of ours but for messages."""
        first, *later = self.nights or [Counter()]
        for number, held in enumerate(later, 2):
            for kind, count in held.items():
                most = first[kind] + SPARE.get(kind, KEPT_A_REST * (number - 1))
                if count > most:
                    yield f"rest {number}: {count} {kind}, {first[kind]} at the first, {most} allowed"


def _datagrams(unit: socket.socket) -> Iterator[str]:
    while True:
        try:
            yield unit.recv(4096).decode()
        except BlockingIOError:
            return


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
            write_about(folder / name, find=True, seed=7)
        self._places = world = places(self._names, folder, 7, self._clock.wall)
        sys.stderr = watch
        async with (
            anthropic.FakeAnthropic(self._brains.anthropic) as near,
            openai.FakeOpenAI(self._brains.openai) as far,
            anyio.create_task_group() as tasks,
        ):
            self._asked = lambda: len(near.requests) + len(far.requests)
            for place in world.values():
                await tasks.start(place.serve)
            given = settings(self._names, world, near.base_url, far.base_url)
            (folder / "settings.json").write_text(json.dumps(given))
            for work in (
                watch.supervise,
                watch.ask,
                watch.count,
                self._keep_journal,
                self._break_things,
                self._visit,
            ):
                tasks.start_soon(work)
            async with anyio.create_task_group() as talking:
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
                talking.cancel_scope.cancel()
            for place in world.values():
                place.close()
            tasks.cancel_scope.cancel()
        return [*watch.faults, *watch.growth(), *self._judge()]

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
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_once)
                await self._serve(file, environ)
                tasks.cancel_scope.cancel()
            self._ended.set()
            await anyio.sleep(DOWN_S)

    async def _stop_once(self) -> None:
        await anyio.sleep((RESTART * 3600 - self._clock.wall()) % DAY_S or DAY_S)
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

    async def _break_things(self) -> None:
        while True:
            await anyio.sleep(60.0)
            now = [fault.what for fault in FAULTS if fault.now(self._clock.wall())]
            slack, discord = (self._places.get(name) for name in ("slack", "discord"))
            links = [*(slack.fake.sockets.links if slack else ()), *(discord.fake.links if discord else ())]
            for link in links:
                if "cut" in now:
                    (link.reset if hasattr(link, "reset") else link.abort)()
                if "frozen" in now:
                    link.freeze()

    async def _visit(self) -> None:
        """Ask for reminders, open links too late, and send again what Slack sent an hour ago."""
        web, slack = (self._places.get(name) for name in ("web", "slack"))
        if web:
            await web.say_once("p8", "reminders", REMIND)
        while True:
            await anyio.sleep((11 * 3600 - self._clock.wall()) % DAY_S or DAY_S)
            if web:
                await web.say_once("p8", "reminders", ASK)
            if web and (statuses := [await web.enter_late("p9", late) for late in (590, 610)]) != [200, 403]:
                self._watch.found(f"links that are 590 and 610 s old: {statuses}")
            now = time.monotonic()
            for sent in slack.fake.sockets.deliveries if slack else ():
                if sent.acked and now - sent.sent_at < 3600:
                    slack.fake.redeliver(sent)

    async def _keep_journal(self) -> None:
        """Keep every line that was ever in the journal: the bot forgets old messages."""
        path, kept, seen = (
            self._folder / "data" / "journal.jsonl",
            self._folder / "journal.jsonl",
            set[bytes](),
        )
        last, inode = 0, 0
        while True:
            await anyio.sleep(LOOK_S)
            if path.exists() and (about := path.stat()).st_mtime_ns != last:
                last = about.st_mtime_ns
                self._watch.log["journal written anew"] += about.st_ino != inode
                inode = about.st_ino
                fresh = [line for line in path.read_bytes().split(b"\n")[:-1] if line not in seen]
                seen.update(fresh)
                with kept.open("ab") as file:
                    file.writelines(line + b"\n" for line in fresh)

    def _judge(self) -> Iterator[str]:
        lines = list(filter(None, read_lines((self._folder / "journal.jsonl").read_bytes())))
        yield from self._judge_reminders([one for one in lines if one["thread_id"] == REMINDERS])
        yield from self._judge_money()
        yield from self._unreached()
        yield from self._judge_console([one for one in lines if one["thread_id"].startswith("console:")])
        self._give_to_judges(b"p8:reminders")
        kinds = {"slack": judges.OfSlack, "discord": judges.OfDiscord, "web": judges.OfWeb}
        for name in filter(kinds.__contains__, self._places):
            judge = kinds[name](self._folder / name)
            judge.run()
            self._watch.log[f"{name} settled"] = len(judge.settled)
            yield from (f"{name}: {violation}" for violation in judge.violations)

    def _give_to_judges(self, hidden: bytes) -> None:
        """Give the judges the whole journal, but for the thread that is judged here."""
        whole = (self._folder / "journal.jsonl").read_bytes().split(b"\n")
        kept = b"\n".join(line for line in whole if hidden not in line)
        (self._folder / "data" / "journal.jsonl").write_bytes(kept)
        for folder in (self._folder / "data" / "threads").glob("web/*reminders"):
            shutil.rmtree(folder)

    def _judge_reminders(self, lines: Sequence[Fields]) -> Iterator[str]:
        """Each night at half past two a reminder comes once, also when the clocks change, and is answered."""
        found = Counter(
            int(one["message_id"].rpartition("-")[2])
            for one in lines
            if one["kind"] == "settled" and one["outcome"] == "answered" and "schedule-" in one["message_id"]
        )
        due = Counter(self._due() if "web" in self._places else ())
        if found != due:
            yield f"reminders: {sorted(found.items())}, expected {sorted(due.items())}"

    def _judge_money(self) -> Iterator[str]:
        """What is set aside for a call is settled once, and no call goes out without."""
        files = (self._folder / "data" / "usage").glob("*.jsonl")
        lines = {one["seq"]: one for path in files for one in read_lines(path.read_bytes()) if one}.values()
        reserved = {one["seq"] for one in lines if one["kind"] == "reserve"}
        settled = Counter(one["reserve"] for one in lines if one["kind"] == "commit")
        if settled != Counter(reserved):
            yield f"money: {len(reserved)} reserved, {len(settled)} settled, {max(settled.values())} times at most"
        if self._asked() > len(reserved):
            yield f"money: {self._asked()} calls, {len(reserved)} reserved"

    def _unreached(self) -> Iterator[str]:
        """The week is long enough for every limit of time that it is there for."""
        days, log = int(self._days), self._watch.log
        audit = b"".join(path.read_bytes() for path in (self._folder / "data" / "audit").glob("*.jsonl"))
        end = datetime.fromtimestamp(self._clock.start + self._days * DAY_S, UTC)
        months = {f"{datetime.fromtimestamp(self._clock.start, UTC):%Y-%m}", f"{end:%Y-%m}"}
        seen = {
            "circuits that open": (log["circuit.opened unavailable"], days),
            "circuits that close": (log["circuit.closed"], days),
            "turns that run out of time": (log["turn.failed turn_timeout"], days // 2),
            "journals written anew": (log["journal written anew"], 1 + days // 3),
            "months": (len(list((self._folder / "data" / "usage").glob("????-??.jsonl"))), len(months)),
        }
        if "slack" in self._places:
            seen["links without an event for 600 s"] = (log["link.renewed"], 20 * days)
        if "web" in self._places:
            seen["questions that expire"] = (audit.count(b'"verdict":"expired"'), days)
        yield from (
            f"never reached: {what}: {found} of {least}"
            for what, (found, least) in seen.items()
            if found < least
        )

    def _due(self) -> Iterator[int]:
        day = datetime.fromtimestamp(self._clock.start, ZoneInfo(ZONE)).replace(hour=2, minute=30)
        while (day := day + timedelta(days=1)).timestamp() < self._clock.start + self._days * DAY_S:
            late = datetime.fromtimestamp(day.timestamp(), ZoneInfo(ZONE)).hour > 2  # skipped: at three
            yield int(day.timestamp()) - 1800 * late

    def _judge_console(self, lines: Sequence[Fields]) -> Iterator[str]:
        if console := self._places.get("console"):
            received = Counter(one["text"] for one in lines if one["kind"] == "received")
            settled = Counter(one["message_id"] for one in lines if one["kind"] == "settled")
            if (
                received != Counter(console.lines)
                or len(settled) != len(received)
                or max(settled.values()) > 1
            ):
                yield f"console: said {len(console.lines)}, received {received}, settled {settled}"
            for one in lines:
                token = one["text"].split()[-1] if one["kind"] == "received" else ""
                if token and console.heard.count(f"re {token}\n".encode()) > 1:
                    yield f"console: {token} was answered twice"


def live(clock: Clock, names: Sequence[str], days: float, folder: Path, spoils: Sequence[str]) -> list[str]:
    without_threads()
    journal.COMPACT_ABOVE = COMPACT_ABOVE
    tests.soak.brains.LONG = {0: 90}
    if "silence" in spoils:
        watchdog.Silence, Web.silent_s = OldSilence, 0.0
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
