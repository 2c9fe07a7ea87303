"""Playbooks in a simulated life: the real wiring over the real model layer, and two playbooks that use all of it.

Whenever a stage acts, it must be the one that is on the platter. So a border that was passed is never gone back over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

from anyio.abc import TaskGroup
from pydantic import JsonValue

from bot.agent.prompt.compaction import INSTRUCTION
from bot.config.scopes import CurrentSettings
from bot.config.settings import Tools
from bot.extensions.playbooks.definition import Playbook
from bot.extensions.playbooks.folder import Entry
from bot.extensions.playbooks.parsing import parse_playbook
from bot.extensions.playbooks.plays import open_plays
from bot.host.storage import Resources
from bot.ports.model import Request
from bot.ports.tool import Arguments, Tool, ToolContext
from bot.routing.access import AccessControl
from bot.routing.commands import ExtensionCommand, command_of
from bot.schedules.scheduler import Scheduler
from bot.schedules.store import Schedules, SchedulesFile
from bot.tools.gate import Toolbox
from bot.wiring.agents import Agents
from bot.wiring.core import Core, Parts
from bot.wiring.model_chain import ModelChain
from tests.tool_context import make_toolbox
from threads.model import Incoming, Message, Outgoing, Sink, ThreadId, Turn
from threads.store.json_file import States

from .disk import SimDisk
from .fate import Fate
from .model import Peek
from .record import PlayCall, Record, Sent

PLAY_COMMANDS = (
    *("/play work",) * 10,
    *("/play later now",) * 6,
    "/play retry",
    "/play retry weigh",
    "/play skip",
    *("/play stop",) * 3,
    "/play status",
)
LEVEL = "{type: object, required: [level], properties: {level: {enum: [high, low]}}}"

WORK = f"""\
    name: work
    description: Work.
    limits: {{usd: 0.4, time_s: 3600}}
    stages:
      - name: look
        act: {{prompt: Look., tools: [peek]}}
        retry: {{attempts: 2}}
        unrecoverable: skip
      - name: weigh
        setup: {{results: [look]}}
        act: {{prompt: Weigh it., usd: 0.1}}
        assert: {{schema: {LEVEL}}}
        retry: {{attempts: 3, backoff_s: 5, from: setup}}
        visits: 3
        next: {{value: {{field: level, cases: {{low: close}}}}, success: ask, failure: mend}}
      - name: ask
        act: {{prompt: Ask., tools: []}}
        assert: {{checks: [{{person: "Is this right?", within_s: 300}}]}}
        visits: 2
        next: {{success: close, on_error: {{declined: mend}}}}
      - name: mend
        act: {{prompt: Mend it., timeout_s: 60}}
        visits: 2
        next: {{success: weigh}}
      - name: close
        act: {{prompt: Close it.}}
        retry: {{later_s: 60, later: 2}}
        unrecoverable: retry-later
    """

LATER = f"""\
    name: later
    description: Comes again.
    limits: {{usd: 0.15}}
    stages:
      - name: first
        act: {{prompt: First., timeout_s: 20, tools: [peek]}}
        unrecoverable: skip
      - name: try
        act: {{prompt: Try.}}
        assert: {{schema: {LEVEL}}}
        retry: {{later_s: 120, later: 2}}
        unrecoverable: retry-later
      - name: last
        act: {{prompt: Last.}}
    """

PLAYBOOKS = {
    name: parse_playbook(f"{name}.yaml", dedent(text)) for name, text in (("work", WORK), ("later", LATER))
}

_VISIT = re.compile(r"(.+)\.([a-z]+)\.(\d+)\.(\d+)")


class Shelf:
    """A `bot.extensions.playbooks.folder.Library` in memory."""

    def read_all(self) -> list[Entry]:
        return [Entry(f"{name}.yaml", playbook) for name, playbook in PLAYBOOKS.items()]

    def find(self, name: str) -> Playbook | str:
        return PLAYBOOKS.get(name, "I know no playbook of that name.")


@dataclass(frozen=True, slots=True)
class SimTools:
    """What playbooks use of a `bot.wiring.tool_set.ToolSet`."""

    tools: Collection[Tool]
    spill: Callable[..., Awaitable[str]]
    memory: None = None

    async def extend(self, _: Incoming, message: Message) -> Message:
        """Add nothing: no extension is open."""
        return message

    def toolbox(self, _: Tools, names: Collection[str] | None = None) -> Toolbox:
        return make_toolbox([tool for tool in self.tools if names is None or tool.name in names])


class SimInstructions:
    async def prompt(self, _: str = "", groups: Collection[str] = ()) -> str:
        return "You are kind."


class WatchedPeek(Peek):
    """A tool whose calls by stages are watched."""

    def __init__(self, fate: Fate, watch: PlayWatch) -> None:
        super().__init__(fate)
        self._watch = watch

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue:
        self._watch.before(context.message_id, context.thread, self._fate.clock(), "a tool")
        return await super().__call__(arguments, context)


class PlayWatch:
    """Looks at the disk whenever a stage calls the model or a tool, and enters what it sees into the record."""

    def __init__(self, disk: SimDisk, data: Path, record: Record) -> None:
        self._disk, self._path, self._record = disk, data / "playbooks.json", record

    def before_call(self, request: Request, incoming: Incoming, at: float) -> str:
        """Return the run and the visit of a stage that a request belongs to, blank if it belongs to none."""
        run = self.runs().get(str(incoming.thread))
        if request.messages[-1] == INSTRUCTION:  # the summary is of what was before the stage
            playing = run is not None and run["message_id"] == incoming.id
            return f"{run['id']} {run['stage']} {run['entries']}" if run and playing else ""
        sources = (one.source for one in reversed(request.messages) if one.role == "user")
        begun = f"{incoming.id}."
        visit = next((s for s in sources if s.startswith(begun) and _VISIT.fullmatch(s)), "")
        return self.before(visit, incoming.thread, at, "the model") if visit else ""

    def before(self, visit: str, thread: ThreadId, at: float, act: str) -> str:
        """Check that the run on the platter is at this visit of a stage, and return the run's id with the visit."""
        found = _VISIT.fullmatch(visit)
        if found is None:
            return ""
        message_id, stage, entry, attempt = found.groups()
        key = f"{thread.transport}:{thread.workspace}:{thread.channel}:{message_id}"
        run = self.runs().get(str(thread))
        on_disk = (
            f"{run['message_id']}.{run['stage']}.{run['entries']}.{run['attempt']}" if run else "nothing"
        )
        if run is None or on_disk != visit:
            self._record.violations.append(f"{key}: {act} for {visit}, and {on_disk} is on disk")
            return ""
        self._record.runs[run["id"]] = run
        call = PlayCall(at, run["id"], key, stage, int(entry), int(attempt), act)
        self._record.plays.append(call)
        return f"{run['id']} {stage} {entry}"

    def runs(self) -> dict[str, Any]:
        """Return the runs that a power cut would leave, by thread."""
        data = self._disk.durable(self._path)
        runs: dict[str, Any] = json.loads(data)["runs"] if data else {}
        return runs


async def with_plays(
    parts: Parts, chain: ModelChain, tools: Collection[Tool], states: States, resources: Resources
) -> tuple[Parts, Schedules]:
    """Return the parts of a core that plays too, and the schedules by which parked runs come back."""
    settings, ledger = chain.terms.settings, chain.terms.accounts.ledger
    returns = Schedules(await states.open("schedules", SchedulesFile()), parts.now)
    current, own = CurrentSettings(settings), SimTools(tools, _spill)
    agents = Agents(current, chain, own, SimInstructions(), parts.store, ledger, lambda tell: tell)
    admin, keep = AccessControl(current).is_admin, parts.store.keep_workspace
    given = {name: getattr(resources, name) for name in ("now", "offload", "work")}
    given |= {
        "states": states,
        "schedules": returns,
        "ledger": ledger,
        "is_admin": admin,
        "keep_workspace": keep,
    }
    host = SimpleNamespace(settings=settings, enabled=frozenset(), **given)
    plays, usual = replace(await open_plays(host), playbooks=Shelf()), parts.run

    async def run(turn: Turn) -> str:
        command = None if turn.known_answer else command_of(turn.incoming)
        is_play = command is not None and command.typed == "play"
        return await (plays.run(turn, agents) if is_play else usual(turn))

    command = ExtensionCommand("/play", "play", "", lambda _: False, plays.command, plays)
    return replace(parts, run=run, extensions={"play": command}, unfinished=plays.unfinished), returns


async def _spill(workspace: Path, name: str, text: str, *, outside: bool) -> str:
    raise AssertionError("no result of a stage here is long")


def start_returns(
    tasks: TaskGroup, core: Core, parts: Parts, returns: Schedules, record: Record, max_age_s: float
) -> None:
    """Start the scheduler. What it sends is entered into the record like what people send."""
    scheduler = Scheduler(
        returns,
        partial(_receive, core.orchestrator.receive, record),
        core.journal.knows,
        lambda _: True,
        lambda: True,
        partial(_post, parts),
        frozenset(parts.outboxes),
        max_age_s,
        only_returns=True,
    )
    tasks.start_soon(scheduler.run, name="schedules")


async def _receive(sink: Sink, record: Record, incoming: Incoming) -> None:
    number = 100_000 + len(record.sent)
    sent = Sent(
        incoming.key, incoming.id, str(incoming.thread), number, incoming.text, author=incoming.author.id
    )
    record.sent.setdefault(incoming.key, sent)
    await sink(incoming)
    record.sent[incoming.key].acknowledged = True


async def _post(parts: Parts, outgoing: Outgoing) -> str:
    return await parts.outboxes[outgoing.thread.transport].post(outgoing)
