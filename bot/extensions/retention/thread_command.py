"""`/forget` in a thread."""

from __future__ import annotations

from functools import partial

from bot.extensions.retention.forgotten import Receipt, note
from bot.extensions.retention.thread_parts import PARTS, erase, files_in
from bot.extensions.retention.whom import Whom
from bot.host.extension import Host
from bot.reports.files import FileReader, Folder
from bot.reports.line_reader import Damage
from bot.reports.thread import entries
from bot.wording import IN_ITS_THREAD
from threads.model import Incoming, ThreadId
from threads.store.data_folder import thread_folder
from threads.store.disk import replace_file

SURE = "now"
ASK = (
    "I would erase what I keep of this thread: {messages} messages, {files} files, and the conversation. It cannot "
    "be taken back. What was posted here stays in the chat, and a backup keeps what it holds. "
    "Say `/forget now` to do it."
)
DONE = "I have erased what I kept of this thread: {messages} messages and {files} files."
BUSY = "I still have something to answer here. Say /stop first, then /forget."
NOT_YOURS = "Others wrote here too, so only an admin can have it erased."


async def obey(host: Host, words: str, incoming: Incoming) -> str:
    """Run ``/forget [now]`` and return the reply. Raises `StoreUnavailable`."""
    thread = incoming.thread
    if not thread.root:
        return IN_ITS_THREAD
    authors, numbers = await host.work(_count, host, thread)
    if not host.is_admin(incoming.author.id) and authors - {incoming.author.id}:
        return NOT_YOURS
    if words.strip().lower() != SURE:
        return ASK.format(**numbers)
    for schedule in host.schedules.in_thread(thread):
        await host.schedules.cancel(thread, schedule.id)
    if not await host.erase(thread, partial(host.work, _erase, host, thread)):
        return BUSY
    return DONE.format(**numbers)


def _count(host: Host, thread: ThreadId) -> tuple[set[str], dict[str, int]]:
    folder = thread_folder(host.settings.data, thread)
    log = [
        one
        for one in entries(FileReader(host.settings.data), Folder(folder), Damage())
        if one.kind == "message"
    ]
    files = (
        sum(len(files_in(folder, part)) for part in ("attachments", "workspace")) if folder.is_dir() else 0
    )
    return {one.author for one in log}, {"messages": len(log), "files": files}


def _erase(host: Host, thread: ThreadId) -> None:
    folder = thread_folder(host.settings.data, thread)
    if folder.is_dir():
        erase(host.disk, folder, PARTS)
    # As after /new: earlier lines of the chat are not read into the new conversation.
    host.disk.mkdir(folder)
    replace_file(host.disk, folder / "context.old.jsonl", b"")
    note(host.disk, host.settings.data, {Whom(thread=str(thread)).name: Receipt(at=host.now())})
