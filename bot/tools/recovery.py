"""Recovery chosen by a person: what to do about a failed call that the model cannot repair by itself.

| code              | what a person may choose            | asked at the failure | with `tools.recovery` |
|-------------------|-------------------------------------|----------------------|-----------------------|
| sign_in_needed    | sign in, other input, go on without | first                | `sign_in`, `ask`      |
| mcp_unavailable   | retry, go on without                | first                | `ask`                 |
| tool_timeout      | retry, other input, go on without   | second               | `ask`                 |
| tool_rate_limited | retry, go on without                | second               | `ask`                 |
| tool_not_found    | other input, go on without          | second               | `ask`                 |

The model gets every other failure at once, and may try again: a tool never waits for a person where the model, or
time, can help. With `ask`, it has the first try where it may help itself: a person is asked when the same tool fails
in the same way again in one turn. Never asked: invalid arguments, what a rule or a person denied, scheduled messages,
more than `MOST_RECOVERIES` times in a turn, and once somebody chose to go on without or did not answer in time.

A retry goes through the gate as any call does, so a call that needs an approval is approved again. A call that found
nobody signed in has not run, and keeps its approval until a restart.

Whoever signs in need not press a button: the call goes on by itself. Calls of a turn that need the same sign-in share
one question. Where nobody else reads it, it has the link; elsewhere `/mcp connect` gives one. A link holds only for
the process that made it, so after a restart there is a new question with a new link.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import anyio
from cachetools import LRUCache

from bot import wording
from bot.config.settings import RecoveryChoice
from bot.ports.errors import SignInNeeded, ToolError
from bot.ports.tool import Arguments, Tool, ToolContext
from bot.tools.gate import LEAVE, Choice, Permits
from bot.tools.questions import DurableQuestions, Failure, Prompt, call_key, need_choice, options_of, place_of
from bot.tools.quote import plain_line, quote
from threads.model import Answer, ThreadId
from threads.scheduled_messages import due_of

MOST_RECOVERIES = 3
"""Questions about failed calls in one turn."""

MOST_TURNS = 1_000
"""Turns whose failures are counted."""

LONGEST_SUBJECT = 200
"""Characters of a call's subject in the question."""

Way = Literal["retry", "sign in", "other input", "go on without"]


@dataclass(frozen=True, slots=True)
class RecoveryOffer:
    """``may_have_run``: the call may have had effects before it failed. ``at``: the failure at which to ask."""

    ways: tuple[Way, ...]
    at: int
    may_have_run: bool = False


OFFERS: Mapping[str, RecoveryOffer] = {
    "mcp_unavailable": RecoveryOffer(("retry", "go on without"), 1, may_have_run=True),
    "tool_timeout": RecoveryOffer(("retry", "other input", "go on without"), 2, may_have_run=True),
    "tool_rate_limited": RecoveryOffer(("retry", "go on without"), 2),
    "tool_not_found": RecoveryOffer(("other input", "go on without"), 2),
    SignInNeeded.code: RecoveryOffer(("sign in", "other input", "go on without"), 1),
}


_OFFERED: Mapping[RecoveryChoice, Mapping[str, RecoveryOffer]] = {
    "sign_in": {SignInNeeded.code: OFFERS[SignInNeeded.code]},
    "ask": OFFERS,
    "model": {},
}


class SignIn(Protocol):
    """The sign-in of the asker of a call at its MCP ``server``."""

    @property
    def server(self) -> str: ...

    @property
    def private(self) -> bool:
        """Return whether the instructions have a link, because nobody else reads them."""

    async def is_done(self) -> bool:
        """Return whether the asker is signed in. Raises `StoreUnavailable`."""

    async def instructions(self) -> str:
        """Return how to sign in, for the asker. Raises `StoreUnavailable`."""

    def watching(self, on_done: Callable[[], Awaitable[None]]) -> AbstractContextManager[None]:
        """Call *on_done* once the asker is signed in, if that is within the block."""


class Recovery:
    """Asks about failed calls, and as `Permits` brings back a failure that a restart found open.

    *choice* is the setting `tools.recovery`. *sign_in* returns the sign-in of a call of this tool, None if its asker
    has none.
    """

    def __init__(
        self,
        permits: Permits,
        questions: DurableQuestions,
        *,
        choice: RecoveryChoice,
        sign_in: Callable[[str, ToolContext], SignIn | None] = lambda *_: None,
    ) -> None:
        self._permits, self._questions, self._sign_in = permits, questions, sign_in
        self._offers = _OFFERED[choice]
        self._asking: LRUCache[tuple[ThreadId, str, str], anyio.Lock] = LRUCache(MOST_TURNS)
        """Held while a turn asks for the sign-in at a server."""
        self._signed_in: LRUCache[str, None] = LRUCache(MOST_TURNS)
        """Calls that were made again without a question, because the asker had signed in meanwhile."""
        self._failures: LRUCache[tuple[ThreadId, str, str, str], int] = LRUCache(MOST_TURNS)
        self._left_alone: LRUCache[tuple[ThreadId, str], None] = LRUCache(MOST_TURNS)

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        """Return when the call may run. Raises the failure of a call that ran before a restart."""
        if failure := self._failure(call_key(tool.name, arguments, context)):
            raise _StoredFailure(failure)
        await self._permits.permit(tool, arguments, context)

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        waits = self._permits.waits(tool, arguments, context)
        return waits or self._failure(call_key(tool.name, arguments, context)) is not None

    async def choose(
        self, tool: Tool, arguments: Arguments, error: ToolError, context: ToolContext
    ) -> Choice:
        """Return what a person chooses. Returns `LEAVE` if the failure is none for a person, or nobody is there.

        Raises `ToolDenied` or `StoreUnavailable` if the disk refuses.
        """
        if error.code != SignInNeeded.code:
            return await self._choose(tool, arguments, error, context)
        if (sign_in := self._sign_in(tool.name, context)) is None:
            return LEAVE
        key = call_key(tool.name, arguments, context)
        asked = context.thread, context.message_id, sign_in.server
        async with self._asking.setdefault(asked, anyio.Lock()):
            if await self._goes_on(key, sign_in):
                return _again(error)
            return await self._choose(tool, arguments, error, context, sign_in)

    async def _choose(
        self,
        tool: Tool,
        arguments: Arguments,
        error: ToolError,
        context: ToolContext,
        sign_in: SignIn | None = None,
    ) -> Choice:
        key = call_key(tool.name, arguments, context)
        ways = self._ways(tool, error, context, again=self._failure(key) is not None)
        if not ways:
            return LEAVE
        prompt = partial(_prompt, tool, arguments, error, ways)
        if sign_in:
            answer = await self._ask_to_sign_in(key, context, prompt, sign_in)
        else:
            answer = await self._questions.ask(key, context, prompt())
        turn = context.thread, context.message_id
        if answer is None or not answer.by:
            self._left_alone[turn] = None
            return LEAVE
        if (place := place_of(_labels(ways), answer.words)) is None:
            return Choice(suggestion=OTHER_INPUT, words=answer.words)
        if (way := ways[place]) == "go on without":
            self._left_alone[turn] = None
            return Choice(suggestion=WITHOUT, words=wording.RECOVERY_LABELS[way])
        await self._questions.use(key)
        return _again(error)

    async def _goes_on(self, key: str, sign_in: SignIn) -> bool:
        """Return whether a call is made again without a question: its asker has signed in since it was made."""
        record = self._questions.find(key)
        answered = record is not None and record.state != "open"
        if answered or key in self._signed_in or not await sign_in.is_done():
            return False
        self._signed_in[key] = None
        if record:
            await self._questions.use(key)
        return True

    async def _ask_to_sign_in(
        self, key: str, context: ToolContext, prompt: Callable[..., Prompt], sign_in: SignIn
    ) -> Answer | None:
        record = self._questions.find(key)
        if record and record.state != "open":
            return await self._questions.ask(key, context, prompt())
        asked, signed_in = prompt(await sign_in.instructions()), False
        words = options_of(asked.labels)[0].words

        def fault(given: str) -> str:
            too_early = place_of(asked.labels, given) == 0 and not signed_in
            return wording.not_signed_in(sign_in.server) if too_early else asked.fault(given)

        async def close() -> None:
            nonlocal signed_in
            signed_in = True
            await self._questions.answer(key, context, words)

        with sign_in.watching(close):
            return await self._questions.ask(key, context, replace(asked, fault=fault), anew=sign_in.private)

    def _ways(self, tool: Tool, error: ToolError, context: ToolContext, *, again: bool) -> tuple[Way, ...]:
        """Return what a person may choose now. *again*: the question is open already."""
        offer, turn = self._offers.get(error.code), (context.thread, context.message_id)
        if offer is None or due_of(context.message_id) or turn in self._left_alone:
            return ()
        failed = (*turn, tool.name, error.code)
        self._failures[failed] = self._failures.get(failed, 0) + 1
        may_ask = self._failures[failed] >= offer.at
        may_ask = may_ask and self._questions.count(context, "recovery") < MOST_RECOVERIES
        return offer.ways if again or may_ask else ()

    def _failure(self, key: str) -> Failure | None:
        record = self._questions.find(key)
        return record.failure if record else None


class _StoredFailure(ToolError):
    """A failure from before a restart, with the code that it had."""

    def __init__(self, failure: Failure) -> None:
        self.code = failure.code
        super().__init__(failure.message, suggestion=failure.suggestion, origin=failure.origin)


OTHER_INPUT = "A person was asked about this failure and wrote how to go on; see `person`."
WITHOUT = "A person was asked about this failure and chose to go on without this call. Do not make it again."


def _again(error: ToolError) -> Choice:
    return Choice(retry=True, permitted=isinstance(error, SignInNeeded))


def _labels(ways: tuple[Way, ...]) -> tuple[str, ...]:
    return tuple(wording.RECOVERY_LABELS[way] for way in ways)


def _prompt(
    tool: Tool, arguments: Arguments, error: ToolError, ways: tuple[Way, ...], repair: str = ""
) -> Prompt:
    labels = _labels(ways)
    subject = plain_line(arguments.subject())[:LONGEST_SUBJECT]
    risky = OFFERS[error.code].may_have_run and tool.risk != "read" and "retry" in ways
    other = "other input" in ways
    return Prompt(
        "recovery",
        wording.tool_failed(
            tool.name, error.code, quote(subject) if subject else "", risky=risky, other=other, repair=repair
        ),
        labels,
        other,
        f"{tool.name}: {wording.RECOVERABLE[error.code]}",
        _need_input(labels) if other else need_choice(labels),
        Failure(code=error.code, message=str(error), suggestion=error.suggestion, origin=error.origin),
    )


def _need_input(labels: tuple[str, ...]) -> Callable[[str], str]:
    """Return the fault of words that are blank, or only say that there is other input."""
    other = labels.index(wording.RECOVERY_LABELS["other input"])
    return lambda words: "" if words.strip() and place_of(labels, words) != other else wording.WRITE_INPUT
