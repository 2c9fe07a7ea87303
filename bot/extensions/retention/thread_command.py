"""`/forget` in a thread."""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import datetime

from bot.extensions.retention.forgotten import FILES, ForgottenFile, Receipt, note, open_list
from bot.extensions.retention.thread_parts import PARTS, erase
from bot.extensions.retention.whom import Whom, counted
from bot.host.extension import Host
from bot.host.store_reader import open_reader
from bot.reports.line_reader import Damage
from bot.reports.thread import entries
from bot.wording import IN_ITS_THREAD
from threads.errors import StoreUnavailable
from threads.model import Incoming, ThreadId
from threads.store.data_folder import thread_folder
from threads.store.disk import replace_file
from threads.store.json_file import State

SURE = "now"
ASK = (
    "I would erase what I keep of this thread: {counted}, and the conversation. It cannot be taken back. "
    "What was posted here stays in the chat, and a backup keeps what it holds. "
    "Say `/forget now` to do it."
)
DONE = "I have erased what I kept of this thread: {counted}."
BUSY = "I still have something to answer here. Say /stop first, then /forget."
NOT_YOURS = "Others wrote here too, so only an admin can have it erased."


class _OthersWroteHere(Exception):
    pass


async def obey(host: Host, forgotten: State[ForgottenFile], words: str, incoming: Incoming) -> str:
    """Run ``/forget [now]`` and return the reply. Raises `StoreUnavailable`."""
    thread = incoming.thread
    if not thread.root:
        return IN_ITS_THREAD
    numbers: dict[str, int] = {}

    async def erase_all() -> None:
        numbers.update(await _count_for(host, incoming))  # again: only now the last lines are in the log
        for schedule in host.schedules.in_thread(thread):
            await host.schedules.cancel(thread, schedule.id)
        # Listed first: a kill in between must not let a restore bring back what somebody wanted to be gone.
        said_at = datetime.fromisoformat(incoming.sent_at) if incoming.sent_at else None
        receipt = {Whom(thread=str(thread)).name: Receipt(at=host.now(), said_at=said_at, took=numbers)}
        await note(forgotten, receipt)
        if host.settings.store.kind != FILES:
            await note(await open_list(host.disk, host.settings.data, host.work), receipt)
        await host.work(_erase, host, thread)

    try:
        if words.strip().lower() != SURE:
            return ASK.format(counted=counted(**await _count_for(host, incoming)))
        if not await host.erase(thread, PARTS, erase_all):
            return BUSY
    except _OthersWroteHere:
        return NOT_YOURS
    except OSError as error:
        raise StoreUnavailable(f"not erased: {error}") from error
    return DONE.format(counted=counted(**numbers))


async def _count_for(host: Host, incoming: Incoming) -> dict[str, int]:
    """Return what there is to erase. Raises `_OthersWroteHere` for a person who may not have it erased."""
    authors, numbers = await host.work(_count, host, incoming.thread)
    if not host.is_admin(incoming.author.id) and authors - {incoming.author.id}:
        raise _OthersWroteHere
    return numbers


def _count(host: Host, thread: ThreadId) -> tuple[set[str], dict[str, int]]:
    with closing(open_reader(host.settings, host.environ)) as reader:
        folder = thread_folder(host.settings.data, thread)
        found = [one for one in reader.find(str(thread)) if one.path == folder]
        said = [entry for one in found for entry in entries(reader, one, Damage()) if entry.kind == "message"]
        files = sum(len(reader.files(one)) for one in found)
    return {one.author for one in said}, {"messages": len(said), "files": files}


def _erase(host: Host, thread: ThreadId) -> None:
    folder = thread_folder(host.settings.data, thread)
    with suppress(FileNotFoundError):  # a line of the journal that was torn may be of any thread
        host.disk.unlink(host.settings.data / "journal.jsonl.broken")
    if folder.is_dir():
        erase(host.disk, folder, PARTS)
    if host.settings.store.kind == FILES:
        # As after /new: earlier lines of the chat are not read into the new conversation.
        host.disk.mkdir(folder)
        replace_file(host.disk, folder / "context.old.jsonl", b"")
