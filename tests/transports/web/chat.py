"""The page as the person in front of it sees it, for the stories that are told of every transport."""

from __future__ import annotations

import json
import uuid
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from bot.config.settings import Settings
from tests.patience import WITHIN_S
from tests.transports.bot import bot_over
from tests.transports.question import ASKS, Question
from tests.transports.web.alone import transport
from tests.transports.web.patient import Page, follow
from tests.transports.web.process import free_port
from tests.transports.web.site import Visitor
from transports.web.address import Address
from transports.web.page_history import ThreadHistory
from transports.web.routes import TOKEN
from transports.web.sessions import Person


class InWeb:
    """One person in a browser, whose pages stay open while the bot is restarted. Their threads are theirs alone."""

    name, ann, admin, by = "web", "U1", "U3", ""

    tasks: TaskGroup
    """Follows its pages."""

    def __init__(self):
        self.fake = self  # what the stories wait at: there is no other side than the page
        self.pings: list[str] = []
        self.unfurls: list[str] = []
        self._port = free_port()
        self._pages, self._downloads = {}, {}
        self._edge, self.visitor = None, Visitor(self)

    def edge(self, data, **options):
        history = ThreadHistory(Settings.model_validate({"data": data}, strict=False), {})
        address = Address("127.0.0.1", self._port)
        self._edge = transport(data, history=history, address=address, **options)
        return self._edge

    @asynccontextmanager
    async def running(self, data, model, **changes):
        """Run a whole bot over *data* until the block ends."""
        async with bot_over(self.edge(data), data, model, **changes) as edge:
            yield edge

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    def link(self, person):
        return self._edge.sessions.link(Person(id=person))

    async def ask(self, text="please", files=()):
        """Begin a thread, and return it: it is named after its first message."""
        if TOKEN not in self.visitor.headers:
            await self.visitor.enter(self.ann)
        sent = [await self._upload(*file) for file in files]
        thread = str(uuid.uuid4())
        self._pages[thread] = Page()
        self.tasks.start_soon(follow, self.visitor, thread, self._pages[thread])
        return await self.visitor.say(text, thread, files=sent, message_id=thread)

    ask_alone = ask

    async def _upload(self, name, content, _):
        answer = await self.visitor.post("/api/files", params={"name": name}, content=content)
        return {"id": answer.json()["id"], "name": name}

    async def say(self, thread, text):
        return await self.visitor.say(text, thread)

    async def until(self, condition):
        """Wait until the pages show it. What they offer for download is there by then."""
        with anyio.fail_after(WITHIN_S):
            while True:
                for file in [file for one in self._messages() for file in one.files.values()]:
                    if file["address"] not in self._downloads:
                        answer = await self.visitor.get(file["address"])
                        self._downloads[file["address"]] = answer.content
                if condition():
                    return
                await anyio.sleep(0.02)

    def _messages(self, thread=""):
        pages = [self._pages[thread]] if thread else self._pages.values()
        return [message for page in pages for message in page.messages.values()]

    def _posts(self, thread):
        return [post for message in self._messages(thread) for post in message.posts.values()]

    def texts(self, thread):
        """Return what the thread shows, with the replies to presses, which are no messages."""
        return [_text(post) for post in self._posts(thread)] + self._told(self._pages[thread])

    def with_buttons(self, thread):
        """Return what has buttons now."""
        return [_question(post) for post in self._posts(thread) if post["choices"]]

    def questions(self, thread):
        return [_question(post) for post in self._posts(thread) if ASKS in _text(post)]

    def files(self, thread):
        files = [file for message in self._messages(thread) for file in message.files.values()]
        return {file["name"]: self._downloads.get(file["address"], b"") for file in files}

    async def press(self, question, value, *, stale=False):
        [thread] = [
            one for one in self._pages if any(post["key"] == question.id for post in self._posts(one))
        ]
        if value.startswith("/"):  # the page sends nothing else
            await self.visitor.say(value, thread)

    def alone(self, _):
        """Return what only this person was told: a thread of the page has nobody else."""
        return [text for thread in self._pages for text in self.texts(thread)]

    def _told(self, page):
        return [event["text"] for event in page.seen if event["op"] == "told"]

    def ever_shown(self):
        return json.dumps([page.seen for page in self._pages.values()])


def _question(post):
    return Question(post["key"], _text(post), {one["label"]: one["command"] for one in post["choices"]})


def _text(post):
    """Return the words of a post as Markdown has them, with how its question was decided."""
    return _markdown(post["tree"]) + post.get("decision", "")


def _markdown(tree):
    return "".join(node if isinstance(node, str) else _element(*node) for node in tree)


def _element(tag, _, *children):
    text = _markdown(children)
    match tag:
        case "pre":
            return f"```\n{text.rstrip(chr(10))}\n```\n"
        case "blockquote":
            return "".join(f"> {line}\n" for line in text.splitlines())
        case "p" | "li" | "br":
            return f"{text}\n"
        case _:
            return text
