"""The soak: `threadfast run` as a process over both platforms, the page and both providers, for a long time, and its judges.

0                 1/9          2/9       1/3                    2/3                    1
| at rest | people talk … SIGTERM … SIGKILL | second third, and last third: one life | drain | at rest | judges
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process

from tests.crash.book import write_about
from tests.crash.run import ROOT, environment, judge
from tests.fakes.anthropic import FakeAnthropic
from tests.fakes.discord import TOKEN as DISCORD_TOKEN
from tests.fakes.openai import FakeOpenAI
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN
from tests.soak.brains import Brains
from tests.soak.people import InDiscord, InSlack, InWeb
from tests.soak.plan import CANARIES, TWICE, Plan, settings
from tests.soak.samples import Row, Samples, Verdict, lowest
from threads.background import background_tasks

PLACES = "slack", "discord", "web"
START_S = 120.0
STOP_S = 60.0
DRAIN_S = 600.0
REST_S = 4.0
KEPT_OPEN = 60
"""Connections that the HTTP pools may keep for the next call; some are let go only when that comes."""
BUGS = (
    "actor crashed",
    "transport failed to post",
    "never retrieved",
    "never awaited",
    "Unclosed",
    "ResourceWarning",
)
"""What the bot, or what is below it, calls a bug in its log."""

Say = Callable[[str], None]


@dataclass
class Report:
    """What came of it; ``violations`` are the judges' and the log's."""

    samples: Samples
    violations: list[str] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    log: Counter[str] = field(default_factory=Counter)
    before: Row = field(default_factory=dict)
    after: Row = field(default_factory=dict)
    slowest_s: float = 0.0
    latest_s: float = 0.0
    answered: int = 0
    starts_s: list[float] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        return all(verdict.kept is not False for verdict in self.verdicts)


class Soak:
    def __init__(self, folder: Path, plan: Plan, say: Say) -> None:
        self._folder, self._plan, self._say = folder, plan, say
        self._report = Report(Samples(folder))
        self._brains = Brains(plan.seed)
        pages = plan.threads // 5
        half = (plan.threads - pages) // 2
        for name in PLACES:
            (folder / name).mkdir()
            (folder / name / "data").symlink_to(Path("..") / "data")
            write_about(folder / name, seed=plan.seed)
        (folder / "data").mkdir(mode=0o700)
        self._slack = InSlack(
            folder / "slack", seed=plan.seed, threads=plan.threads - pages - half, pause_s=plan.pause_s
        )
        self._discord = InDiscord(folder / "discord", seed=plan.seed, threads=half, pause_s=plan.pause_s)
        self._web = InWeb(folder / "web", seed=plan.seed, threads=pages, pause_s=plan.pause_s)
        self._places = self._slack, self._discord, self._web
        self._process: Process | None = None
        self._began = time.monotonic()
        self._tells = 0

    @property
    def second(self) -> float:
        return time.monotonic() - self._began

    async def run(self) -> Report:
        report = self._report
        async with (
            FakeAnthropic(self._brains.anthropic) as anthropic,
            FakeOpenAI(self._brains.openai) as openai,
            background_tasks() as tasks,
        ):
            for fake in (anthropic, openai):
                fake.requests = _Forgetful()
            await tasks.start(self._slack.serve)
            await tasks.start(self._discord.serve)
            port = await tasks.start(self._web.serve)
            discord = self._discord.fake
            given = settings(
                self._slack.fake.api_base_url,
                discord.api_base_url,
                discord.gateway_url,
                port,
                anthropic.base_url,
                openai.base_url,
                self._plan.idle_s,
            )
            self._path.write_text(json.dumps(given))
            async with anyio.create_task_group() as measuring:
                measuring.start_soon(self._live, tasks, measuring.cancel_scope.cancel)
            for place in self._places:
                place.close()
        await self._look_back()
        report.verdicts = list(self._verdicts())
        return report

    # its life

    async def _live(self, tasks: Any, done: Callable[[], None]) -> None:
        plan, report = self._plan, self._report
        await self._start()
        report.before = await self._rest()
        self._began = time.monotonic()
        for place in self._places:
            tasks.start_soon(place.talk)
        for at, number in plan.restarts:
            await self._measure_until(at)
            down = time.monotonic()
            await self._end(number)
            await self._start()
            self._began += time.monotonic() - down  # however slow the machine is, the last life has its time
        await self._measure_until(plan.seconds)
        for place in self._places:
            place.talking = False
        restless = ""
        with anyio.move_on_after(DRAIN_S) as draining:
            self._brains.calm = True
            for place in self._places:
                place.until_calm()
            for name, place in zip(PLACES, self._places, strict=True):
                restless = name
                await place.until_settled()
        if draining.cancelled_caught:
            owed = ", ".join(f"{name} {place.owed}" for name, place in zip(PLACES, self._places, strict=True))
            report.violations.append(
                f"drain: {restless} is not at rest after {DRAIN_S:.0f} s; still owed: {owed}"
            )
        await anyio.sleep(self._plan.idle_s + 5)
        report.after = await self._rest()
        await self._end(signal.SIGTERM)
        done()

    async def _start(self) -> None:
        began = time.monotonic()
        command = [sys.executable, "-W", "default::ResourceWarning", "-m", "tests.soak.child"]
        command += [str(self._report.samples.probes), "run", "--settings", str(self._path)]
        env = environment() | CANARIES | {"HOME": str(self._folder)}
        env |= {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "DISCORD_TOKEN": DISCORD_TOKEN}
        with self._log.open("ab") as log:
            self._process = await anyio.open_process(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        slack, discord = self._slack.fake, self._discord.fake
        with anyio.fail_after(START_S):
            while not (slack.sockets.links and discord.ready):
                await anyio.sleep(0.05)
        self._report.starts_s.append(time.monotonic() - began)

    async def _end(self, number: signal.Signals) -> None:
        process = self._process
        assert process
        if process.returncode is None:
            process.send_signal(number)
        with anyio.fail_after(STOP_S):
            code = await process.wait()
        if code not in (0, -number, 128 + number):
            self._report.violations.append(f"exit: the process ended with {code} on {number.name}")
        self._say(f"{self.second:6.0f} s  ended by {number.name} with {code}")

    async def _rest(self) -> Row:
        """Return a sample of a process that has nothing to do."""
        row: Row = {}
        for _ in range(3):
            await anyio.sleep(REST_S / 3)
            row = await self._sample() or row
        return row

    async def _measure_until(self, second: float) -> None:
        minute = int(self.second // 60)
        while self.second < second:
            row = await self._sample()
            if row and self.second // 60 > minute:
                minute = int(self.second // 60)
                self._say(_line(row))
            await anyio.sleep(max(0, min(self._plan.sample_s, second - self.second)))

    async def _sample(self) -> Row | None:
        assert self._process
        if self._process.returncode is not None:
            raise RuntimeError(
                f"the bot has ended by itself with {self._process.returncode}; see {self._log}"
            )
        self._tells += 1
        os.kill(self._process.pid, signal.SIGUSR1)
        await anyio.sleep(0.1)
        more: Row = {"tree_rss": _tree_rss(self._process.pid)}
        if self._tells % 6 == 1:
            more["disk"] = await anyio.to_thread.run_sync(_size, self._folder / "data")
        more |= {"said": sum(place.accepted for place in self._places)}
        more |= {"posted": sum(place.posted for place in self._places)}
        return self._report.samples.take(self.second, **more)

    async def close(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    # what came of it

    async def _look_back(self) -> None:
        report = self._report
        report.faults = self._brains.faults
        for name in PLACES:
            counts, violations = await judge(self._folder / name, "tests.judge.soak", name)
            report.counts[name] = counts
            report.violations += [f"{name}: {violation}" for violation in violations]
        report.violations += self._logged()
        report.violations += self._leaked()
        self._time_answers()

    def _logged(self) -> Iterator[str]:
        for line in self._log.read_text("utf-8", "replace").splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                self._report.log["no JSON"] += 1
                yield f"log: {line[:200]}"
                continue
            if told["level"].lower() not in ("info", "debug"):
                self._report.log[f"{told['level']} {told['event']} of {told['logger']}"] += 1
            yield from (f"log: {line[:300]}" for bug in BUGS if bug in line)

    def _leaked(self) -> Iterator[str]:
        """Look for the providers' keys in everything that the bot wrote or said."""
        said = [
            *self._folder.glob("*/visible.jsonl"),
            *self._folder.glob("*/calls.jsonl"),
            self._folder / "web/texts.jsonl",
        ]
        for path in (self._log, *said, *self._folder.joinpath("data").rglob("*")):
            if path.is_file():
                text = path.read_bytes()
                yield from (f"leak: a key is in {path}" for key in CANARIES.values() if key.encode() in text)

    def _time_answers(self) -> None:
        """Find how long the slowest message waited for its outcome, from when it was said, restarts included."""
        path, ends = self._folder / "data" / "journal.jsonl", dict[str, float]()
        for line in path.read_bytes().split(b"\n")[:-1]:
            told = json.loads(line)
            if told["kind"] == "settled":
                ends[told["message_id"]] = datetime.fromisoformat(told["at"]).timestamp()
        offset = time.time() - time.monotonic()
        for place in PLACES:
            for line in (self._folder / place / "sent.jsonl").read_bytes().splitlines():
                told = json.loads(line)
                if told["id"] in ends:
                    waited = ends[told["id"]] - told["said_at"] - offset
                    # What reached the bot and was not for it then may be so once the catch-up finds it.
                    if place == "web" or (told["acked_at"] and told["must"]):
                        self._report.slowest_s = max(self._report.slowest_s, waited)
                    else:
                        self._report.latest_s = max(self._report.latest_s, waited)
                    self._report.answered += 1

    def _verdicts(self) -> Iterator[Verdict]:
        plan, report, samples = self._plan, self._report, self._report.samples
        for name, what, judged in (("rss", "memory (RSS)", True), ("pss", "memory (PSS)", False)):
            middle, end = samples.thirds(name, plan.seconds, median)
            ratio = end / middle if middle else 0.0
            found = f"{middle / 1e6:.1f} -> {end / 1e6:.1f} MB, {ratio - 1:+.1%}"
            most = TWICE if plan.is_short else 1 + plan.growth
            kept = 0 < ratio <= most if judged else None  # who shares our libraries is no business of ours
            yield Verdict(what, found, f"{most - 1:+.0%}" if judged else "", kept)
        middle, end = samples.thirds("fds", plan.seconds, lowest)
        kept = 0 < end <= max(middle + 3, 1.05 * middle)
        found = f"{middle:.0f} -> {end:.0f}"
        yield Verdict("fewest descriptors", found, "+3 or 5 %", None if plan.is_short else kept)
        for name, what in (("tasks", "fewest tasks"), ("threads", "fewest OS threads")):
            # as many as turns run, the longer the slower
            middle, end = samples.thirds(name, plan.seconds, lowest)
            yield Verdict(what, f"{middle:.0f} -> {end:.0f}", "", None)
        for row in (report.before, report.after):
            row["files"] = row["fds"] - row["sockets"]
        for name, what, spare in (
            ("files", "open files at rest", 4),
            ("sockets", "sockets at rest", KEPT_OPEN),
            # rooms may still be read for what was missed, and drafts be swept
            (
                "tasks",
                "tasks at rest",
                12,
            ),
        ):
            before, after = report.before[name], report.after[name]
            yield Verdict(what, f"{before} -> {after}", f"+{spare}", after <= before + spare)
        yield Verdict(
            "threads in memory at rest", f"{report.after.get('actors')}", "0", report.after.get("actors") == 0
        )
        held = [row["actors"] for row in samples.rows]
        yield Verdict("threads in memory", f"{min(held)} to {max(held)} of {plan.threads}", "", None)
        middle, end = samples.thirds("objects", plan.seconds, median)
        yield Verdict("objects of the collector", f"{middle:,.0f} -> {end:,.0f}", "", None)
        for what, waited_s, most_s in (
            ("slowest outcome of what reached the bot", report.slowest_s, plan.silence_s),
            ("slowest outcome of what was missed", report.latest_s, plan.missed_s),
        ):
            yield Verdict(what, f"{waited_s:.1f} s", f"{most_s:.0f} s", waited_s <= most_s)
        lag = max((row["lag_s"] for row in samples.rows), default=0.0)
        yield Verdict("worst lag of the loop", f"{lag:.2f} s", "", None)
        disk = [row["disk"] for row in samples.rows if "disk" in row]
        yield Verdict("data folder", f"{disk[0] / 1e6:.1f} -> {disk[-1] / 1e6:.1f} MB", "", None)
        yield Verdict("starts", ", ".join(f"{start:.1f}" for start in report.starts_s) + " s", "", None)
        yield Verdict("violations", str(len(report.violations)), "0", not report.violations)

    @property
    def _path(self) -> Path:
        return self._folder / "settings.json"

    @property
    def _log(self) -> Path:
        return self._folder / "bot.log"


class _Forgetful(list[Any]):
    """A list that keeps nothing: whole conversations come with each request."""

    def append(self, _: Any) -> None:
        pass


@asynccontextmanager
async def _closing(soak: Soak) -> AsyncIterator[Soak]:
    try:
        yield soak
    finally:
        with anyio.CancelScope(shield=True):
            await soak.close()


async def soak(folder: Path, plan: Plan, say: Say = lambda _: None) -> Report:
    """Run it all in *folder*; the process is gone afterwards, whatever happens."""
    async with _closing(Soak(folder, plan, say)) as one:
        return await one.run()


def _line(row: Row) -> str:
    return (
        f"{row['second']:6.0f} s  {row['rss'] / 1e6:6.1f} MB  {row['fds']:3} descriptors  {row['tasks']:4} tasks  "
        f"{row['actors']:3} threads in memory  {row['said']:6} said  {row['posted']:6} posts  lag {row['lag_s']:.2f} s"
    )


def _tree_rss(root: int) -> int:
    """Return what the process and its children have resident, in bytes."""
    parents, sizes = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            sizes[pid] = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    found, new = {root}, {root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return sum(sizes.get(pid, 0) for pid in found)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total
