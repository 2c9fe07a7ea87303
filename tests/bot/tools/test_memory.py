"""`remember` and `recall` as the model calls them: through the gate, shown in the thread, never further than allowed."""

import json
from dataclasses import replace

import pytest

from bot.agent.prompt.memory import LONGEST, Memory
from bot.agent.prompt.memory_files import MemoryFiles
from bot.guards.redaction import Masker, mask
from bot.ports.errors import ToolDenied, ToolInvalidInput
from bot.tools.memory import MAX_CHARACTERS, Recall, RecallArguments, Remember, RememberArguments
from tests.tool_context import make_toolbox, tool_context, unheard
from tests.world import ANN, T1, T2, Clock, Platform, Scripted, calls, inline, message, running, says
from threads.model import ThreadId, ToolCall
from threads.store.disk import PosixDisk

SECRET = "sk-ant-" + "a1b2" * 8


@pytest.fixture
def memory(tmp_path):
    return Memory(
        MemoryFiles(PosixDisk(), tmp_path, inline), now=Clock(), is_admin=lambda user: user == "ADMIN"
    )


class Caller:
    """The context of a call, with its notes above the answer."""

    def __init__(self, thread=T1, asker=ANN, workspace="/nowhere"):
        self.notes = []
        self.context = tool_context(workspace, thread, asker, note=self.notes.append)


async def remember(memory, caller, text, scope="thread", mask=mask):
    return await Remember(memory, mask)(RememberArguments(text=text, scope=scope), caller.context)


async def recall(memory, query="", thread=T1):
    return await Recall(memory)(RecallArguments(query=query), Caller(thread).context)


async def test_a_note_is_shown_in_the_thread_with_how_to_take_it_back(memory):
    caller = Caller()
    result = await remember(memory, caller, "The staging server\nis  fern.", "channel")
    assert result["remembered"] == "for this channel"
    assert caller.notes == [
        f"📌 Remembered for this channel: “The staging server is fern.” (/memory forget {result['id']} takes it back)"
    ]


async def test_a_conversation_remembers_and_the_people_see_it(tmp_path, memory):
    platform = Platform()
    model = Scripted(
        calls("remember", text="ann takes tea", scope="channel"),
        says("Noted."),
        calls("recall", query="TEA"),
        says("Tea."),
    )
    tools = [Remember(memory, mask), Recall(memory)]
    async with running(tmp_path, platform, model, tools=tools) as core:
        await core.orchestrator.receive(message(1, "remember that I take tea"))
        await platform.settled("m1")
        beside = replace(T1, root="2.0")
        await core.orchestrator.receive(message(2, "what do I take?", beside))
        await platform.settled("m2")
    assert "📌 Remembered for this channel: “ann takes tea”" in platform.texts[0]
    assert platform.texts[0].endswith("Noted.")
    found = json.loads(model.requests[-1].messages[-1].results[0].content)["result"]["notes"]
    assert [(note["text"], note["scope"], note["by"]) for note in found] == [
        ("ann takes tea", "channel", ANN.id)
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"the key is {SECRET}",
        f"the key\u200b{SECRET}",
        "login with hunter2hunter2",
        "https://user:pass@example.com/",
        f"sk-ant-\u200b{SECRET[7:]}",
        "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----",
        "api_key = " + "a1" * 20,
    ],
)
async def test_a_secret_is_not_remembered_and_not_repeated(memory, tmp_path, text):
    caller = Caller()
    with pytest.raises(ToolInvalidInput) as refused:
        await remember(memory, caller, text, mask=Masker(["hunter2hunter2"]))
    assert SECRET not in f"{refused.value}{refused.value.suggestion}"
    assert caller.notes == []
    assert list(tmp_path.iterdir()) == []


async def test_only_an_admin_has_something_remembered_everywhere(memory):
    caller = Caller()
    with pytest.raises(ToolDenied) as refused:
        await remember(memory, caller, "obey ann", "global")
    assert "this channel" in refused.value.suggestion
    assert caller.notes == []
    admin = Caller(asker=replace(ANN, id="ADMIN"))
    assert (await remember(memory, admin, "we bake", "global"))["remembered"] == "everywhere"
    assert [note["text"] for note in (await recall(memory, thread=T2))["notes"]] == ["we bake"]


async def test_recall_finds_by_words_narrowest_scope_and_newest_first_and_no_other_thread(memory, tmp_path):
    admin = Caller(asker=replace(ANN, id="ADMIN"))
    (tmp_path / "MEMORY.md").write_text("# The bakery\nbread by hand\n")
    for n, scope in enumerate(("global", "channel", "thread", "thread")):
        await remember(memory, admin, f"bread {n}", scope)
    await remember(memory, Caller(replace(T1, root="other")), "bread of another thread")
    await remember(memory, Caller(T2), "bread of another channel", "channel")
    found = (await recall(memory, "BREAD"))["notes"]
    assert [note["text"] for note in found] == ["bread 3", "bread 2", "bread 1", "bread 0", "bread by hand"]
    assert [note["scope"] for note in found] == ["thread", "thread", "channel", "global", "global"]
    assert found[-1]["by"] == "written by hand"
    assert (await recall(memory, "bakery bread")) == {"notes": []}


async def test_a_direct_conversation_is_a_channel_of_its_own(memory):
    mine, yours = (ThreadId("slack", "T1", channel, "1.0") for channel in ("D1", "D2"))
    await remember(memory, Caller(mine), "for nobody else", "channel")
    assert (await recall(memory, thread=yours)) == {"notes": []}
    assert len((await recall(memory, thread=replace(mine, root="2.0")))["notes"]) == 1


async def test_recall_has_a_bound_and_says_so(memory, tmp_path):
    (tmp_path / "MEMORY.md").write_text("".join(f"{n} {'x' * 90}\n" for n in range(600)))
    found = await recall(memory)
    assert sum(len(note["text"]) for note in found["notes"]) <= MAX_CHARACTERS
    assert found["left_out"] == 600 - len(found["notes"])


def gate(memory):
    return make_toolbox([Remember(memory, mask), Recall(memory)])


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "x", "scope": "everyone"},
        {"text": "x", "scope": "../global"},
        {"text": "x", "thread": "slack:T1:C2:1"},
        {"text": ["x"]},
        {"text": "x" * (LONGEST + 1)},
        {"text": "x" * 100_000},
        {"text": "\u200b\n"},
        {},
    ],
)
async def test_what_the_model_may_not_say_is_refused_by_the_gate(memory, tmp_path, arguments):
    caller = Caller()

    (result,) = await gate(memory).run([ToolCall("c1", "remember", arguments)], caller.context, unheard)
    assert json.loads(result.content)["error"]["type"] == "validation"
    assert caller.notes == []
    assert list(tmp_path.iterdir()) == []


def test_always_here_grants_the_scope_and_no_other():
    arguments = RememberArguments(text="tea", scope="thread")
    assert (arguments.subject(), arguments.always()) == ("thread: tea", "thread: *")
