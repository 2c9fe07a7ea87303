"""What a seed stands for: who says what when, what fails, and when the process dies.

Each kind of trouble is on or off per seed, so that rare combinations are met and a quiet seed stays quiet.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

from threads.model import Author, Deleted, Edited, Inbound, Incoming, ThreadId, TurnLimits

from .disk import WRITING, Faults
from .record import Record, Sent

START = 1000.0
"""Virtual seconds at which the first process starts."""

STACK_COMMANDS = (
    "/compact",
    "/retry",
    "/usage",
    "/model far/two",
    "/model default",
    "/model nope",
    "/approve",
)
COMMANDS = ("/stop", "stop", "!stop", "/status", "/new", "/help", "/stpo")
STRANGE = ("", "a\u2028b", "half \ud83d emoji", "nul \0 and \x1b[2J", 'quo"te \\ {}', "é\r\nline")


@dataclass(slots=True)
class Rates:
    """How often a call of each kind goes wrong, from 0 to 1."""

    model: dict[str, float] = field(default_factory=dict)
    post: dict[str, float] = field(default_factory=dict)
    find: float = 0.0
    duplicate: float = 0.0
    twin: float = 0.0
    cut_sink: float = 0.0


@dataclass(slots=True)
class Plan:
    limits: TurnLimits
    find: bool
    events: list[tuple[float, Inbound]]
    lives: list[tuple[int, bool]]
    rates: Rates
    faults: Faults
    calm_at: float
    outage: tuple[float, float]
    rejecting: set[str]
    disk_latency: str
    compact_above: int
    max_age_s: float
    resume: bool


def draw(
    rng: random.Random, record: Record, more_commands: tuple[str, ...] = (), *, plays: bool = False
) -> Plan:
    """Decide everything that a seed decides before the run, and enter the messages into *record*."""
    threads = _threads(rng)
    events = _events(rng, threads, record, COMMANDS + more_commands, least=0.4 if plays else 0.0)
    last = max(at for at, _ in events)
    calm_at = last + rng.choice((5.0, 60.0, 600.0))
    outage = (0.0, 0.0)
    if rng.random() < 0.2:
        began = rng.uniform(START, last)
        outage = (began, began + rng.choice((5.0, 60.0, 900.0)))
    crashes = rng.choice((0, 1, 1, 2, 2, 3, 4))
    lives = [_life(rng, len(events)) for _ in range(crashes)]
    return Plan(
        limits=_limits(rng, record.busy),
        find=record.find,
        events=events,
        lives=lives,
        rates=_rates(rng),
        faults=_faults(rng, last),
        calm_at=max(calm_at, outage[1]),
        outage=outage,
        rejecting={str(rng.choice(threads))} if rng.random() < 0.05 else set(),
        disk_latency=rng.choice(("none", "fast", "fast", "slow")),
        compact_above=rng.choice((16_000_000, 16_000_000, 3_000)),
        max_age_s=rng.choice((600.0, 600.0, 600.0, 20.0)),
        resume=rng.random() < 0.95,
    )


def _life(rng: random.Random, events: int) -> tuple[int, bool]:
    """Return after how many operations a process ends, often while it starts, and whether it is only asked to."""
    operations = rng.randint(1, 30) if rng.random() < 0.25 else rng.randint(1, 20 + 22 * events)
    return operations, rng.random() < 0.15


def _threads(rng: random.Random) -> list[ThreadId]:
    count = rng.randint(3, 8)
    return [ThreadId("sim", "W", f"C{place // 2}", f"{place}.0") for place in range(count)]


def _limits(rng: random.Random, busy: str) -> TurnLimits:
    return TurnLimits(
        mailbox=rng.choice((20, 20, 2, 3)),
        running_turns=rng.choice((256, 256, 1, 2)),
        running_turns_per_user=rng.choice((4, 4, 1)),
        turn_timeout_s=rng.choice((900.0, 60.0, 20.0)),
        idle_timeout_s=rng.choice((600.0, 5.0, 0.5)),
        busy="steer" if busy == "steer" else "queue",
    )


def _events(
    rng: random.Random, threads: list[ThreadId], record: Record, known: tuple[str, ...], *, least: float
) -> list[tuple[float, Inbound]]:
    """Return what people do, in order of time: no two events at one instant, a thread's own always in order.

    At least a share of *least* are commands.
    """
    users = [Author(f"U{n}", rng.choice(("", f"user {n}"))) for n in range(rng.randint(1, 5))]
    at, events, numbers = START, [], dict.fromkeys(map(str, threads), 0)
    calm, commands, changes = (
        rng.choice((0.5, 5.0, 40.0)),
        rng.choice((0.0, 0.1, 0.3)),
        rng.choice((0.0, 0.2)),
    )
    while len(events) < rng.randint(4, 34):
        thread = rng.choice(threads)
        burst = rng.choice((1, 1, 1, 2, 4, 8))
        for _ in range(burst):
            at += rng.uniform(0.001, 0.3) if burst > 1 else rng.expovariate(1 / calm)
            place = threads.index(thread)
            number = numbers[str(thread)] = numbers[str(thread)] + 1
            command = rng.choice(known) if rng.random() < max(commands, least) else ""
            incoming = Incoming(
                f"m{place}-{number}",
                thread,
                rng.choice(users),
                command or words(rng, place, number, 1),
                "2026-11-21T10:00:00+00:00",
            )
            key = f"sim:W:{thread.channel}:{incoming.id}"
            sent = record.sent[key] = Sent(
                key, incoming.id, str(thread), number, command, author=incoming.author.id
            )
            events.append((at, incoming))
            if rng.random() < changes:
                events.append(_change(rng, at, incoming, sent, place))
    return sorted(events, key=lambda event: event[0])


def _change(
    rng: random.Random, at: float, incoming: Incoming, sent: Sent, place: int
) -> tuple[float, Inbound]:
    at += rng.choice((0.0005, 0.1, 2.0, 20.0)) * rng.uniform(0.5, 1)
    if sent.command or rng.random() < 0.5:
        return at, Deleted(incoming.id, incoming.thread)
    sent.versions = 2
    return at, Edited(incoming.id, incoming.thread, words(rng, place, sent.number, 2))


def words(rng: random.Random, place: int, number: int, version: int) -> str:
    """Return a text that says which message, and which version of it, it is."""
    return f"{rng.choice(STRANGE)} tk{place}x{number}x{version}z"


def _rates(rng: random.Random) -> Rates:
    def some(share: float, rate: float) -> float:
        return rng.uniform(0, rate) if rng.random() < share else 0.0

    return Rates(
        model={
            "error": some(0.4, 0.3),
            "terminal": some(0.3, 0.2),
            "bug": some(0.2, 0.2),
            "hang": some(0.15, 0.2),
            "empty": some(0.3, 0.4),
            "length": some(0.2, 0.3),
            "pause": some(0.1, 0.2),
            "tools": some(0.7, 0.8),
            "waits": some(0.3, 0.4),
        },
        post={
            "limited": some(0.3, 0.3),
            "before": some(0.3, 0.3),
            "unknown": some(0.2, 0.2),
            "after": some(0.3, 0.3),
            "hang": some(0.15, 0.2),
            "bug": some(0.1, 0.2),
            "too_long": some(0.05, 0.1),
        },
        find=some(0.2, 0.4),
        duplicate=some(0.7, 0.5),
        twin=some(0.4, 0.5),
        cut_sink=some(0.2, 0.2),
    )


def _faults(rng: random.Random, last: float) -> Faults:
    faults = Faults(short_writes=rng.choice((0.0, 0.0, 0.3)))
    for kind in sorted(WRITING | {"read"}):
        if rng.random() < (0.35 if kind in ("write", "fsync") else 0.05):
            no = rng.choice((errno.ENOSPC, errno.EIO)) if kind in ("write", "create", "mkdir") else errno.EIO
            faults.nth[kind] = {}
            for _ in range(rng.choice((1, 1, 4))):
                first, times = rng.randint(1, 80), rng.choice((1, 1, 2, 6))
                faults.nth[kind] |= dict.fromkeys(range(first, first + times), no)
    if rng.random() < 0.15:
        began = rng.uniform(START, last)
        ended = began + rng.choice((0.2, 5.0, 60.0))
        kinds, no = rng.choice(
            (
                (WRITING, errno.EROFS),
                (frozenset({"write"}), errno.ENOSPC),
                (frozenset({"create", "mkdir"}), errno.ENOSPC),  # out of inodes: appending still works
                (frozenset({"fsync"}), errno.EIO),
            )
        )
        faults.windows.append((began, ended, kinds, no))
    return faults
