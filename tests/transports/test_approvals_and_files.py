"""What a thread shows of secrets, and what files that come in do to what may be done: in Slack and in Discord."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import anyio
import pytest

from bot.extensions.files.attach import Attach
from bot.guards.redaction import Masker
from bot.ports.model import Completion, Usage
from bot.ports.tool import Arguments, ToolOutput
from tests.bot.extensions.documents.hostile_files import pdf, png
from tests.run_tool import RunArguments
from tests.transports.approval_bot import ONCE, SECRET, ApprovalBot
from tests.transports.chats import chat_of
from tests.transports.settling import until_settled
from tests.world import Scripted, calls, says
from threads.model import Image, TextDelta, ThinkingDelta
from threads.store.image_header import LONG_SIDE, read_header


@pytest.fixture(params=["slack", "discord"])
async def bot(request, tmp_path):
    async with chat_of(request.param) as chat:
        yield ApprovalBot(chat, tmp_path / "data")


class SlowStreams(Scripted):
    """Says its answers a few letters at a time, slowly enough to be seen growing."""

    async def complete(self, request, on_event):
        self.requests.append(request)
        answer = self.script.popleft()
        await on_event(ThinkingDelta(f"the key is {SECRET}"))
        for at in range(0, len(answer.text), 3):
            await on_event(TextDelta(answer.text[at : at + 3]))
            await anyio.sleep(0.03)
        return Completion(answer, Usage(10, 5), "tool_calls" if answer.calls else "end")


@dataclass
class FileTool:
    """A tool that puts a file into the workspace."""

    name: str
    risk: str
    path: str
    content: bytes
    result: str | ToolOutput
    description: ClassVar[str] = "Make a file."
    arguments: ClassVar[type[Arguments]] = RunArguments

    async def __call__(self, arguments, context):
        path = anyio.Path(context.workspace / self.path)
        await path.parent.mkdir(parents=True, exist_ok=True)
        await path.write_bytes(self.content)
        return self.result


LEAK = FileTool("leaks", "read", f"{SECRET}.txt", b"nothing", f"it is {SECRET}")
SHOT = FileTool(
    "shot",
    "exec",
    "shot.png",
    png((64, 48)),
    ToolOutput("a picture", origin="web page", images=(Image("shot.png", "image/png"),)),
)


async def test_a_secret_is_in_no_question_card_status_draft_answer_or_file(bot):
    chat = bot.chat
    bot.tools += [LEAK, Attach(anyio.to_thread.run_sync, Masker([SECRET]))]
    long = "x " * 1_000
    grows = f"I looked. The key {SECRET} is what they use, and it goes on for a while. " + "word " * 60
    model = SlowStreams(
        calls("leaks", command=f"show {SECRET}"),
        calls("shell", id="c2", command=f"curl -u {SECRET} {long}"),
        calls("attach", id="c3", path=f"{SECRET}.txt"),
        says(grows),
    )
    async with bot.running(model=model):
        thread, question = await bot.ask()
        assert "[masked]" in question.text
        await bot.press(question, ONCE)
        await bot.answered(thread, "goes on for a while")
        await until_settled(bot.data, thread)
    assert SECRET not in chat.ever_shown()
    assert not any(
        SECRET in name or SECRET.encode() in content for name, content in chat.files(thread).items()
    )
    assert bot.commands == [f"curl -u {SECRET} {long}"]
    assert "it is [masked]" in model.requests[1].messages[-1].results[0].content


async def test_a_secret_that_comes_in_pieces_is_in_no_draft_of_a_direct_message(bot):
    grows = "word " * 40 + f"\n\nThe key {SECRET} is what they use. " + "word " * 80
    async with bot.running(model=SlowStreams(says(grows))):
        await until_settled(bot.data, await bot.chat.ask_alone())
    shown = bot.chat.ever_shown()
    assert "[masked]" in shown
    assert SECRET not in shown
    assert SECRET[:12] not in shown


def pictures(request):
    return [block for message in request.messages for block in message.blocks if isinstance(block, Image)]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_picture_that_a_tool_brings_reaches_the_model(bot, restarted):
    bot.tools.append(SHOT)
    seen = says("I see it")
    async with bot.running(calls("shot", command="page"), seen) as model:
        thread, question = await bot.ask()
        if not restarted:
            await bot.press(question, ONCE)
            await bot.answered(thread, "I see it")
    if restarted:
        async with bot.running(seen) as model:
            await bot.press(question, ONCE)
            await bot.answered(thread, "I see it")
    [picture] = pictures(model.requests[-1])
    assert read_header(picture.data).media_type == "image/png"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (("report.pdf", pdf("The figure is plum."), "application/pdf"), "The figure is plum."),
        (("notes.txt", b"The word is plum.", "text/plain"), "The word is plum."),
        (("photo.png", png((3000, 2000)), "image/png"), None),
        (None, None),
    ],
)
async def test_a_file_reaches_the_model_and_only_a_write_after_it_is_asked_about(bot, file, expected):
    write = calls("write_file", path="out.txt", content="hello")
    async with bot.running(write, says("it is done"), rules={"write_file": "allow"}) as model:
        thread = await bot.chat.ask("look at this", files=[file] if file else [])
        if file:
            question = await bot.question(thread)
            assert "outside" in question.text
            assert not list(bot.data.rglob("out.txt"))
            await bot.press(question, ONCE)
        await bot.answered(thread, "it is done")
    assert len(bot.chat.questions(thread)) == bool(file)
    first = model.requests[0]
    if expected:
        assert expected in first.messages[0].text
    elif file:
        [picture] = pictures(first)
        size = read_header(picture.data)
        assert max(size.width, size.height) <= LONG_SIDE
    [out] = bot.data.rglob("out.txt")
    assert out.read_text() == "hello"
