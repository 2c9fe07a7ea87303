"""Matrix as people see it with a client that is not ours, for the stories that are told of every transport."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from tests.patience import WITHIN_S
from tests.transports.matrix.bot import bot_in, transport
from tests.transports.matrix.person import account, person
from tests.transports.question import ASKS, Question

MARK = "org.threadfast.post"
CHOICE = re.compile(r"^- \S+ (?P<label>.+): `(?P<command>/.+)`$", re.MULTILINE)


class InMatrix:
    """Three people in a room with the bot, and each alone with it. Pings and previews would stand in the posts."""

    name, by, unfurls = "matrix", " by", []

    def __init__(self, synapse, folder):
        self.fake, self._synapse, self._folder = self, synapse, folder
        self._people, self._rooms, self._files = {}, {}, {}

    @asynccontextmanager
    async def opened(self):
        async with AsyncExitStack() as stack:
            made = await account(self._synapse)
            self.bot, self.token = made.user_id, made.access_token
            for name in ("ann", "bob", "admin"):
                one = await stack.enter_async_context(
                    person(name, synapse=self._synapse, folder=self._folder)
                )
                self._people[one.id] = one
                setattr(self, name, one.id)
            ann, *others = self._people.values()
            self.room = await ann.channel(self.bot, *(one.id for one in others))
            for one in others:
                await one.join(self.room)
            yield self

    def edge(self, data, **options):
        return transport(self._synapse, self.token, data, **options)

    def running(self, data, model, **changes):
        return bot_in(self._synapse, self.token, data, model, **changes)

    async def until(self, condition):
        """Wait until people see it. The files that they see are there by then."""
        with anyio.fail_after(WITHIN_S):
            while True:
                for post in self._all():
                    if post.id not in self._files and {"url", "file"} & post.content.keys():
                        self._files[post.id] = await self._people[self.ann].content(post)
                if condition():
                    return
                await anyio.sleep(0.02)

    def _all(self):
        ann = self._people[self.ann]
        return [post for room in (self.room, *self._rooms.values()) for post in ann.shown(room)]

    async def ask(self, text="please", user="", files=()):
        """Begin a thread, and return it."""
        who = self._people[user or self.ann]
        await who.until_joined(self.room, self.bot)
        return await self._send(who, self.room, text, files, to=self.bot)

    async def ask_alone(self, text="please", files=()):
        """Begin a conversation in a direct room."""
        ann = self._people[self.ann]
        room = await ann.direct(self.bot)
        await ann.until_joined(room, self.bot)
        sent = await self._send(ann, room, text, files)
        self._rooms[sent] = room
        return sent

    async def _send(self, who, room, text, files, **more):
        for name, content, kind in files:
            return await who.upload(room, name, content, kind, text=text, **more)
        return await who.say(room, text, **more)

    async def say(self, thread, text, user=""):
        room = self._rooms.get(thread)
        return await self._people[user or self.ann].say(
            room or self.room, text, thread="" if room else thread
        )

    def _posts(self, thread):
        room = self._rooms.get(thread)
        shown = self._people[self.ann].shown(room or self.room, None if room else thread)
        return [post for post in shown if post.sender == self.bot]

    def texts(self, thread):
        return [post.body for post in self._posts(thread) if post.content["msgtype"] == "m.text"]

    def with_buttons(self, thread):
        """Return what has choices now."""
        return [question for post in self._posts(thread) if (question := _question(post)).buttons]

    def questions(self, thread):
        return [_question(post) for post in self._posts(thread) if ASKS in post.body]

    def files(self, thread):
        posts = [post for post in self._posts(thread) if post.content["msgtype"] == "m.file"]
        return {post.content["filename"]: self._files.get(post.id) for post in posts}

    async def press(self, question, value, user="", *, stale=False):
        """Choose by a reaction, or by typing the command when its question is over."""
        who = self._people[user or self.ann]
        [post] = [one for one in self._all() if one.id == question.id]
        sign = next((sign for sign, command in post.content[MARK]["choices"].items() if command == value), "")
        if sign and not stale:
            await who.react(self.room, question.id, sign)
        else:
            await who.say(self.room, value, thread=post.thread)

    def alone(self, _):
        """Return all that was said: nobody can be told anything alone in a room."""
        return [post.body for post in self._people[self.ann].shown(self.room)]

    def ever_shown(self):
        return repr(self._people[self.ann].events(self.room))

    @property
    def pings(self):
        """Return the people whom posts of the bot would have called."""
        shown = self._people[self.ann].shown(self.room)
        return [post.content for post in shown if post.sender == self.bot and _calls(post.content)]


def _question(post):
    buttons = {found["label"]: found["command"] for found in CHOICE.finditer(post.body)}
    words = CHOICE.sub("", post.body)
    return Question(post.id, words, buttons if post.content.get(MARK, {}).get("choices") else {})


def _calls(content):
    return content.get("m.mentions") != {} or "matrix.to" in content.get("formatted_body", "")
