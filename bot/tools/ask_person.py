"""The tool `ask_person`: a question of the model to the person it works for, with buttons and free text.

The person is asked where approvals are asked, before the call runs: the wait takes no slot and no time of a tool. The
call then returns the answer. An answer is the person's own word, and it allows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from bot import wording
from bot.ports.errors import ToolDenied, ToolRateLimited
from bot.ports.tool import Arguments, Tool, ToolContext
from bot.tools.gate import Permits
from bot.tools.questions import DurableQuestions, Prompt, call_key, need_choice, place_of
from bot.tools.quote import plain_line, quote

MOST_QUESTIONS = 5
"""Questions of the model in one turn."""

MOST_ANSWERS, LONGEST_LABEL = 5, 60
"""Answers to choose from, and the characters of one: a button of Slack has room for 75, one of Discord for 80."""

LONGEST_BRIEF = 80
GO_ON = "Go on with what you have, and say what you assumed."

Name = Literal["ask_person"]
NAME: Name = "ask_person"


class AskPersonArguments(Arguments):
    question: str = Field(max_length=1_000, description="One question in plain words, without Markdown")
    answers: tuple[str, ...] = Field(
        default=(), max_length=MOST_ANSWERS, description="Up to 5 short answers to choose from"
    )
    free_text: bool = Field(default=True, description="Whether they may answer in their own words")

    @field_validator("question")
    @classmethod
    def _asks_something(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("ask something")
        return question

    @field_validator("answers")
    @classmethod
    def _are_labels(cls, answers: tuple[str, ...]) -> tuple[str, ...]:
        labels = tuple(map(plain_line, answers))
        if not all(0 < len(label) <= LONGEST_LABEL for label in labels):
            raise ValueError(f"each has 1 to {LONGEST_LABEL} characters")
        if len({label.casefold() for label in labels}) < len(labels):
            raise ValueError("no two may be the same")
        return labels

    @model_validator(mode="after")
    def _can_be_answered(self) -> AskPersonArguments:
        if not self.answers and not self.free_text:
            raise ValueError("without answers to choose from, free_text must be true")
        return self

    def subject(self) -> str:
        return self.question


@dataclass(frozen=True)
class AskPerson:
    questions: DurableQuestions
    name: ClassVar[Name] = NAME
    description: ClassVar[str] = (
        "Ask the person you work for one question and wait for the answer. Only when you cannot sensibly go on "
        "without it. Not for permission to use a tool: that is asked by itself, and no answer here gives one. "
        "Never for secrets."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = AskPersonArguments

    async def ask(self, arguments: AskPersonArguments, context: ToolContext) -> None:
        """Return when the question is answered, or its time is over. Raises `ToolError`."""
        key = call_key(NAME, arguments, context)
        if self.questions.find(key) is None and self.questions.count(context, "question") >= MOST_QUESTIONS:
            raise ToolRateLimited(
                f"{MOST_QUESTIONS} questions were asked for this message.", suggestion=GO_ON
            )
        if (answer := await self.questions.ask(key, context, _prompt(arguments, context))) is None:
            context.note(wording.NOBODY_TO_ANSWER)
            raise ToolDenied("Nobody can be asked here.", suggestion=GO_ON)
        if not answer.by:
            context.note(wording.NOT_ANSWERED)

    async def __call__(self, arguments: AskPersonArguments, context: ToolContext) -> JsonValue:
        answer = self.questions.answer_of(call_key(NAME, arguments, context))
        if answer is None or not answer.by:
            return {"answer": None, "why": "Nobody answered in time.", "next": GO_ON}
        if (place := place_of(arguments.answers, answer.words)) is not None and not arguments.answers:
            return {"answer": None, "why": "The person skipped the question.", "next": GO_ON}
        words = answer.words if place is None else arguments.answers[place]
        return {"answer": words, "by": "the person" if answer.by == context.asker.id else "an admin"}


def _prompt(arguments: AskPersonArguments, context: ToolContext) -> Prompt:
    labels = arguments.answers
    brief = plain_line(arguments.question)
    return Prompt(
        "question",
        wording.assistant_asks(
            quote(arguments.question),
            choices=bool(labels),
            free_text=arguments.free_text,
            outside=context.tainted,
        ),
        labels,
        arguments.free_text,
        brief if len(brief) <= LONGEST_BRIEF else f"{brief[:LONGEST_BRIEF]}…",
        _not_blank if arguments.free_text else need_choice(labels),
    )


def _not_blank(words: str) -> str:
    return "" if words.strip() else wording.WRITE_ANSWER


@dataclass(frozen=True)
class AskingPermits:
    """`Permits` that also put the question of an `ask_person` call, once the call itself may run."""

    permits: Permits
    questions: DurableQuestions

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        await self.permits.permit(tool, arguments, context)
        if isinstance(arguments, AskPersonArguments):
            await AskPerson(self.questions).ask(arguments, context)

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        return self.permits.waits(tool, arguments, context) or (
            tool.name == NAME and self.questions.find(call_key(NAME, arguments, context)) is not None
        )
