"""One bot that needs permissions, in a loopback Slack or Discord."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread

from bot.documents.reader import Documents
from bot.guards.policy import Policy
from bot.guards.redaction import Masker
from bot.guards.stream_redaction import StreamMasker, boundary_finder
from bot.observe.audit import Audit, AuditFiles
from bot.tools.approvals import Approvals, ApprovalsFile
from bot.tools.files.quota import Quota
from bot.tools.files.read import ListFiles, ReadFile
from bot.tools.files.write import WriteFile, Writer
from bot.wiring.app import utc_now
from bot.wiring.core import open_core
from tests.run_tool import Run
from tests.tool_context import make_toolbox
from tests.transports.bot import PROXIES
from tests.world import Scripted, core_parts, state_file
from threads.store.disk import PosixDisk

SECRET = "canary-Zk4v9Qx7Lw2"


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
        audit = Audit(AuditFiles(disk, self.data / "audit", offload).append, utc_now)
        approvals = Approvals(
            Policy(rules or {}),
            state_file(self.data / "approvals.json", ApprovalsFile()),
            offload=offload,
            now=utc_now,
            is_admin=lambda who: who == self.chat.admin,
            note=audit.note,
            mask=mask,
            expires_s=expires_s,
        )
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
