"""One bot that needs permissions, in a loopback Slack or Discord."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio.to_thread

from bot.extensions.documents.reader import Reader
from bot.extensions.files.read import ListFiles, ReadFile
from bot.extensions.files.write import WriteFile
from bot.guards.policy import Policy
from bot.guards.redaction import Masker
from bot.guards.stream_redaction import StreamMasker, boundary_finder
from bot.observe.audit import Audit, AuditFiles
from bot.tools.approvals import Approvals, ApprovalsFile
from bot.tools.ask_person import AskingPermits, AskPerson
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from bot.tools.questions import DurableQuestions, QuestionsFile
from bot.tools.recovery import Recovery
from bot.wiring.app import utc_now
from tests.run_tool import Run
from tests.tool_context import make_toolbox
from tests.transports.bot import bot_over
from tests.world import Scripted, state_file
from threads.store.disk import PosixDisk

SECRET = "canary-Zk4v9Qx7Lw2"
ONCE, ALWAYS, DENY = "Allow once", "Always here", "Deny"


class ApprovalBot:
    """One data folder over several processes of a bot in one chat. ``commands`` are those that its shell has run."""

    def __init__(self, chat, data):
        self.chat, self.data = chat, data
        shell = Run()
        self.tools, self.commands = [shell], shell.ran

    @asynccontextmanager
    async def running(self, *script, rules=None, expires_s=3600, model=None) -> AsyncIterator[Scripted]:
        """Run a bot until the block ends, as a process would: nothing is told to shut down."""
        offload, disk, mask = anyio.to_thread.run_sync, PosixDisk(), Masker([SECRET])
        model = model or Scripted(*script)
        asking = {
            "now": utc_now,
            "is_admin": lambda who: who == self.chat.admin,
            "note": Audit(AuditFiles(disk, self.data / "audit", offload).append, utc_now).note,
            "mask": mask,
            "expires_s": expires_s,
        }
        approvals_file = state_file(self.data / "approvals.json", ApprovalsFile())
        approvals = Approvals(Policy(rules or {}), approvals_file, offload=offload, **asking)
        questions = DurableQuestions(state_file(self.data / "questions.json", QuestionsFile()), **asking)
        permits = Recovery(AskingPermits(approvals, questions), questions, choice="ask")
        write = WriteFile(Writer(disk, offload, Quota(10_000_000, 1_000)))
        tools = [ReadFile(offload), ListFiles(offload), write, AskPerson(questions), *self.tools]
        parts = {
            "toolbox": make_toolbox(tools, permits=permits, recovery=permits, mask=mask),
            "asked": questions,
            "agent": {
                "mask_events": partial(StreamMasker, mask=mask, find_boundary=boundary_finder([SECRET]))
            },
            "mask": mask,
            "reader": Reader(offload),
        }
        async with bot_over(self.chat.edge(self.data), self.data, model, **parts):
            yield model

    async def ask(self, *words, **message):
        """Begin a thread, and return it with the question that the bot asks there."""
        thread = await self.chat.ask(*words, **message)
        return thread, await self.question(thread)

    async def question(self, thread, number=1):
        """Return the n-th question of a thread, with its buttons, once it is there."""
        await self.until(lambda: self._open_question(thread, number))
        return self._open_question(thread, number)

    def _open_question(self, thread, number):
        found = self.chat.questions(thread)
        return found[number - 1] if len(found) >= number and found[number - 1].buttons else None

    async def press(self, question, label, *user, **options):
        await self.chat.press(question, question.buttons[label], *user, **options)

    async def until(self, condition):
        with contextlib.suppress(TimeoutError):
            return await self.chat.fake.until(condition)
        raise AssertionError("it did not happen in time")

    async def answered(self, thread, words):
        await self.until(lambda: any(words in text for text in self.chat.texts(thread)))

    async def told_alone(self, user, words, times=1):
        """Wait until only this person was told these words."""
        await self.until(lambda: sum(words in text for text in self.chat.alone(user)) >= times)

    async def ended(self, thread, how, *, number=1):
        """Wait until the n-th question has no buttons any more, and says how it ended."""

        def closed():
            found = self.chat.questions(thread)
            return len(found) >= number and not found[number - 1].buttons and how in found[number - 1].text

        await self.until(closed)
