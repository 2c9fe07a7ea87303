"""A PostgreSQL of one process in virtual time: the product's statements, run by a model of its tables.

Connections break, before or after a statement is carried out, and some statements are carried out long after their
sender has given up. A place may be cut off, and the whole server crashes. What the SQL functions do is told again here,
in Python: the real ones are proved by the tests over a real server.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

import anyio
import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict

from bot.extensions.postgres import context, journal, session, store, worker, workspaces

SILENT, _ = os.pipe()
"""A descriptor on which nothing comes: a connection that waits for nothing hears nothing from its server."""

START = datetime(2026, 11, 22, 11, tzinfo=UTC)
CHECKS = frozenset({"epoch", "former"})
"""The rules of the real functions and statements that a mutant may take away."""

PLACES = ("received", "started", "intent", "posted", "settled")


def clock() -> datetime:
    return START + timedelta(seconds=anyio.current_time())


@dataclass(slots=True)
class ThreadRow:
    owner: int | None = None
    epoch: int = 0
    generation: int = 0
    changed_at: datetime | None = None


@dataclass(slots=True)
class MessageRow:
    seq: int
    key: str
    thread: str
    lines: dict[str, str | None]
    outcome: str | None = None
    unowned: bool = False

    @property
    def row(self) -> tuple[Any, ...]:
        return self.seq, self.thread, *(self.lines.get(place) for place in PLACES), False, self.unowned


@dataclass(slots=True)
class Faults:
    """How likely a statement meets each, and how long one takes, in seconds.

    Of those that break before they are carried out, the share ``late`` is carried out 1 to 9 s later.
    """

    before: float = 0.0
    late: float = 0.0
    after: float = 0.0
    lost_bell: float = 0.0
    takes_s: float = 0.002


@dataclass
class Database:
    """Tables, and who is connected. ``checks`` are the rules that a mutant takes away."""

    rng: random.Random
    faults: Faults = field(default_factory=Faults)
    checks: frozenset[str] = CHECKS
    up: bool = True
    cut_off: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.threads: dict[str, ThreadRow] = {}
        self.messages: dict[str, MessageRow] = {}
        self.aliases: dict[str, str] = {}
        self.mail: dict[int, tuple[str, str]] = {}
        self.contexts: dict[tuple[str, int], dict[int, str]] = {}
        self.workers: dict[int, datetime] = {}
        self.pending: dict[int, int | None] = {}
        self.tags: dict[int, str] = {}
        self.missing: dict[int, datetime] = {}
        self.roles: dict[str, int] = {}
        self.locks: dict[int, Connection] = {}
        self.connections: list[Connection] = []
        self.late: list[tuple[datetime, Connection, str, Sequence[Any]]] = []
        self._seq, self._number, self._mail = count(1), count(1), count(1)
        self._statements: dict[str, Callable[..., list[tuple[Any, ...]]]] = {
            journal.RECEIVE: self.receive,
            journal.APPLY: self.apply,
            journal.KNOWN: lambda key, _: [(key in self.messages or key in self.aliases,)],
            journal.OUTCOME: self.outcome_of,
            journal.UNSEEN: self.unseen,
            journal.ENDED: self.ended,
            journal.MAIL: self.send_mail,
            journal.STOP: self.stop,
            journal.DELIVERED: lambda threads: sorted(
                ((n, t, event) for n, (t, event) in self.mail.items() if t in threads),
                key=lambda r: (r[1], r[0]),
            ),
            journal.DELETE_MAIL: self.open_letter,
            journal.NOTIFY: lambda channels, threads: [
                self.ring(*bell) for bell in zip(channels, threads, strict=True)
            ],
            session.END_FORMER: self.end_former,
            worker.NOTIFY_ALL: lambda channel: [self.ring(channel, "")],
            worker.NUMBER: lambda: [(next(self._number),)],
            worker.ENTER: self.enter,
            worker.BEAT: self.beat,
            worker.LEAVE: self.leave,
            worker.FREE: self.free,
            worker.LOOK: self.look,
            worker.CLAIM: self.claim,
            worker.RELEASE: self.release,
            worker.TAKE_ROLE: self.take_role,
            context.LOAD: self.load,
            context.NEXT: self.next_generation,
            journal.PENDING: lambda *_: [(0, 0)],
            **dict.fromkeys(store.CHORES, list),
            store.BEGUN: self.begun,
            workspaces.NOT_SERVED: lambda _: [],
        }

    # the server

    def run(self, statement: str, parameters: Sequence[Any], connection: Connection) -> list[tuple[Any, ...]]:
        due = [one for one in self.late if one[0] <= clock()]
        self.late = [one for one in self.late if one not in due]
        for _, sender, late, values in due:
            self._carry_out(late, values, sender)
        return self._carry_out(statement, parameters, connection)

    def _carry_out(
        self, statement: str, parameters: Sequence[Any], connection: Connection
    ) -> list[tuple[Any, ...]]:
        if statement == worker.LOCK:
            return [(self.locks.setdefault(parameters[1], connection) is connection, "1")]
        if statement.startswith("LISTEN "):
            connection.channels.update(one.removeprefix("LISTEN ") for one in statement.split("; "))
            return []
        return self._statements[statement](*parameters)

    async def connect(self, conninfo: str, **_: object) -> Connection:
        address = conninfo_to_dict(conninfo)
        place = str(address["host"])
        await anyio.sleep(self.faults.takes_s)
        if not self.up or place in self.cut_off:
            raise psycopg.OperationalError("no server there")
        connection = Connection(self, place, str(address["application_name"]), clock())
        self.connections.append(connection)
        return connection

    def crash(self) -> None:
        """Be gone, with all that was under way."""
        self.up = False
        self.late.clear()
        self.kill()

    def kill(self, place: str | None = None) -> None:
        """Break all connections, or those of one place."""
        for connection in [one for one in self.connections if place in (None, one.place)]:
            connection.end()

    def ring(self, channel: str, payload: str) -> tuple[None]:
        for connection in self.connections:
            if channel in connection.channels and self.rng.random() >= self.faults.lost_bell:
                connection.bells.append(payload)
                connection.rung.set()
        return (None,)

    # the functions and statements

    def end_former(self, names):
        if "former" in self.checks:
            self.late = [one for one in self.late if one[1].name not in names]
        return []

    def outcome_of(self, alias, key):
        row = self.messages.get(self.aliases.get(alias, key))
        return [(row.outcome,)] if row else []

    def receive(self, me, keys, threads, aliases, bodies, *_):
        for name in sorted(set(threads)):
            thread = self.threads.setdefault(name, ThreadRow())
            if thread.owner is None and me is not None:
                thread.owner, thread.epoch = me, thread.epoch + 1
        before, known = set(self.messages), set(self.aliases)
        rows = []
        for key, name, alias, body in zip(keys, threads, aliases, bodies, strict=True):
            new = not known & {key, alias} and alias not in before and key not in self.messages
            if new:
                unowned = self.threads[name].owner is None
                self.messages[key] = MessageRow(
                    next(self._seq), key, name, {"received": body}, unowned=unowned
                )
                if alias is not None:
                    self.aliases[alias] = key
            thread, row = self.threads[name], self.messages.get(key) if new else None
            earlier = [m.seq for m in self.messages.values() if row and m.thread == name and m.seq < row.seq]
            found = (row.seq, max(earlier, default=None), False, row.unowned) if row else (None,) * 4
            rows.append((key, new, name, thread.owner, thread.epoch, *found))
        return rows

    def apply(
        self,
        me,
        threads,
        epochs,
        keys,
        receipts,
        starts,
        intents,
        posts,
        endings,
        outcomes,
        saved,
        firsts,
        *lines,
    ):
        owned = [name for name, epoch in zip(threads, epochs, strict=True) if self._owns(me, name, epoch)]
        for key, *columns, outcome in zip(
            keys, receipts, starts, intents, posts, endings, outcomes, strict=True
        ):
            row = self.messages[key]
            if row.outcome is None and row.thread in owned:
                row.lines |= {place: line for place, line in zip(PLACES, columns, strict=True) if line}
                row.outcome = outcome
        for name, first in zip(saved, firsts, strict=True):
            if name in owned:
                self.threads[name].changed_at = clock()
                old = self._context(name)
                for n in [n for n in old if n >= first]:
                    del old[n]
        for name, n, line in zip(*lines, strict=True):
            if name in owned:
                assert n not in self._context(name), "a line of a conversation is stored twice"
                self._context(name)[n] = line
        return [(name,) for name in owned]

    def unseen(self, threads, seqs):
        after = dict(zip(threads, seqs, strict=True))
        rows = (
            m for m in self.messages.values() if m.outcome is None and m.seq > after.get(m.thread, 1 << 60)
        )
        return [m.row for m in sorted(rows, key=lambda m: m.seq)]

    def ended(self, threads):
        return [m.row for m in self.messages.values() if m.outcome is not None and m.thread in threads]

    def begun(self, name, before):
        rows = [m for m in self.messages.values() if m.thread == name]
        if before:
            rows = [m for m in rows if json.loads(m.lines["received"] or "{}").get("sent_at", "") <= before]
        waits_or_began = any(m.outcome is None or m.lines.get("started") for m in rows)
        return [(waits_or_began or (not before and any(t == name for t, _ in self.contexts)),)]

    def send_mail(self, body, key):
        row = self.messages.get(key)
        if row is None or row.outcome is not None:
            return []
        self.mail[next(self._mail)] = row.thread, body
        return [(self.threads[row.thread].owner,)]

    def open_letter(self, n):
        self.mail.pop(n, None)
        return []

    def leave(self, me):
        self.workers.pop(me, None)
        return []

    def stop(self, seq, prefix, me, body):
        found: dict[str, list[MessageRow]] = {}
        for m in self.messages.values():
            is_there = m.outcome is None and m.seq < seq and m.thread.startswith(prefix)
            if is_there and self.threads[m.thread].owner != me:
                found.setdefault(m.thread, []).append(m)
        for name in found:
            self.mail[next(self._mail)] = name, body
        begun = {name: sum(bool(m.lines.get("started")) for m in some) for name, some in found.items()}
        return [
            (name, self.threads[name].owner, min(begun[name], 1), len(found[name]) - begun[name])
            for name in found
        ]

    def enter(self, me, lease_s, _, __, tag):
        self.tags[me], others = tag, len(self.workers)
        self.workers[me] = clock() + timedelta(seconds=lease_s)
        return [(clock(), others)]

    def beat(self, lease_s, pending, me):
        if me not in self.workers:
            return []
        self.workers[me], self.pending[me] = clock() + timedelta(seconds=lease_s), pending
        self.missing.pop(me, None)
        others = [self.pending.get(other, 0) for other in self.workers if other != me]
        others = [pending for pending in others if pending is not None]
        return [(clock(), len(self.workers), sum(others) / len(others) if others else None)]

    def free(self, me):
        for thread in self.threads.values():
            if thread.owner == me:
                thread.owner = None
        return []

    def reap(self, me, lease_s, grace_s):
        mine = self.locks.get(me)
        if mine is None or mine.began > clock() - timedelta(seconds=lease_s):
            return []
        tags = {connection.name.split()[1] for connection in self.connections}
        missing = [other for other in self.workers if other != me and self.tags[other] not in tags]
        since = {other: self.missing.setdefault(other, clock()) for other in missing}
        seen_before = clock() - timedelta(seconds=grace_s)
        dead = [
            other
            for other, until in self.workers.items()
            if other != me and (until < clock() or since.get(other, clock()) < seen_before)
        ]
        for other in dead:
            del self.workers[other]
        for thread in self.threads.values():
            if thread.owner not in self.workers:
                thread.owner = None
        return [
            *((f"worker {other}", True) for other in dead),
            *((f"worker {other}", False) for other in missing if other in self.workers),
        ]

    def claim(self, me, transports, room):
        owed = {m.thread for m in self.messages.values() if m.outcome is None}
        free = sorted(
            name for name in owed if self.threads[name].owner is None and name.partition(":")[0] in transports
        )
        for name in free[:room]:
            self.threads[name].owner, self.threads[name].epoch = me, self.threads[name].epoch + 1
        return [(name, self.threads[name].epoch) for name in free[:room]]

    def look(self, me, lease_s, grace_s, transports):
        gone = [
            ("gone" if is_gone else "missing", name, None, None)
            for name, is_gone in self.reap(me, lease_s, grace_s)
        ]
        last = {m.thread: m.seq for m in self.messages.values() if m.outcome is None}
        owed = [("owed", name, self.threads[name].epoch, seq) for name, seq in last.items()]
        mail = [
            ("mail", name, self.threads[name].epoch, None)
            for name in {name for name, _ in self.mail.values()}
        ]
        free = any(self.threads[name].owner is None and name.partition(":")[0] in transports for name in last)
        own = [row for row in owed + mail if self.threads[row[1]].owner == me]
        return [*gone, *own, *([("free", "", None, None)] if free else [])]

    def release(self, me, threads):
        busy = {m.thread for m in self.messages.values() if m.outcome is None}
        freed = [name for name in threads if self.threads[name].owner == me and name not in busy]
        for name in freed:
            self.threads[name].owner = None
        return [(name,) for name in freed]

    def take_role(self, me, name):
        if me in self.workers and self.roles.get(name) not in self.workers:
            self.roles[name] = me
        return [(self.roles.get(name) == me,)]

    def load(self, name):
        archived = name in self.threads and self.threads[name].generation > 0
        return [(archived, line) for _, line in sorted(self._context(name).items()) or [(0, None)]]

    def next_generation(self, me, name, epoch, copied):
        if not self._owns(me, name, epoch):
            return [(False,)]
        old = self._context(name)
        self.threads[name].generation += 1
        self._context(name).update(old if copied else {})
        return [(True,)]

    def _owns(self, me: int, name: str, epoch: int) -> bool:
        thread = self.threads[name]
        return "epoch" not in self.checks or (thread.owner == me and thread.epoch == epoch)

    def _context(self, name: str) -> dict[int, str]:
        return self.contexts.setdefault((name, self.threads.setdefault(name, ThreadRow()).generation), {})


@dataclass(eq=False)
class Connection:
    """Stands where psycopg's would be."""

    database: Database
    place: str
    name: str
    began: datetime
    closed: bool = False
    adapters: AdaptersMap = field(default_factory=partial(AdaptersMap, psycopg.adapters), repr=False)
    fileno: Callable[[], int] = field(default=lambda: SILENT, repr=False)
    channels: set[str] = field(default_factory=set)
    bells: list[str] = field(default_factory=list)
    rung: anyio.Event = field(default_factory=anyio.Event)

    async def execute(self, statement: bytes | str, parameters: Sequence[Any] = (), **_: object) -> Cursor:
        text = statement if isinstance(statement, str) else statement.decode()
        database, fate = self.database, self.database.rng.random()
        faults = database.faults
        await anyio.sleep(database.rng.uniform(0, faults.takes_s))
        while self.place in database.cut_off and not self.closed:
            await anyio.sleep(0.1)
        self._check()
        if fate < faults.before:
            self.end()
            if database.rng.random() < faults.late:
                due = clock() + timedelta(seconds=database.rng.uniform(1, 9))
                database.late.append((due, self, text, parameters))
        self._check()
        rows = database.run(text, parameters, self)
        if fate > 1 - faults.after:
            self.end()
        await anyio.sleep(database.rng.uniform(0, faults.takes_s))
        self._check()
        return Cursor(rows)

    async def notifies(self, timeout: float) -> AsyncIterator[Bell]:
        end = anyio.current_time() + timeout
        while (left := end - anyio.current_time()) > 0:
            self._check()
            while self.bells:
                yield Bell(self.bells.pop(0))
            with anyio.move_on_after(left):
                await self.rung.wait()
            self.rung = anyio.Event()
        self._check()

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        """Break; the server gives up its lock."""
        self.closed = True
        self.rung.set()
        database = self.database
        if self in database.connections:
            database.connections.remove(self)
        for number in [number for number, holder in database.locks.items() if holder is self]:
            del database.locks[number]

    def _check(self) -> None:
        if self.closed:
            raise psycopg.OperationalError("the connection is broken")


@dataclass(frozen=True, slots=True)
class Bell:
    payload: str
    channel: str = "worker"


@dataclass(frozen=True, slots=True)
class Cursor:
    rows: list[tuple[Any, ...]]
    pgresult: ClassVar = SimpleNamespace(nfields=1)

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows

    async def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None
