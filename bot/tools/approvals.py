"""Asks a person in the thread about a call. An approval is bound to the exact arguments, and is on disk.

| an approval is | event                                      | then                                              |
|----------------|--------------------------------------------|---------------------------------------------------|
| none           | the policy says "ask"                      | open, on disk; then the question is posted        |
| open           | *allow once* or *always here* is pressed   | used, on disk; then the call runs                 |
| open           | *deny* is pressed, or its time is over     | denied, on disk; not asked again for the message  |
| open           | a restart                                  | open: it has not run; asked again, same buttons   |
| used           | the same call again, or a replayed press   | asked again: one press is for one call            |
| any            | the tool is new or has changed (`Changing`) | asked, whatever the policy and *always here* allow |

Each call of a step has its own record, time and answer. Only the author of the message or an admin may press, never a
model. A call with other arguments is another call. *Always here* is for this thread and for what its pattern matches.
"""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from bot import wording
from bot.guards.policy import Policy
from bot.observe.audit import Note
from bot.ports.errors import ToolDenied
from bot.ports.tool import Arguments, Changing, Tool, ToolContext
from bot.tools.labels import format_arguments
from bot.tools.questions import digest
from threads.errors import PostFailed, StoreUnavailable
from threads.invisible_text import escaped
from threads.model import Answer, Option, Question, ThreadId, WallClock
from threads.store.disk import Offload
from threads.store.json_file import JsonState, State

log = logging.getLogger(__name__)

MAX_INLINE = 1_500
"""Characters of the arguments in the question itself; longer ones are posted as a file."""

LONGEST_BRIEF = 80
"""Characters of a call's subject that name its question among others."""

LONGEST_AUDITED = 200
"""Characters of a call's subject in the audit; the question in the thread has all of it."""

MAX_GRANTS = 1_000
RETENTION = timedelta(days=1)
"""How long a decision is stored, so that nobody is asked about a denied call again."""

OPTIONS = (
    Option("Allow once", approve=True, words="once"),
    Option("Always here", approve=True, words="always"),
    Option("Deny", approve=False),
)


class _Approval(BaseModel):
    """``expires_at`` is UTC, ISO 8601; ``nth`` counts the earlier questions about the same call.

    ``same`` is equal for all calls of a message with the same arguments.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    state: Literal["open", "used", "denied"]
    thread_id: str
    message_id: str
    tool: str
    expires_at: str
    nth: int = 0
    same: str = ""


class _Grant(BaseModel):
    """A standing permission in a thread; with ``tainted`` it holds also after text from outside was read."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    thread_id: str
    tool: str
    pattern: str
    tainted: bool
    by: str
    at: str


class ApprovalsFile(JsonState):
    asked: dict[str, _Approval] = Field(default_factory=dict)
    grants: tuple[_Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class _Call:
    tool: Tool
    arguments: Arguments
    context: ToolContext

    @property
    def same(self) -> str:
        """Return a digest of the thread, the message, the tool and the exact arguments."""
        arguments = self.arguments.model_dump(mode="json")
        return digest([str(self.context.thread), self.context.message_id, self.tool.name, arguments])

    @property
    def key(self) -> str:
        """Return the id of this call: a step may contain the same call twice."""
        return digest([self.same, self.context.call_id])

    @property
    def news(self) -> str:
        """Return what nobody has accepted yet about the tool, or ""."""
        return self.tool.news if isinstance(self.tool, Changing) else ""

    def describe_grant(self, pattern: str) -> str:
        """Return what *always here* would allow, in words."""
        if not pattern:
            return wording.NOTHING_MORE
        if pattern == glob.escape(self.arguments.subject()):
            return wording.EXACTLY_THIS
        name = self.tool.name
        return wording.any_of(name) if pattern == "*" else f"`{escaped(f'{name}({pattern})')}`"


Review = Callable[[Tool, Arguments, ToolContext], Awaitable[Literal["allow", "ask"] | None]]
"""Returns whether a call may run or a person is asked; None leaves that to the rules. Raises `ToolDenied`."""


class Approvals:
    """The permissions of one bot, for `bot.tools.gate.Permits`.

    *note* writes an audit line; questions stay open for *expires_s*; *is_admin* takes the id of an author. *reviews*
    have a word on each call that the rules do not deny; the last one that has one counts.
    """

    def __init__(
        self,
        policy: Policy,
        state: State[ApprovalsFile],
        *,
        offload: Offload,
        now: WallClock,
        is_admin: Callable[[str], bool],
        note: Note,
        mask: Callable[[str], str],
        expires_s: float,
        reviews: Sequence[Review] = (),
    ) -> None:
        self._reviews = reviews
        self.policy, self._now, self._is_admin, self._note = policy, now, is_admin, note
        self._expires, self._offload, self._mask = timedelta(seconds=expires_s), offload, mask
        self._state = state

    def under(self, policy: Policy) -> Approvals:
        """Return these permissions with other rules. What was asked and allowed is the same."""
        approvals = copy(self)
        approvals.policy = policy
        return approvals

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        """Return when the call may run. Raises `ToolDenied`, also when nobody can be asked or nobody answers."""
        subject = arguments.subject()
        if (verdict := self.policy.verdict(tool.name, tool.risk, subject, tainted=context.tainted)) == "deny":
            raise ToolDenied("The rules here do not allow this.", suggestion="Do not try it again.")
        for review in self._reviews:
            verdict = await review(tool, arguments, context) or verdict
        call = _Call(tool, arguments, context)
        if call.news or (verdict == "ask" and not self._granted(context, tool.name, subject)):
            await self._ask(call)
        if call.news and isinstance(tool, Changing):
            await tool.accept()

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        """Return whether the call had an open question when the last process ended, so it has not run."""
        approval = self._find(_Call(tool, arguments, context))
        return approval is not None and approval.state == "open"

    def asks(self, thread: ThreadId, message_id: str) -> bool:
        """Return whether a question about a call of this message's turn is open and can still be answered."""
        now = self._now().isoformat(timespec="milliseconds")
        return any(
            approval.state == "open"
            and approval.thread_id == str(thread)
            and approval.message_id == message_id
            and approval.expires_at > now
            for approval in self._state.value.asked.values()
        )

    async def revoke(self, thread: ThreadId, by: str) -> int:
        """Remove all standing permissions of the thread; return how many. Raises `StoreUnavailable`."""
        removed = 0

        def change(old: ApprovalsFile) -> ApprovalsFile:
            nonlocal removed
            grants = tuple(grant for grant in old.grants if grant.thread_id != str(thread))
            removed = len(old.grants) - len(grants)
            return old.model_copy(update={"grants": grants}) if removed else old

        await self._state.change(change)
        if removed:
            await self._audit(thread, "", by, {"verdict": "taken back", "always": str(removed)})
        return removed

    def _granted(self, context: ToolContext, tool: str, subject: str) -> bool:
        """Return whether a standing permission holds; after text from outside, only those given after it."""
        return any(
            grant.thread_id == str(context.thread)
            and grant.tool == tool
            and (grant.tainted or not context.tainted)
            and fnmatchcase(subject, grant.pattern)
            for grant in self._state.value.grants
        )

    def _find(self, call: _Call) -> _Approval | None:
        """Return the approval of a call; older versions stored equal calls of a message as one."""
        approvals = self._state.value.asked
        return approvals.get(call.key) or approvals.get(call.same)

    def _denied(self, call: _Call) -> bool:
        return any(
            approval.state == "denied" and call.same in (id_, approval.same)
            for id_, approval in self._state.value.asked.items()
        )

    async def _ask(self, call: _Call) -> None:
        context, now = call.context, self._now()
        approval = self._open_approval(call, now)
        await self._save(call.key, approval)
        decided = False

        async def decide(answer: Answer | None) -> None:
            nonlocal decided
            if not decided:
                decided = True
                await self._decide(call, approval, answer)

        left_s = (datetime.fromisoformat(approval.expires_at) - now).total_seconds()
        answer: Answer | None = Answer(approved=False, by="")
        if left_s > 0:
            answer = await context.ask(await self._question(call, approval.nth, left_s, decide))
        await decide(answer)
        if answer is None:
            context.note(wording.nobody_to_ask(call.tool.name))
            raise ToolDenied("Nobody can be asked for permission here.", suggestion=DO_WITHOUT)
        if not answer.approved:
            if not answer.by:
                context.note(wording.not_decided(call.tool.name))
            why = "A person denied this." if answer.by else "Nobody allowed this in time."
            raise ToolDenied(why, suggestion=DO_WITHOUT)

    def _open_approval(self, call: _Call, now: datetime) -> _Approval:
        """Return the open approval of a call, perhaps one from before a restart. Raises `ToolDenied`."""
        before = self._find(call)
        if before and before.state == "open":
            return before.model_copy(update={"same": call.same})
        if self._denied(call):
            raise ToolDenied("This was denied already.", suggestion="Do not try it again; go on without it.")
        return _Approval(
            state="open",
            thread_id=str(call.context.thread),
            message_id=call.context.message_id,
            tool=call.tool.name,
            expires_at=(now + self._expires).isoformat(),
            nth=before.nth + 1 if before else 0,
            same=call.same,
        )

    async def _decide(self, call: _Call, approval: _Approval, answer: Answer | None) -> None:
        """Make a decision durable before anybody is told. Raises `ToolDenied` if the disk fails."""
        context, pattern, grant = call.context, self._pattern(call.arguments), None
        approved, by = (answer.approved, answer.by) if answer else (False, "")
        details = {
            "tool": call.tool.name,
            "verdict": "allowed" if approved else "denied",
            "about": self._mask(call.arguments.subject())[:LONGEST_AUDITED],
            "call": call.key,
        }
        if answer and approved and pattern and answer.words.strip().lower() == "always":
            details["always"] = pattern
            grant = _Grant(
                thread_id=str(context.thread),
                tool=call.tool.name,
                pattern=pattern,
                tainted=context.tainted,
                by=by,
                at=self._now().isoformat(timespec="seconds"),
            )
        if not by:
            details["why"] = "nobody could be asked" if answer is None else "nobody answered in time"
        state = "used" if approved else "denied"
        await self._save(call.key, approval.model_copy(update={"state": state}), grant)
        await self._audit(context.thread, context.message_id, by, details)

    async def _question(
        self, call: _Call, nth: int, within_s: float, keep: Callable[[Answer], Awaitable[None]]
    ) -> Question:
        author = call.context.asker.id
        return Question(
            await self._text(call),
            OPTIONS,
            lambda who: who == author or self._is_admin(who),
            about="a decision on what I may do",
            brief=self._brief(call),
            fault=lambda words: (
                "" if words.strip().lower() in {"", "once", "always"} else wording.ONCE_OR_ALWAYS
            ),
            same=f"{call.same} {call.context.call_id} {nth}",
            within_s=within_s,
            keep=keep,
        )

    async def _text(self, call: _Call) -> str:
        """Return the question, with the exact arguments: nothing is hidden, and nothing left out."""
        name = call.tool.name
        arguments = self._mask(
            format_arguments(call.arguments.model_dump(mode="json", exclude_defaults=True))
        )
        block = _block(arguments)
        if len(arguments) > MAX_INLINE and await self._attach(call, arguments):
            block = f"{_block(arguments[:MAX_INLINE])}\n{wording.WHOLE_IN_FILE}"
        outside = wording.OUTSIDE_READ if call.context.tainted else ""
        why = "\n\n".join(filter(None, [self._mask(call.news), outside]))
        return wording.may_i(name, block, why, call.describe_grant(self._pattern(call.arguments)))

    def _brief(self, call: _Call) -> str:
        """Return the call in one line: enough to find its question, not to decide it."""
        name, about = call.tool.name, " ".join(self._mask(escaped(call.arguments.subject())).split())
        return f"{name}: {about}" if len(about) <= LONGEST_BRIEF else f"{name}: {about[:LONGEST_BRIEF]}…"

    def _pattern(self, arguments: Arguments) -> str:
        """Return what *always here* would allow, or "" if the pattern has a secret, which must not be stored."""
        pattern = arguments.always()
        return pattern if self._mask(pattern) == pattern else ""

    async def _attach(self, call: _Call, text: str) -> bool:
        try:
            with NamedTemporaryFile(suffix=".txt") as file:
                path = Path(file.name)
                await self._offload(path.write_bytes, text.encode("utf-8", "replace"))
                await call.context.attach(f"{call.context.call_id}?", path, f"{call.tool.name}.txt")
        except (PostFailed, OSError) as error:
            log.info("approval.inline: arguments shown in the question, not as a file: %s", error)
            return False
        return True

    async def _save(self, key: str, approval: _Approval, grant: _Grant | None = None) -> None:
        """Make an approval durable. Raises `ToolDenied` if the disk fails: what is not on disk is not allowed."""
        oldest = (self._now() - RETENTION).isoformat()

        def change(old: ApprovalsFile) -> ApprovalsFile:
            approvals = {
                id_: before
                for id_, before in old.asked.items()
                if before.expires_at > oldest and id_ not in (key, approval.same)
            }
            grants = (*old.grants, grant)[-MAX_GRANTS:] if grant else old.grants
            return ApprovalsFile(asked={**approvals, key: approval}, grants=grants)

        try:
            await self._state.change(change)
        except StoreUnavailable as error:
            raise ToolDenied(
                "The permission for this could not be saved on disk.", suggestion="Try again later."
            ) from error

    async def _audit(self, thread: ThreadId, message_id: str, by: str, details: Mapping[str, str]) -> None:
        try:
            await self._note("approval", thread, message_id, by, details)
        except StoreUnavailable as error:
            log.error("audit.lost: %s", error, extra=details)  # noqa: TRY400 - the disk says why


DO_WITHOUT = "Do not try it again; go on without it, or ask what to do instead."


def _block(text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"
