"""One bot that needs permissions, in a loopback Slack or Discord, seen as the people there see it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from bot.documents.reader import Documents
from bot.guards.policy import Policy
from bot.guards.redaction import Masker
from bot.guards.stream_redaction import StreamMasker, boundary_finder
from bot.observe.audit import Audit
from bot.tools.approvals import Approvals
from bot.tools.files.quota import Quota
from bot.tools.files.read import ListFiles, ReadFile
from bot.tools.files.write import WriteFile, Writer
from bot.wiring.app import utc_now
from bot.wiring.core import open_core
from tests.fakes.discord import BOT, CHANNEL, U1, U2, U3, FakeDiscord
from tests.fakes.slack import FakeSlack
from tests.run_tool import Run
from tests.tool_context import make_toolbox
from tests.transports.bot import PROXIES
from tests.transports.discord.bot import transport as discord_transport
from tests.transports.settling import outcomes
from tests.transports.slack.bot import transport as slack_transport
from tests.world import Scripted, core_parts
from threads.store.disk import PosixDisk

SECRET = "canary-Zk4v9Qx7Lw2"
ASKS = "May I use"


@dataclass(frozen=True)
class Question:
    """A question as it is shown now: its words, and its buttons by what they say."""

    id: str
    text: str
    buttons: dict[str, str]


class InSlack:
    name, ann, bob, admin = "slack", "U1", "U2", "U3"

    def __init__(self, fake):
        self.fake = fake

    def edge(self, data):
        return slack_transport(self.fake, data)

    async def ask(self, text="please", user="U1", files=()):
        """Begin a thread, and return it."""
        held = [self.fake.file(name, content, kind) for name, content, kind in files]
        said = await self.fake.say(user, "C1", f"<@UBOT> {text}", files=held)
        return said.ts

    async def ask_alone(self, text="please"):
        """Begin a conversation in a direct message, where text is shown while it grows."""
        return (await self.fake.say("U1", "D1", text)).ts

    async def say(self, thread, text, user="U1"):
        await self.fake.say(user, "C1", text, thread_ts=thread)

    def _posts(self, thread):
        return [post for post in self.fake.thread("C1", thread) if post.ours]

    def texts(self, thread):
        return [_slack_text(post) for post in self._posts(thread)]

    def questions(self, thread):
        return [
            Question(post.ts, text, dict(_slack_buttons(post)))
            for post in self._posts(thread)
            if ASKS in (text := _slack_text(post))
        ]

    def files(self, thread):
        return {file.name: file.content for post in self._posts(thread) for file in post.files}

    async def press(self, question, value, user="U1", *, stale=False):
        shown = self.fake.message(question.id)
        actions = {value: action for _, value, action in _slack_elements(shown)}
        await self.fake.press(user, question.id, actions.get(value, "choice:0"), value, stale=stale)

    def alone(self, user):
        """Return what only this person was told."""
        return [post.text for post in self.fake.ephemerals if post.user == user]

    async def slash(self, thread, name, words="", user="U1"):
        await self.fake.command(user, "C1", "/threadfast", f"{name} {words}".strip())

    async def edit(self, thread, text):
        await self.fake.edit(thread, f"<@UBOT> {text}")

    async def delete(self, thread):
        await self.fake.delete(thread)

    def ever_shown(self):
        """Return all that the bot ever showed anybody: posts and their former texts, status lines, cards, names."""
        return json.dumps([(call.method, repr(call.args)) for call in self.fake.calls])


def _slack_elements(post):
    for block in post.blocks or []:
        if block["type"] == "actions":
            for element in block["elements"]:
                yield element["text"]["text"], element["value"], element["action_id"]


def _slack_buttons(post):
    return ((label, value) for label, value, _ in _slack_elements(post))


def _slack_text(post):
    words = [post.text]
    for block in post.blocks or []:
        words += [block["text"]] if block["type"] == "markdown" else []
        words += [element["text"] for element in block.get("elements", ()) if block["type"] == "context"]
    return "\n".join(words)


class InDiscord:
    name, ann, bob, admin = "discord", U1, U2, U3

    def __init__(self, fake):
        self.fake, self.pressed = fake, []

    def edge(self, data):
        return discord_transport(self.fake, data)

    async def ask(self, text="please", user=U1, files=()):
        return (await self.fake.say(user, CHANNEL, f"<@{BOT}> {text}", files=files)).id

    async def ask_alone(self, text="please"):
        return (await self.fake.say(U1, self.fake.dm(U1), text)).id

    async def say(self, thread, text, user=U1):
        await self.fake.say(user, thread, text)

    def _posts(self, thread):
        there = self.fake.messages(thread) if thread in self.fake.channels else ()
        return [post for post in there if post.ours]

    def texts(self, thread):
        return [post.content for post in self._posts(thread)]

    def questions(self, thread):
        """Return the questions; one in two messages has its words in the first, its buttons in the last."""
        found, words = [], ""
        for post in self._posts(thread):
            if not post.ephemeral and post.content:
                words = f"{words}\n{post.content}" if ASKS in words else post.content
                if ASKS in words and (post.buttons or _is_decided(post.content)):
                    found.append(Question(post.id, words, dict(post.buttons)))
                    words = ""
        return found

    def files(self, thread):
        return {name: content for post in self._posts(thread) for name, content in post.files.items()}

    async def press(self, question, value, user=U1, *, stale=False):
        pressed = await self.fake.press(user, question.id, value, stale=stale)
        assert pressed.acked
        self.pressed.append((user, pressed))

    def alone(self, user):
        return [text for who, pressed in self.pressed if who == user for text in pressed.contents if text]

    async def slash(self, thread, name, words="", user=U1):
        asked = await self.fake.slash(user, thread, name, {"words": words} if words else {})
        self.pressed.append((user, asked))

    async def edit(self, thread, text):
        await self.fake.edit(thread, f"<@{BOT}> {text}")

    async def delete(self, thread):
        await self.fake.delete(thread)

    def ever_shown(self):
        return json.dumps([(call.route, repr(call.body), repr([*call.files])) for call in self.fake.calls])


def _is_decided(text):
    return any(word in text for word in ("Approved", "Declined", "Nobody decided", "Not decided"))


@asynccontextmanager
async def chat_of(name):
    if name == "slack":
        async with FakeSlack() as fake:
            yield InSlack(fake)
    else:
        async with FakeDiscord() as fake:
            yield InDiscord(fake)


class Scene:
    """One data folder over several lives of a bot in one chat."""

    def __init__(self, chat, data):
        self.chat, self.data = chat, data
        self.run = Run()
        self.tools = [self.run]

    @asynccontextmanager
    async def life(self, *script, rules=None, expires_s=3600, model=None) -> AsyncIterator[Scripted]:
        """Run a bot until the block ends, as a process would: nothing is told to shut down."""
        for name in PROXIES:
            os.environ.pop(name, None)
        offload, disk, mask = anyio.to_thread.run_sync, PosixDisk(), Masker([SECRET])
        edge = self.chat.edge(self.data)
        model = model or Scripted(*script)
        audit = Audit(disk, self.data / "audit", offload=offload, now=utc_now)
        approvals = Approvals(
            Policy(rules or {}),
            disk,
            self.data / "approvals.json",
            offload=offload,
            now=utc_now,
            is_admin=lambda who: who == self.chat.admin,
            note=audit.note,
            mask=mask,
            expires_s=expires_s,
        )
        self.data.mkdir(exist_ok=True)
        await offload(approvals.open)
        write = WriteFile(Writer(disk, offload, Quota(10_000_000, 1_000)))
        toolbox = make_toolbox(
            [ReadFile(offload), ListFiles(offload), write, *self.tools],
            permits=approvals,
            mask=mask,
        )
        veil = partial(StreamMasker, mask=mask, find_boundary=boundary_finder([SECRET]))
        async with anyio.create_task_group() as tasks:
            parts = core_parts(
                self.data,
                edge,
                model,
                toolbox,
                disk=disk,
                offload=offload,
                now=utc_now,
                agent={"veil": veil},
                mask=mask,
                reader=Documents(offload),
            )
            core = await open_core(tasks, parts)
            tasks.start_soon(partial(edge.serve, core.orchestrator.receive))
            with anyio.fail_after(10):
                await edge.reconnected()
            yield model
            tasks.cancel_scope.cancel()

    async def question(self, thread, number=1):
        """Return the n-th question of a thread, with its buttons, once it is there."""
        await self.until(lambda: len(self.open(thread, number)) >= number)
        return self.open(thread, number)[number - 1]

    def open(self, thread, number):
        found = self.chat.questions(thread)
        return found if len(found) >= number and found[number - 1].buttons else []

    async def until(self, what):
        with contextlib.suppress(TimeoutError):
            return await self.chat.fake.until(what)
        raise AssertionError("it did not happen in time")

    async def answered(self, thread, words):
        await self.until(lambda: any(words in text for text in self.chat.texts(thread)))

    async def ended(self, thread, how, *, number=1):
        """Wait until the n-th question has no buttons any more, and says how it ended."""

        def closed():
            found = self.chat.questions(thread)
            return len(found) >= number and not found[number - 1].buttons and how in found[number - 1].text

        await self.until(closed)

    def settled(self, message_id):
        return outcomes(self.data).get(message_id)
