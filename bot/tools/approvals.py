"""Calls that a person decides about: asked in the thread, bound to their exact arguments, kept on disk.

| an approval is | event                                      | then                                             |
|----------------|--------------------------------------------|--------------------------------------------------|
| none           | the policy says "ask"                      | open, on disk; then the question is posted       |
| open           | *allow once* or *always here* is pressed   | used, on disk; then the call runs                |
| open           | *deny* is pressed, or its time is over     | denied, on disk; not asked again for the message |
| open           | a restart                                  | open: it has not run; asked again, same buttons  |
| used           | the same call again, or a replayed press   | asked anew: one press is one call                |

The calls of one step are asked about side by side, each with its own record, time and answer. Only who asked, or an
admin, may press. No model can: what it writes is no command, and the thread's other people are
refused. Changed arguments are another call. *Always here* is for this thread and for what its pattern matches.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from bot.guards.policy import Policy
from bot.observe.audit import AuditKind
from bot.ports import wording
from bot.ports.errors import ToolDenied
from bot.ports.tool import Arguments, Tool, ToolContext
from threads.errors import PostFailed, StoreUnavailable
from threads.invisible_text import escaped
from threads.model import Answer, Option, Question, ThreadId
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFile, JsonState

log = logging.getLogger(__name__)

MOST_SHOWN = 1_500
"""Characters of the arguments that are shown in the question itself; longer ones are posted as a file."""

MOST_NAMED = 80
"""Characters of what a call is about that name its question beside others."""

AUDITED = 200
"""Characters of what a call is about that its line in the audit tells; the thread has all."""

MOST_GRANTS = 1_000
KEPT_FOR = timedelta(days=1)
"""How long a decision is remembered, so that a denied call of a turn is not asked about again."""

OPTIONS = (
    Option("Allow once", approve=True, words="once"),
    Option("Always here", approve=True, words="always"),
    Option("Deny", approve=False),
)

Note = Callable[[AuditKind, ThreadId, str, str, Mapping[str, str]], Awaitable[None]]


class _Asked(BaseModel):
    """One approval. ``expires_at`` is UTC, ISO 8601; ``nth`` is how often the same call was asked about before.

    ``same`` is what all calls of a message with the same arguments have in common.
    """

    model_config = ConfigDict(frozen=True)

    state: Literal["open", "used", "denied"]
    thread_id: str
    message_id: str
    tool: str
    expires_at: str
    nth: int = 0
    same: str = ""


class _Grant(BaseModel):
    """What was allowed for good in a thread, and by whom; ``tainted``: also when text from outside was read."""

    model_config = ConfigDict(frozen=True)

    thread_id: str
    tool: str
    pattern: str
    tainted: bool
    by: str
    at: str


class _File(JsonState):
    asked: dict[str, _Asked] = Field(default_factory=dict)
    grants: tuple[_Grant, ...] = ()


class Approvals:
    """The permissions of one bot; ``permit`` and ``waits`` are what the gate asks.

    *note* writes an audit line, *expires_s* is how long a question stays open, *is_admin* judges an author's id.
    """

    def __init__(
        self,
        policy: Policy,
        disk: Disk,
        path: Path,
        *,
        offload: Offload,
        now: Callable[[], datetime],
        is_admin: Callable[[str], bool],
        note: Note,
        mask: Callable[[str], str],
        expires_s: float,
    ) -> None:
        self._policy, self._now, self._is_admin, self._note = policy, now, is_admin, note
        self._expires, self._offload, self._mask = timedelta(seconds=expires_s), offload, mask
        self._kept = JsonFile(disk, path, offload, _File())
        self.open = self._kept.open

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        """Return when the call may run. Raises `ToolDenied`, also when nobody can be asked or nobody answers."""
        subject = arguments.subject()
        verdict = self._policy.verdict(tool.name, tool.risk, subject, tainted=context.tainted)
        if verdict == "deny":
            raise ToolDenied("The rules here do not allow this.", suggestion="Do not try it again.")
        if verdict == "ask" and not self._granted(context, tool.name, subject):
            await self._ask(tool, arguments, context)

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        """Return whether the call was still being asked about when the last process ended: it has not run."""
        asked = self._before(_key(tool, arguments, context), _same(tool, arguments, context))
        return asked is not None and asked.state == "open"

    def asks(self, thread: ThreadId, message_id: str) -> bool:
        """Return whether a question about a call of this message's turn is open and may still be answered."""
        now = self._now().isoformat(timespec="milliseconds")
        return any(
            asked.state == "open"
            and asked.thread_id == str(thread)
            and asked.message_id == message_id
            and asked.expires_at > now
            for asked in self._kept.value.asked.values()
        )

    async def revoke(self, thread: ThreadId, by: str) -> int:
        """Take all of the thread's standing permissions back; return how many. Raises `StoreUnavailable`."""
        async with self._kept.changing:
            value = self._kept.value
            kept = tuple(grant for grant in value.grants if grant.thread_id != str(thread))
            if gone := len(value.grants) - len(kept):
                await self._kept.replace(value.model_copy(update={"grants": kept}))
        if gone:
            await self._noted(thread, "", by, {"verdict": "taken back", "always": str(gone)})
        return gone

    def _granted(self, context: ToolContext, tool: str, subject: str) -> bool:
        """Judge by the standing permissions: one given before text from outside was read does not hold after it."""
        return any(
            grant.thread_id == str(context.thread)
            and grant.tool == tool
            and (grant.tainted or not context.tainted)
            and fnmatchcase(subject, grant.pattern)
            for grant in self._kept.value.grants
        )

    def _before(self, key: str, same: str) -> _Asked | None:
        """Return what is known of a call; an older version kept equal calls of a message as one."""
        asked = self._kept.value.asked
        return asked.get(key) or asked.get(same)

    def _denied(self, same: str) -> bool:
        asked = self._kept.value.asked.items()
        return any(each.state == "denied" and same in (id_, each.same) for id_, each in asked)

    async def _ask(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        key, same_call = _key(tool, arguments, context), _same(tool, arguments, context)
        before = self._before(key, same_call)
        if not (before and before.state == "open") and self._denied(same_call):
            raise ToolDenied("This was denied already.", suggestion="Do not try it again; go on without it.")
        now = self._now()
        expires_at = (
            datetime.fromisoformat(before.expires_at)
            if before and before.state == "open"
            else now + self._expires
        )
        asked = _Asked(
            state="open",
            thread_id=str(context.thread),
            message_id=context.message_id,
            tool=tool.name,
            expires_at=expires_at.isoformat(),
            nth=before.nth + (before.state != "open") if before else 0,
            same=same_call,
        )
        await self._record(key, asked)

        kept: list[Answer | None] = []

        async def keep(answer: Answer | None) -> None:
            if not kept:
                kept.append(answer)
                await self._decided(tool, arguments, context, key, asked, answer)

        left_s = (expires_at - now).total_seconds()
        same = f"{same_call} {context.call_id} {asked.nth}"
        if left_s > 0:
            answer = await context.ask(await self._question(tool, arguments, context, same, left_s, keep))
        else:
            answer = Answer(approved=False, by="")
        await keep(answer)
        approved = answer is not None and answer.approved
        if answer is None:
            context.note(wording.nobody_to_ask(tool.name))
            raise ToolDenied("Nobody can be asked for permission here.", suggestion=DO_WITHOUT)
        if not approved:
            if not answer.by:
                context.note(wording.not_decided(tool.name))
            words = "A person denied this." if answer.by else "Nobody allowed this in time."
            raise ToolDenied(words, suggestion=DO_WITHOUT)

    async def _decided(
        self,
        tool: Tool,
        arguments: Arguments,
        context: ToolContext,
        key: str,
        asked: _Asked,
        answer: Answer | None,
    ) -> None:
        """Make a decision durable, before anybody is told of it. Raises `ToolDenied` when it cannot be."""
        grant, pattern = None, self._pattern(arguments)
        if answer and answer.approved and pattern and answer.words.strip().lower() == "always":
            grant = _Grant(
                thread_id=str(context.thread),
                tool=tool.name,
                pattern=pattern,
                tainted=context.tainted,
                by=answer.by,
                at=self._now().isoformat(timespec="seconds"),
            )
        state = "used" if answer and answer.approved else "denied"
        await self._record(key, asked.model_copy(update={"state": state}), grant)
        await self._audit(tool, arguments, key, context, answer, grant)

    async def _question(
        self,
        tool: Tool,
        arguments: Arguments,
        context: ToolContext,
        same: str,
        within_s: float,
        keep: Callable[[Answer], Awaitable[None]],
    ) -> Question:
        asker = context.asker.id
        return Question(
            await self._text(tool, arguments, context),
            OPTIONS,
            lambda who: who == asker or self._is_admin(who),
            about="a decision on what I may do",
            brief=self._brief(tool, arguments),
            fault=lambda words: (
                "" if words.strip().lower() in {"", "once", "always"} else wording.ONCE_OR_ALWAYS
            ),
            same=same,
            within_s=within_s,
            keep=keep,
        )

    async def _text(self, tool: Tool, arguments: Arguments, context: ToolContext) -> str:
        """Return the question, with the exact arguments: nothing in them is hidden, and nothing left out."""
        given = arguments.model_dump(mode="json", exclude_defaults=True)
        shown = self._mask(exact(given))
        why = wording.OUTSIDE_READ if context.tainted else ""
        block = _block(shown)
        if len(shown) > MOST_SHOWN and await self._posted(tool, shown, context):
            block = f"{_block(shown[:MOST_SHOWN])}\n{wording.WHOLE_IN_FILE}"
        return wording.may_i(tool.name, block, why, _always(tool, arguments, self._pattern(arguments)))

    def _brief(self, tool: Tool, arguments: Arguments) -> str:
        """Return in one line what the call is about: enough to find its question, not to decide it."""
        about = " ".join(self._mask(escaped(arguments.subject())).split())
        return f"{tool.name}: {about}" if len(about) <= MOST_NAMED else f"{tool.name}: {about[:MOST_NAMED]}…"

    def _pattern(self, arguments: Arguments) -> str:
        """Return what *always here* would allow: nothing, where it would have to keep a secret."""
        pattern = arguments.always()
        return pattern if self._mask(pattern) == pattern else ""

    async def _posted(self, tool: Tool, shown: str, context: ToolContext) -> bool:
        try:
            with NamedTemporaryFile(suffix=".txt") as file:
                path = Path(file.name)
                await self._offload(path.write_bytes, shown.encode("utf-8", "replace"))
                await context.attach(f"{context.call_id}?", path, f"{tool.name}.txt")
        except (PostFailed, OSError) as error:
            log.info("approval.inline: arguments shown in the question, not as a file: %s", error)
            return False
        return True

    async def _record(self, key: str, asked: _Asked, grant: _Grant | None = None) -> None:
        """Make it durable. Raises `ToolDenied` when it cannot be: what is not on disk is not allowed."""
        oldest = (self._now() - KEPT_FOR).isoformat()
        async with self._kept.changing:
            value = self._kept.value
            kept = {
                id_: old
                for id_, old in value.asked.items()
                if old.expires_at > oldest and id_ not in (key, asked.same)
            }
            grants = (*value.grants, grant)[-MOST_GRANTS:] if grant else value.grants
            try:
                await self._kept.replace(_File(asked={**kept, key: asked}, grants=grants))
            except StoreUnavailable as error:
                raise ToolDenied(
                    "The permission for this could not be kept on disk.", suggestion="Try again later."
                ) from error

    async def _audit(
        self,
        tool: Tool,
        arguments: Arguments,
        key: str,
        context: ToolContext,
        answer: Answer | None,
        grant: _Grant | None,
    ) -> None:
        verdict = "allowed" if answer and answer.approved else "denied"
        about = self._mask(arguments.subject())[:AUDITED]
        details = {"tool": tool.name, "verdict": verdict, "about": about, "call": key}
        if grant:
            details["always"] = grant.pattern
        if answer is None or not answer.by:
            details["why"] = "nobody could be asked" if answer is None else "nobody answered in time"
        await self._noted(context.thread, context.message_id, answer.by if answer else "", details)

    async def _noted(self, thread: ThreadId, message_id: str, by: str, details: Mapping[str, str]) -> None:
        try:
            await self._note("approval", thread, message_id, by, details)
        except StoreUnavailable as error:
            log.error("audit.lost: %s", error, extra=details)  # noqa: TRY400 - the disk says why


DO_WITHOUT = "Do not try it again; go on without it, or ask what to do instead."


def exact(given: Mapping[str, JsonValue]) -> str:
    """Return arguments as people read them, each character visible: a single text as it is, else a name with each.

    The lines of a longer text are set in, so that none of them can pass for another argument.
    """
    if len(given) == 1 and isinstance(only := next(iter(given.values())), str):
        return escaped(only)
    return "\n".join(f"{_shown(name)}:{_value(value)}" for name, value in given.items())


def _value(value: JsonValue) -> str:
    if not isinstance(value, str) or not value or value != value.strip(" "):
        return f" {escaped(json.dumps(value, ensure_ascii=False))}"
    if "\n" not in value:
        return f" {escaped(value)}"
    return "".join(f"\n  {line}" for line in escaped(value).split("\n"))


def _shown(name: str) -> str:
    return name if name.isidentifier() else escaped(json.dumps(name, ensure_ascii=False))


def _always(tool: Tool, arguments: Arguments, pattern: str) -> str:
    """Return what *always here* would allow, in words."""
    if not pattern:
        return wording.NOTHING_MORE
    if pattern == glob.escape(arguments.subject()):
        return wording.EXACTLY_THIS
    return wording.any_of(tool.name) if pattern == "*" else f"`{escaped(f'{tool.name}({pattern})')}`"


def _block(text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _key(tool: Tool, arguments: Arguments, context: ToolContext) -> str:
    """Return what makes a call this one: what `_same` takes in, and its own id, as one step may ask for it twice."""
    return _digest([_same(tool, arguments, context), context.call_id])


def _same(tool: Tool, arguments: Arguments, context: ToolContext) -> str:
    """Return what calls have in common that are the same to people: thread, message, tool, exact arguments."""
    return _digest([str(context.thread), context.message_id, tool.name, arguments.model_dump(mode="json")])


def _digest(whole: JsonValue) -> str:
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode("utf-8", "replace")).hexdigest()[:32]
