"""A thread whose tools hang, flood and fill up, among others: these get their answers, and nothing of it is theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import anyio

from bot.agent.prompt.memory import Memory
from bot.agent.prompt.memory_files import MemoryFiles
from bot.extensions.files.write import WriteFile
from bot.ports.model import Completion, Usage
from bot.ports.tool import Arguments
from bot.schedules.store import Schedule, Schedules, SchedulesFile
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from bot.tools.gate import MAX_PARALLEL
from tests.one_model import OneModel
from tests.patience import WITHIN_S
from tests.tool_context import make_toolbox, tool_context
from tests.world import ANN, T1, T2, Clock, Platform, inline, message, running, says, state_file
from threads.actor.questions import Questions
from threads.errors import StoreUnavailable
from threads.model import Answer, Author, Message, Option, Question, ThreadId, ToolCall, TurnLimits
from threads.store.data_folder import thread_folder
from threads.store.disk import PosixDisk

OTHERS = range(20)
CALLS = 200
BAD = ThreadId("fake", "W", "Cbad", "1.0")


class Numbered(Arguments):
    n: int = 0


@dataclass
class Hangs:
    """A tool that never answers, and counts who waits in it."""

    inside: int = 0
    most: int = 0
    full: anyio.Event = field(default_factory=anyio.Event)
    name: ClassVar[str] = "hangs"
    description: ClassVar[str] = "Hangs."
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = Numbered

    async def __call__(self, arguments, context):
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == MAX_PARALLEL:
            self.full.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.inside -= 1


class Floods(Hangs):
    """A tool that returns a megabyte, different in each thread."""

    name = "floods"

    async def __call__(self, arguments, context):
        return f"{context.thread.channel} " * 20_000


class Calling(OneModel):
    """A model that has the bad thread, or every thread, make these calls, and answers all else."""

    def __init__(self, *calls: ToolCall, everywhere: bool = False) -> None:
        self.calls, self.everywhere = calls, everywhere
        self.requests = []

    async def complete(self, request, on_event):
        self.requests.append(request)
        bad = self.everywhere or ThreadId.parse(request.cache_key).channel == "Cbad"
        if bad and not any(message.results for message in request.messages):
            return Completion(Message("assistant", self.calls, model="m"), Usage(1, 1), "tool_calls")
        return Completion(says(f"ok {ThreadId.parse(request.cache_key).channel}"), Usage(1, 1), "end")


def other(n: int):
    return message(f"-{n}", thread=ThreadId("fake", "W", f"C{n}", "1.0"), author=Author(f"U{n}"))


async def answered(bot, platform):
    others = [other(n) for n in OTHERS]
    for event in others:
        await bot.orchestrator.receive(event)
    with anyio.fail_after(WITHIN_S):
        await platform.settled(*(event.id for event in others))
    assert {platform.outcomes[event.id] for event in others} == {"answered"}
    texts = {post.thread.channel: post.text for post in platform.posts if post.kind == "reply"}
    assert all(texts[f"C{n}"].endswith(f"ok C{n}") for n in OTHERS)


async def test_two_hundred_calls_that_hang_hold_eight_places_of_their_own_thread_and_no_other(tmp_path):
    platform, hangs = Platform(), Hangs()
    model = Calling(*(ToolCall(f"c{n}", "hangs", {"n": n}) for n in range(CALLS)))
    async with running(tmp_path, platform, model, tools=[hangs], limits=TurnLimits(running_turns=2)) as bot:
        await bot.orchestrator.receive(message("bad", thread=BAD))
        with anyio.fail_after(WITHIN_S):
            await hangs.full.wait()
        await answered(bot, platform)
        assert (hangs.inside, hangs.most) == (MAX_PARALLEL, MAX_PARALLEL)
        await bot.orchestrator.receive(message("stop", text="/stop", thread=BAD))
        with anyio.fail_after(WITHIN_S):
            await platform.settled("mbad", "mstop")
        assert hangs.inside == 0
    assert platform.outcomes["mbad"] == "stopped"


async def test_what_is_too_long_is_kept_by_each_thread_for_itself_under_one_call_id(tmp_path, platform):
    model = Calling(ToolCall("c1", "floods", {}), everywhere=True)
    async with running(tmp_path, platform, model, tools=[Floods()]) as bot:
        await answered(bot, platform)
    for n in OTHERS:
        kept = thread_folder(tmp_path, other(n).thread) / "workspace" / "tool-output" / "c1.txt"
        assert set(kept.read_text().split()) == {f"C{n}"}
    for request in model.requests:
        channel = ThreadId.parse(request.cache_key).channel
        results = [json.loads(result.content) for entry in request.messages for result in entry.results]
        assert all(result["result"]["head"].startswith(f"{channel} ") for result in results)


async def test_a_full_workspace_is_full_for_its_own_thread_only(tmp_path):
    writer = Writer(PosixDisk(), inline, Quota(1_000, 100))
    toolbox = make_toolbox([WriteFile(writer)])
    written = []
    for thread in (T1, T1, T2):
        context = tool_context(thread_folder(tmp_path, thread) / "workspace", thread)
        path = f"{len(written)}.txt"
        call = ToolCall("c1", "write_file", {"path": path, "content": "x" * 800})

        async def unheard(_):
            """Nobody listens."""

        written += await toolbox.run([call], context, unheard)
    assert [result.is_error for result in written] == [False, True, False]


async def test_questions_with_one_id_in_two_threads_are_two_questions():
    questions = Questions()
    question = Question("May I?", (Option("Yes", approve=True),), lambda _: True)
    async with anyio.create_task_group() as tasks:
        with (
            questions.open(T1, "q00000000", question) as one,
            questions.open(T2, "q00000000", question) as two,
        ):
            tasks.start_soon(questions.decide, T1, "q00000000", Answer(approved=True, by="U1"))
            assert await one.wait() == Answer(approved=True, by="U1")
            assert two.answer is None
            tasks.start_soon(questions.decide, T2, "", Answer(approved=False, by="U2"))
            assert await two.wait() == Answer(approved=False, by="U2")


async def test_what_one_thread_was_told_to_remember_no_other_reads(tmp_path):
    memory = Memory(MemoryFiles(PosixDisk(), tmp_path, inline), now=Clock(), is_admin=lambda _: False)
    note = await memory.add(T1, "thread", "the plan of T1", "U1")
    assert "the plan of T1" in await memory.read(T1)
    assert "the plan" not in await memory.read(T2)
    assert "the plan" not in await memory.describe(T2)
    await memory.forget(T2, note.id, "U2")
    assert "the plan of T1" in await memory.read(T1)


async def test_a_schedule_is_seen_and_cancelled_in_its_own_thread_only(tmp_path):
    clock = Clock()
    schedules = Schedules(state_file(tmp_path / "schedules.json", SchedulesFile()), clock)
    made = await schedules.add(Schedule(thread=str(T1), author=ANN, text="of T1", next_at=clock()))
    assert schedules.in_thread(T2) == []
    assert await schedules.cancel(T2, made.id) is None
    assert schedules.in_thread(T1) == [made]


async def test_a_disk_that_refuses_one_thread_is_told_there(tmp_path):
    async def refuses(name, text, *, outside):
        raise StoreUnavailable("full")

    async def unheard(_):
        """Nobody listens."""

    toolbox = make_toolbox([Floods()])
    context = tool_context(tmp_path, T1, spill=refuses)
    [result] = await toolbox.run([ToolCall("c1", "floods", {})], context, unheard)
    told = json.loads(result.content)["result"]
    assert told["head"].startswith("C1 ")
    assert "could not be saved" in told["next"]
