"""What a thread shows of secrets, and what files that come in do to what may be done: in Slack and in Discord."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import anyio
import pytest

from bot.guards.redaction import Masker
from bot.ports.model import Completion, Usage
from bot.ports.tool import Arguments, ToolOutput
from bot.tools.files.attach import Attach
from tests.bot.documents.hostile_files import pdf, png
from tests.run_tool import RunArguments
from tests.transports.approving import SECRET, Scene
from tests.transports.chats import chat_of
from tests.transports.settling import until_settled
from tests.world import Scripted, calls, says
from threads.model import Image, TextDelta, ThinkingDelta
from threads.store.image_header import LONG_SIDE, read_header

pytestmark = pytest.mark.anyio

ONCE = "Allow once"


@pytest.fixture(params=["slack", "discord"])
async def scene(request, tmp_path):
    async with chat_of(request.param) as chat:
        yield Scene(chat, tmp_path / "data")


class Streams(Scripted):
    """Says its answers a few letters at a time, slowly enough to be seen growing."""

    async def complete(self, request, on_event):
        self.requests.append(request)
        answer = self.script.popleft()
        await on_event(ThinkingDelta(f"the key is {SECRET}"))
        for at in range(0, len(answer.text), 3):
            await on_event(TextDelta(answer.text[at : at + 3]))
            await anyio.sleep(0.03)
        return Completion(answer, Usage(10, 5), "tool_calls" if answer.calls else "end")


class Leaks:
    """A tool whose result and whose error hold a secret."""

    name: ClassVar[str] = "leaks"
    description: ClassVar[str] = "Leak."
    risk: ClassVar[str] = "read"
    arguments: ClassVar[type[Arguments]] = RunArguments

    async def __call__(self, arguments, context):
        path = context.workspace / f"{SECRET}.txt"
        await anyio.to_thread.run_sync(partial(path.parent.mkdir, parents=True, exist_ok=True))
        await anyio.to_thread.run_sync(path.write_text, "nothing")
        return f"it is {SECRET}"


async def test_a_secret_is_in_no_question_card_status_draft_answer_or_file(scene):
    chat = scene.chat
    scene.tools += [Leaks(), Attach(anyio.to_thread.run_sync, Masker([SECRET]))]
    long = "x " * 1_000
    grows = f"I looked. The key {SECRET} is what they use, and it goes on for a while. " + "word " * 60
    model = Streams(
        calls("leaks", command=f"show {SECRET}"),
        calls("shell", id="c2", command=f"curl -u {SECRET} {long}"),
        calls("attach", id="c3", path=f"{SECRET}.txt"),
        says(grows),
    )
    async with scene.life(model=model):
        thread = await chat.ask()
        asked = await scene.question(thread)
        assert "[masked]" in asked.text
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "goes on for a while")
        await until_settled(scene.data, thread)
    assert SECRET not in chat.ever_shown()
    assert not any(
        SECRET in name or SECRET.encode() in content for name, content in chat.files(thread).items()
    )
    assert scene.run.ran == [f"curl -u {SECRET} {long}"]
    told = model.requests[1].messages[-1].results[0].content
    assert "it is [masked]" in told


async def test_a_secret_that_comes_in_pieces_is_in_no_draft_of_a_direct_message(scene):
    chat = scene.chat
    grows = "word " * 40 + f"\n\nThe key {SECRET} is what they use. " + "word " * 80
    async with scene.life(model=Streams(says(grows))):
        thread = await chat.ask_alone()
        await until_settled(scene.data, thread)
    shown = chat.ever_shown()
    assert "[masked]" in shown
    assert SECRET not in shown
    assert SECRET[:12] not in shown


class Shot:
    """Brings in a picture, after a person has allowed it."""

    name: ClassVar[str] = "shot"
    description: ClassVar[str] = "Take a picture."
    risk: ClassVar[str] = "exec"
    arguments: ClassVar[type[Arguments]] = RunArguments

    async def __call__(self, arguments, context):
        path = context.workspace / "shot.png"
        await anyio.to_thread.run_sync(partial(path.parent.mkdir, parents=True, exist_ok=True))
        await anyio.to_thread.run_sync(path.write_bytes, png((64, 48)))
        return ToolOutput("a picture", origin="web page", images=(Image("shot.png", "image/png"),))


def pictures(request):
    return [block for message in request.messages for block in message.blocks if isinstance(block, Image)]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_picture_that_a_tool_brings_reaches_the_model(scene, restarted):
    chat = scene.chat
    scene.tools.append(Shot())
    script = [calls("shot", command="page"), says("I see it")]
    async with scene.life(*script) as model:
        thread = await chat.ask()
        asked = await scene.question(thread)
        if not restarted:
            await chat.press(asked, asked.buttons[ONCE])
            await scene.answered(thread, "I see it")
    if restarted:
        async with scene.life(says("I see it")) as model:
            await chat.press(asked, asked.buttons[ONCE])
            await scene.answered(thread, "I see it")
    [seen] = pictures(model.requests[-1])
    assert read_header(seen.data).media_type == "image/png"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (("report.pdf", pdf("The figure is plum."), "application/pdf"), "The figure is plum."),
        (("notes.txt", b"The word is plum.", "text/plain"), "The word is plum."),
        (("photo.png", png((3000, 2000)), "image/png"), None),
    ],
)
async def test_a_file_reaches_the_model_and_a_write_after_it_is_asked_about(scene, file, expected):
    chat = scene.chat
    write = calls("write_file", path="out.txt", content="hello")
    async with scene.life(write, says("it is done"), rules={"write_file": "allow"}) as model:
        thread = await chat.ask("look at this", files=[file])
        asked = await scene.question(thread)
        assert "outside" in asked.text
        assert not list(scene.data.rglob("out.txt"))
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "it is done")
    first = model.requests[0]
    if expected:
        assert expected in first.messages[0].text
    else:
        [seen] = pictures(first)
        size = read_header(seen.data)
        assert max(size.width, size.height) <= LONG_SIDE
    [out] = scene.data.rglob("out.txt")
    assert out.read_text() == "hello"


async def test_without_a_file_the_same_write_needs_nobody(scene):
    chat = scene.chat
    write = calls("write_file", path="out.txt", content="hello")
    async with scene.life(write, says("it is done"), rules={"write_file": "allow"}):
        thread = await chat.ask("look at this")
        await scene.answered(thread, "it is done")
    assert not chat.questions(thread)
    assert list(scene.data.rglob("out.txt"))
