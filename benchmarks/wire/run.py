"""Every contender at once, each with a platform of its own; they are measured by turns, a small block each."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.figures import Conditions, Report
from benchmarks.versus.environments import LeftOut, last_error
from benchmarks.wire.contenders import Contender, discord_contenders, slack_contenders
from benchmarks.wire.meter import resident_of
from benchmarks.wire.model import Model, model_server
from benchmarks.wire.results import Found, Session
from benchmarks.wire.scenarios import QUICK_ROUNDS, SCENARIOS, Bot, Scenario
from benchmarks.wire.table import figures, print_session
from benchmarks.wire.wires import Wire

START_S = 60.0


@asynccontextmanager
async def _running(
    contender: Contender, model: Model, folder: Path, numbers: itertools.count[int]
) -> AsyncIterator[tuple[Bot, Path]]:
    """Run a contender until the block ends; yields it, and the file of what it prints. Raises `LeftOut`."""
    folder.mkdir()
    output = folder / "output"
    async with contender.wire() as wire:
        started = contender.start(wire, folder, model.url)
        with output.open("wb") as file:
            process = subprocess.Popen(
                started.command,
                cwd=started.folder,
                env=dict(started.environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            if not await _connected(wire, process):
                raise LeftOut(f"it does not connect: {last_error(output.read_text(errors='replace'))}")
            yield Bot(process.pid, wire, model, numbers, contender.streams_in), output
        finally:
            process.kill()
            process.wait()


async def _connected(wire: Wire, process: subprocess.Popen[bytes]) -> bool:
    """Wait for the bot on its platform; return False if it ends before, or does not come."""
    with anyio.move_on_after(START_S):
        while process.poll() is None:
            if wire.is_connected:
                return True
            await anyio.sleep(0.05)
    return False


async def _measure(
    conditions: Conditions, platform: str, contenders: Sequence[Contender], scenarios: Sequence[Scenario]
) -> Session:
    session, numbers = Session(conditions, platform), itertools.count(1)
    async with AsyncExitStack() as stack:
        model = stack.enter_context(model_server())
        folder = Path(stack.enter_context(TemporaryDirectory(dir=conditions.disk)))
        for number, contender in enumerate(contenders):
            print(f"wire: {platform}, {contender.name} …", file=sys.stderr, flush=True)
            running = _running(contender, model, folder / str(number), numbers)
            try:
                bot, output = await stack.enter_async_context(running)
            except LeftOut as reason:
                session.leave_out(contender.name, str(reason))
            else:
                session.bots[contender.name] = contender, bot, output
                session.found[contender.name] = Found()
        for number, scenario in enumerate(scenarios):
            await _play(session, scenario)
            if not number:
                await session.idle()
        for name, (_, bot, _) in session.bots.items():
            session.found[name].resident = resident_of(bot.pid)
    return session


async def _play(session: Session, scenario: Scenario) -> None:
    """Measure all contenders by turns, each round in another order; the first round fills the caches."""
    print(f"wire: {session.platform}, {scenario.name} …", file=sys.stderr, flush=True)
    rounds = QUICK_ROUNDS if session.conditions.quick else scenario.rounds
    for number in range(rounds + 1):
        names = list(session.bots)
        shift = number % max(1, len(names))
        for name in [*names[shift:], *names[:shift]]:
            block = await session.block(name, scenario)
            if number and block:
                session.found[name].blocks[scenario.name].append(block)


def wire(conditions: Conditions, before: Path | None, peers: Path) -> None:
    """Measure and print, one platform after the other."""
    report = Report()
    platforms = {"Slack": slack_contenders(before, peers), "Discord": discord_contenders(before)}
    for platform, contenders in platforms.items():
        session = anyio.run(_measure, conditions, platform, contenders, SCENARIOS)
        print_session(session)
        for figure in figures(session):
            report.add("wire", figure)
    report.print()
