"""A loopback Slack or Discord, or the page, seen as the people there see it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import anyio

from tests.fakes import discord
from tests.fakes.discord import BOT, CHANNEL, U1, U2, U3, FakeDiscord
from tests.fakes.slack import ApiError, Cut, FakeSlack, Html
from tests.transports.discord.bot import bot_in as discord_bot_in
from tests.transports.discord.bot import transport as discord_transport
from tests.transports.question import ASKS, Question
from tests.transports.slack.bot import bot_in as slack_bot_in
from tests.transports.slack.bot import transport as slack_transport
from tests.transports.web.chat import InWeb


class InSlack:
    name, ann, bob, admin, by = "slack", "U1", "U2", "U3", " by"
    send, begin, ends = "chat.postMessage", "chat.startStream", ("chat.stopStream", "chat.update")
    lost, blocked, not_editable = Cut(applied=True), ApiError("restricted_action"), Html(500)
    eyes, stopped, done = "eyes", "octagonal_sign", set()
    lines = 1_200
    """Lines of an answer that takes several messages and no file."""

    def __init__(self, fake):
        self.fake, self.mention, self.token = fake, "<@UBOT>", fake.bot_token

    def edge(self, data, **options):
        return slack_transport(self.fake, data, **options)

    def running(self, data, model, **changes):
        """Run a whole bot over *data* until the block ends."""
        return slack_bot_in(self.fake, data, model, **changes)

    async def chat(self, text):
        """Begin a thread that is not for the bot."""
        return (await self.fake.say("U1", "C1", text)).ts

    async def bots_say(self, thread):
        """Have other bots speak in a thread."""
        await self.fake.bot_says("C1", "beep", thread_ts=thread)

    async def ask(self, text="please", user="U1", files=()):
        """Begin a thread, and return it."""
        held = [self.fake.file(name, content, kind) for name, content, kind in files]
        said = await self.fake.say(user, "C1", f"<@UBOT> {text}", files=held)
        return said.ts

    async def ask_about(self, text, by):
        """Begin a thread with a question about what somebody said, which is forwarded with it."""
        shared = {"is_share": True, "author_id": by, "text": text}
        said = await self.fake.say("U1", "C1", "<@UBOT> what about it?", attachments=[shared])
        return said.ts

    async def ask_alone(self, text="please", files=()):
        """Begin a conversation in a direct message, where text is shown while it grows."""
        held = [self.fake.file(name, content, kind) for name, content, kind in files]
        return (await self.fake.say("U1", "D1", text, files=held)).ts

    async def ask_aloud(self, content):
        """Begin a conversation in a direct message with a recording."""
        return (await self.fake.say("U1", "D1", "", files=[self.fake.clip("U1", content)])).ts

    async def say(self, thread, text, user="U1"):
        """Say something in a thread, and return the message."""
        return (await self.fake.say(user, "C1", text, thread_ts=thread)).ts

    def _posts(self, thread):
        return [post for post in self.fake.thread(self.fake.message(thread).channel, thread) if post.ours]

    def markdown(self, thread):
        """Return what the model wrote, as it is shown."""
        blocks = [block for post in self._posts(thread) for block in post.blocks or []]
        return "\n".join(block["text"] for block in blocks if block["type"] == "markdown")

    def with_buttons(self, thread):
        """Return the messages that have buttons now."""
        posts = [(post, dict(_slack_buttons(post))) for post in self._posts(thread)]
        return [Question(post.ts, _slack_text(post), buttons) for post, buttons in posts if buttons]

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

    def close(self, thread, *, whole_channel):
        """Take no posts of the bot any more, in a thread or in its channel, until `open`."""
        code = "not_in_channel" if whole_channel else "thread_locked"
        there = None if whole_channel else thread

        def concerns(args):
            return args["channel"] == "C1" and there in (None, args.get("thread_ts"))

        for method in ("chat.postMessage", "chat.startStream", "chat.postEphemeral"):
            self.fake.fail(method, ApiError(code), forever=True, when=concerns)

    def open(self, thread):
        self.fake.heal()

    def refuse_ends(self, fault):
        """Let no live answer become the final one."""
        for method in self.ends:
            self.fake.fail(method, fault, forever=True, when=lambda args: "metadata" in args)

    def direct(self, user):
        """Return what the bot wrote to a person in a direct message."""
        there = self.fake.channels[user.replace("U", "D")].messages
        return [post.text for post in there.values() if post.ours]

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

    def asked_about(self, message):
        """Return the calls that name a message by its id."""
        return [call for call in self.fake.calls if call.args.get("timestamp") == message]


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
    name, ann, bob, admin, by = "discord", U1, U2, U3, " by"
    send = begin = "POST /channels/{}/messages"
    ends = ("PATCH /channels/{}/messages/{}",)
    lost, blocked = discord.Cut(applied=True), discord.Refused(400, 200000, "blocked")
    not_editable = discord.Refused(400, 30046, "too old")
    eyes, stopped, done = "👀", "🛑", {"✅"}
    lines = 200

    def __init__(self, fake):
        self.fake, self.pressed = fake, []
        self.mention, self.token = f"<@{BOT}>", fake.token

    def refuse_ends(self, fault):
        self.fake.fail(*self.ends, fault, forever=True)

    def edge(self, data, **options):
        return discord_transport(self.fake, data, **options)

    def running(self, data, model, **changes):
        return discord_bot_in(self.fake, data, model, **changes)

    async def chat(self, text):
        said = await self.fake.say(U1, CHANNEL, text)
        return (await self.fake.thread(U1, said, text)).id

    async def bots_say(self, thread):
        await self.fake.bot_says(thread, "beep")
        await self.fake.webhook_says(thread, "ping")

    async def ask(self, text="please", user=U1, files=()):
        return (await self.fake.say(user, CHANNEL, f"<@{BOT}> {text}", files=files)).id

    async def ask_about(self, text, by):
        """Begin a thread with a question about what somebody said, to which it is a reply."""
        to = await self.fake.say(by, CHANNEL, text)
        return (await self.fake.say(U1, CHANNEL, f"<@{BOT}> what about it?", reply_to=to, ping=False)).id

    async def ask_alone(self, text="please", files=()):
        return (await self.fake.say(U1, self.fake.dm(U1), text, files=files)).id

    async def ask_aloud(self, content):
        return (await self.fake.record(U1, self.fake.dm(U1), content)).id

    async def say(self, thread, text, user=U1):
        await self.fake.until(lambda: thread in self.fake.channels)  # until then it is being opened
        return (await self.fake.say(user, thread, text)).id

    def _posts(self, thread):
        """Return our messages in a thread, or in the direct conversation that begins with this message."""
        channel = thread if thread in self.fake.channels else self.fake.message(thread).channel
        there = () if channel == CHANNEL else self.fake.messages(channel)
        return [post for post in there if post.ours]

    def markdown(self, thread):
        return "\n".join(self.texts(thread))

    def with_buttons(self, thread):
        return [
            Question(post.id, post.content, dict(post.buttons))
            for post in self._posts(thread)
            if post.buttons
        ]

    def texts(self, thread):
        return [post.content for post in self._posts(thread) if post.content]

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

    def close(self, thread, *, whole_channel):
        if whole_channel:
            self.fake.deny(CHANNEL, "SEND_MESSAGES", "SEND_MESSAGES_IN_THREADS")
        else:
            self.fake.lock(thread)

    def open(self, thread):
        self.fake.allow(CHANNEL, "SEND_MESSAGES", "SEND_MESSAGES_IN_THREADS")
        self.fake.set_archived(self.fake.place(thread), archived=False, locked=False)

    def direct(self, user):
        return [post.content for post in self.fake.messages(self.fake.dm(user)) if post.ours]

    def alone(self, user):
        return [text for who, pressed in self.pressed if who == user for text in pressed.contents if text]

    async def slash(self, thread, name, words="", user=U1):
        await self.fake.until(lambda: thread in self.fake.channels)
        asked = await self.fake.slash(user, thread, name, {"words": words} if words else {})
        self.pressed.append((user, asked))

    async def edit(self, thread, text):
        await self.fake.edit(thread, f"<@{BOT}> {text}")

    async def delete(self, thread):
        await self.fake.delete(thread)

    def ever_shown(self):
        return json.dumps([(call.route, repr(call.body), repr([*call.files])) for call in self.fake.calls])

    def asked_about(self, message):
        return [call for call in self.fake.calls if message in call.path.values()]


def _is_decided(text):
    return any(word in text for word in ("Approved", "Declined", "Nobody decided", "Not decided"))


async def told(chat, thread, words):
    """Wait until the thread shows these words of the bot."""
    await chat.fake.until(lambda: any(words in text for text in chat.texts(thread)))


@asynccontextmanager
async def chat_of(name):
    if name == "slack":
        async with FakeSlack() as fake:
            yield InSlack(fake)
    elif name == "web":
        chat = InWeb()
        async with chat.visitor, anyio.create_task_group() as chat.tasks:
            yield chat
            chat.tasks.cancel_scope.cancel()
    else:
        async with FakeDiscord() as fake:
            yield InDiscord(fake)
