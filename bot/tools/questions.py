"""Questions to a person whose answer is in words, on disk. They are never an approval: no answer allows a call.

| a question is | event                                        | then                                               |
|---------------|----------------------------------------------|----------------------------------------------------|
| none          | it is asked                                  | open, on disk; then it is posted                   |
| open          | a person answers                             | answered, on disk; then the turn continues         |
| open          | its time is over                             | expired, on disk                                   |
| open          | nobody can be asked                          | used, on disk                                      |
| open          | a restart                                    | open: asked again, with the same buttons and time  |
| answered      | a restart before the result was saved        | answered: the same answer, not asked again         |
| answered      | the failed call is made again                | used, on disk; then the call runs                  |
| used          | that call fails again                        | open: a new question                               |

Only the author of the message or an admin may answer. A question belongs to one call of one message.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import anyio
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from bot import wording
from bot.observe.audit import Note
from bot.ports.errors import ToolDenied
from bot.ports.tool import Arguments, ToolContext
from threads.actor.questions import Questions
from threads.errors import StoreUnavailable
from threads.model import Answer, Incoming, Option, Question, ThreadId, WallClock, chosen
from threads.store.json_file import JsonState, State

log = logging.getLogger(__name__)

RETENTION = timedelta(days=1)
"""How long a question is stored after its time is over."""

LOOK_S = 0.25
"""Seconds between two looks whether a question is open."""

LONGEST_ANSWER = 50_000
"""Characters of an answer; a longer one is cut."""

Topic = Literal["question", "recovery"]


class Failure(BaseModel):
    """The failure of a call that a person is asked about. A restart loses its partial output."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    code: str
    message: str
    suggestion: str = ""
    origin: str = ""


class Asked(BaseModel):
    """One question. ``asked_at`` and ``expires_at`` are UTC, ISO 8601; ``nth`` counts earlier ones about its call.

    ``by`` gave the answer, blank for none; ``answer_id`` is the id of a message that is the answer.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    state: Literal["open", "answered", "expired", "used"]
    topic: Topic
    thread_id: str
    message_id: str
    asker: str
    asked_at: str
    expires_at: str
    labels: tuple[str, ...] = ()
    free_text: bool = False
    failure: Failure | None = None
    nth: int = 0
    by: str = ""
    words: str = ""
    answer_id: str = ""

    @property
    def answer(self) -> Answer:
        return Answer(approved=False, by=self.by, words=self.words)

    def takes(self, text: str) -> bool:
        """Return whether a message with this text is an answer."""
        return self.free_text or place_of(self.labels, text) is not None


class QuestionsFile(JsonState):
    asked: dict[str, Asked] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked: ``text`` is Markdown, ``labels`` are the buttons' without numbers, ``brief`` is for lists.

    ``fault`` returns what is wrong with the words of an answer, or a blank.
    """

    topic: Topic
    text: str
    labels: tuple[str, ...]
    free_text: bool
    brief: str
    fault: Callable[[str], str]
    failure: Failure | None = None


SKIP = Option(wording.SKIP, approve=False, words="#skip")
"""The button of a question without answers to choose from."""


def options_of(labels: tuple[str, ...]) -> tuple[Option, ...]:
    """Return the options of a question. Their numbers set them apart from the buttons of an approval.

    They are letters where an answer is a number itself: nobody can tell what "2" means then.
    """
    if not labels:
        return (SKIP,)
    marks = "abcde" if any(label.isdigit() for label in labels) else "12345"
    return tuple(
        Option(f"{mark}. {label}", approve=False, words=f"#{mark}")
        for mark, label in zip(marks, labels, strict=False)
    )


def place_of(labels: tuple[str, ...], words: str) -> int | None:
    """Return the place of the label that *words* choose, None if they choose none."""
    options = options_of(labels)
    option = chosen(options, words)
    return options.index(option) if option else None


def call_key(tool: str, arguments: Arguments, context: ToolContext) -> str:
    """Return the id of a call: of its thread, message, tool, exact arguments and call id."""
    given = arguments.model_dump(mode="json")
    return digest([str(context.thread), context.message_id, tool, given, context.call_id])


def digest(whole: JsonValue) -> str:
    """Return an id of everything in *whole*."""
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode("utf-8", "replace")).hexdigest()[:32]


class DurableQuestions:
    """The questions of one bot. *note* writes an audit line; a question stays open for *expires_s* seconds."""

    def __init__(
        self,
        state: State[QuestionsFile],
        *,
        now: WallClock,
        is_admin: Callable[[str], bool],
        note: Note,
        mask: Callable[[str], str],
        expires_s: float,
    ) -> None:
        self._state, self._now, self._is_admin = state, now, is_admin
        self._note, self._mask, self._expires = note, mask, timedelta(seconds=expires_s)
        self.open: Questions | None = None
        """The open questions of the bot that runs over these."""
        self._returned: set[str] = set()
        """Questions whose answer this process has returned. The same call of a later step asks again."""

    async def ask(
        self, key: str, context: ToolContext, prompt: Prompt, *, anew: bool = False
    ) -> Answer | None:
        """Ask a person about the call with this *key*, unless it is answered. Without an answer, ``by`` is blank.

        With *anew*, a question from before a restart does not hold any more, and another one is posted.
        Returns None if nobody can be asked. Raises `ToolDenied` if the disk refuses.
        """
        record = self.find(key)
        if record is None or record.state == "open":
            goes_on = None if anew else record
            record = await self._ask(key, context, prompt, goes_on or self._new(key, context, prompt))
        self._returned.add(key)
        return record.answer if record.state != "used" else None

    async def _ask(self, key: str, context: ToolContext, prompt: Prompt, record: Asked) -> Asked:
        await self._save(key, record)
        left_s = (datetime.fromisoformat(record.expires_at) - self._now()).total_seconds()
        result = record

        async def keep(answer: Answer) -> None:
            nonlocal result
            words = self._mask(answer.words)[:LONGEST_ANSWER]
            state: Literal["answered", "expired"] = "answered" if answer.by else "expired"
            end = {"state": state, "by": answer.by, "words": words, "answer_id": answer.message_id}
            result = record.model_copy(update=end)
            await self._save(key, result)
            await self._audit(context, prompt, result)

        if left_s <= 0:
            await keep(Answer(approved=False, by=""))
        elif await context.ask(self._question(key, context, prompt, record, left_s, keep)) is None:
            result = record.model_copy(update={"state": "used"})
            await self._save(key, result)
        return result

    def find(self, key: str) -> Asked | None:
        """Return the question of a call, unless its answer was used. It may be from before a restart."""
        record = self._state.value.asked.get(key)
        return None if record is None or record.state == "used" or key in self._returned else record

    def answer_of(self, key: str) -> Answer | None:
        """Return the answer to the question of a call."""
        record = self._state.value.asked.get(key)
        return record.answer if record and record.state in ("answered", "expired") else None

    async def answer(self, key: str, context: ToolContext, words: str) -> None:
        """Answer the question of a call for its asker, once it is open."""
        if self.open is None:
            return
        while True:
            record = self._state.value.asked.get(key)
            if record and (id_ := self.open.find(context.thread, _same(key, record))):
                answer = Answer(approved=False, by=context.asker.id, words=words)
                await self.open.decide(context.thread, id_, answer, "answer")
                return
            await anyio.sleep(LOOK_S)

    async def use(self, key: str) -> None:
        """Use an answer up, durably, before what it leads to begins. Raises `ToolDenied` if the disk refuses."""
        await self._save(key, self._state.value.asked[key].model_copy(update={"state": "used"}))

    def count(self, context: ToolContext, topic: Topic) -> int:
        """Return how many such questions the turn of a message has asked."""
        return sum(
            1 + record.nth
            for record in self._state.value.asked.values()
            if (record.thread_id, record.message_id, record.topic)
            == (str(context.thread), context.message_id, topic)
        )

    def asks(self, thread: ThreadId, message_id: str) -> bool:
        """Return whether a question of this message's turn is open and can still be answered."""
        now = self._instant()
        return any(
            (record.state, record.message_id) == ("open", message_id) and record.expires_at > now
            for record in self._of(thread)
        )

    def expects(self, incoming: Incoming, received_at: str) -> bool:
        """Return whether a message answers a question from before a restart, or did so before the restart."""
        return bool(self.answered_by(incoming)) or any(
            (record.state, record.asker) == ("open", incoming.author.id)
            and record.asked_at <= received_at
            and record.takes(incoming.text)
            for record in self._of(incoming.thread)
        )

    def answered_by(self, incoming: Incoming) -> str:
        """Return the id of the message whose turn asked what this message answered, or ""."""
        return next((r.message_id for r in self._of(incoming.thread) if r.answer_id == incoming.id), "")

    def _of(self, thread: ThreadId) -> list[Asked]:
        return [record for record in self._state.value.asked.values() if record.thread_id == str(thread)]

    def _instant(self, after: timedelta = timedelta()) -> str:
        return (self._now() + after).isoformat(timespec="milliseconds")

    def _new(self, key: str, context: ToolContext, prompt: Prompt) -> Asked:
        before, failure = self._state.value.asked.get(key), prompt.failure
        if failure:
            failure = failure.model_copy(update={"message": self._mask(failure.message)})
        return Asked(
            state="open",
            topic=prompt.topic,
            thread_id=str(context.thread),
            message_id=context.message_id,
            asker=context.asker.id,
            asked_at=self._instant(),
            expires_at=self._instant(self._expires),
            labels=prompt.labels,
            free_text=prompt.free_text,
            failure=failure,
            nth=before.nth + 1 if before else 0,
        )

    def _question(
        self,
        key: str,
        context: ToolContext,
        prompt: Prompt,
        record: Asked,
        within_s: float,
        keep: Callable[[Answer], Awaitable[None]],
    ) -> Question:
        asker = context.asker.id
        return Question(
            prompt.text,
            options_of(prompt.labels),
            lambda who: who == asker or self._is_admin(who),
            about="your answer",
            brief=prompt.brief,
            fault=prompt.fault,
            same=_same(key, record),
            within_s=within_s,
            keep=keep,
            kind="answer",
            asker=asker,
            free_text=prompt.free_text,
        )

    async def _save(self, key: str, record: Asked) -> None:
        """Make a question durable. Forgets those of earlier messages of its thread: their turns are over."""
        oldest = self._instant(-RETENTION)

        def change(old: QuestionsFile) -> QuestionsFile:
            stored = {
                id_: other
                for id_, other in old.asked.items()
                if other.expires_at > oldest
                and (other.thread_id != record.thread_id or other.message_id == record.message_id)
            }
            return QuestionsFile(asked={**stored, key: record})

        try:
            await self._state.change(change)
        except StoreUnavailable as error:
            raise ToolDenied(
                "The question could not be saved on disk.", suggestion="Go on without it."
            ) from error
        self._returned &= self._state.value.asked.keys()

    async def _audit(self, context: ToolContext, prompt: Prompt, record: Asked) -> None:
        option = chosen(options_of(record.labels), record.words) if record.by else None
        details: Mapping[str, str] = {
            "topic": prompt.topic,
            "about": self._mask(prompt.brief),
            "verdict": "answered" if record.by else "not answered",
            "choice": self._mask(option.label) if option else "",
            **({"code": record.failure.code} if record.failure else {}),
        }
        try:
            await self._note("question", context.thread, context.message_id, record.by, details)
        except StoreUnavailable as error:
            log.error("audit.lost: %s", error, extra=details)  # noqa: TRY400 - the disk says why


def _same(key: str, record: Asked) -> str:
    """Return what identifies a question about the call with this *key*."""
    return f"{key} {record.nth}"


def need_choice(labels: tuple[str, ...]) -> Callable[[str], str]:
    """Return the fault of words that choose none of the answers."""
    return lambda words: (
        wording.choose_one([option.label for option in options_of(labels)])
        if place_of(labels, words) is None
        else ""
    )
