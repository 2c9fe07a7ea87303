"""Commands in threads: `/stop`, `!stop`, a bare "stop", and the rest. Control commands never queue behind a turn.

Some commands are turns of their own and do queue: `/compact` calls the model, `/retry` asks it again, and some of
extensions have work to do.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal, Protocol, get_args

import anyio

from bot import wording
from threads.actor.questions import Questions
from threads.actor.registry import Registry
from threads.journal.records import PendingMessage
from threads.model import Answer, Incoming, Message, QuestionKind, ThreadId, Way
from threads.scheduled_messages import due_of, is_command

Name = Literal[
    "stop", "status", "new", "model", "usage", "approve", "deny", "answer", "compact", "retry", "memory", "help",
]  # fmt: skip

MEANINGS: Mapping[str, str] = {
    "/stop": "stop what I am doing here, and drop waiting messages",
    "/status": "show what I am doing here",
    "/new": "archive this conversation and start over",
    "/model [NAME] [off | low | medium | high]": "show the model of this thread, or choose another and how much it "
    "reasons; `default` is the usual one",
    "/usage": "show tokens and cost, and the limits",
    "/compact": "summarise the earlier part of this conversation to make room",
    "/memory [forget ID]": "list what I remember here, or forget a note",
    "/approve [ID] [always | AMOUNT]": "answer my question with yes; if several are open, the one with this ID",
    "/deny [ID | all | always]": "answer with no, to one or to all, or revoke what is always allowed here",
    "/answer [ID] TEXT": "answer a question that asks for words; this allows nothing",
    "/retry": "try the last failed message again, if you like after `compact`, `new` or `without-files`",
    "/help": "show this list",
}

ABOUT_A_THREAD = frozenset({"new", "compact", "retry", "approve", "deny", "answer", "memory"})
"""Commands that need a thread. Some platforms also accept slash commands in a channel."""

LOOK_AGAIN_S = 0.2
"""Seconds between checks whether a question is open again, for an answer that came before."""

ASKED_AGAIN_S = 5.0
"""Seconds to wait for the other questions of a turn once the first is open again: one step asked all of them."""

_COMMAND = re.compile(r"[/!]([A-Za-z][A-Za-z-]{0,20})(?:\s+(.*))?", re.DOTALL)
_QUESTION = re.compile(r"q[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Command:
    """``name`` is blank for an unknown command.

    ``typed`` is the command as written, blank for an answer without one. ``words`` is what followed it.
    """

    name: Name | Literal[""]
    typed: str
    words: str = ""

    @property
    def is_turn(self) -> bool:
        return self.name in {"compact", "retry"}


class ModelCommands(Protocol):
    """What commands ask about models and money. Each method returns a sentence for the person."""

    def describe_model(self, thread: ThreadId) -> str: ...

    def list_models(self, thread: ThreadId) -> str:
        """Return the thread's model, the other models, and how to choose one."""

    async def choose_model(self, thread: ThreadId, words: str, conversation: Sequence[Message]) -> str:
        """Choose a model for the thread, how much it reasons, or both, or say why that is not possible.

        Raises `StoreUnavailable`, and `CapabilityMissing` for a model that cannot read the whole conversation.
        """

    async def describe_usage(self, thread: ThreadId, user: str) -> str:
        """Return what was spent, and the limits. Raises `StoreUnavailable`."""


class MemoryCommands(Protocol):
    """What commands do with the memory; see `bot.agent.prompt.memory.Memory`."""

    async def describe(self, thread: ThreadId) -> str: ...

    async def forget(self, thread: ThreadId, note_id: str, user: str) -> str:
        """Delete a note and confirm it. Raises `StoreUnavailable`."""


class OwnTurns(Protocol):
    """What commands do with turns that an extension answers itself; see `bot.host.extension.OwnTurns`."""

    def is_turn(self, thread: ThreadId, words: str) -> bool: ...

    def stops(self, thread: ThreadId, words: str) -> bool: ...

    async def forget(self, thread: ThreadId) -> None: ...


@dataclass(frozen=True, slots=True)
class ExtensionCommand:
    """A command that an extension brings; see `bot.host.extension.ThreadCommand`.

    ``obey`` gets the words after it and returns the reply. It may raise `StoreUnavailable`. Without it the reply is
    ``off``. With ``own`` the extension answers the turns of the command too.
    """

    usage: str
    meaning: str
    off: str
    needs_turn: Callable[[str], bool]
    obey: Callable[[str, Incoming], Awaitable[str]] | None = None
    own: OwnTurns | None = None

    def is_turn(self, thread: ThreadId, words: str) -> bool:
        """Return whether the words after it need a turn of the thread."""
        return self.own.is_turn(thread, words) if self.own else self.needs_turn(words)


ExtensionCommands = Mapping[str, ExtensionCommand]
"""The commands of extensions by name, without the slash."""


class Permissions(Protocol):
    """Standing permissions and open approvals; see `bot.tools.approvals.Approvals`."""

    async def revoke(self, thread: ThreadId, by: str) -> int:
        """Revoke all standing permissions of the thread, and return how many. Raises `StoreUnavailable`."""

    def asks(self, thread: ThreadId, message_id: str) -> bool:
        """Return whether a question about a call of this message's turn may still be answered."""


class AskedQuestions(Protocol):
    """Questions about an answer in words, as they are stored; see `bot.tools.questions.DurableQuestions`."""

    def asks(self, thread: ThreadId, message_id: str) -> bool:
        """Return whether a question of this message's turn may still be answered."""

    def expects(self, incoming: Incoming, received_at: str) -> bool:
        """Return whether a message answers a question from before a restart, or did so before the restart."""

    def answered_by(self, incoming: Incoming) -> str:
        """Return the id of the message whose turn asked what this message answered, or ""."""


@dataclass(frozen=True, slots=True)
class Controls:
    """What commands act on. ``memory`` is None when it is off.

    ``models`` returns the models for a message: they depend on its place and its author.

    ``troubles`` returns a clause for each thing that does not work now. ``on_stop`` gets the stopping message and how
    many turns and waiting messages it stopped. ``is_admin`` takes the id of a person.
    """

    registry: Registry
    questions: Questions
    models: Callable[[Incoming], ModelCommands]
    memory: MemoryCommands | None
    permissions: Permissions
    asked: AskedQuestions
    troubles: Callable[[], Sequence[str]]
    on_stop: Callable[[PendingMessage, int, int], None]
    is_admin: Callable[[str], bool]
    extensions: ExtensionCommands = field(default_factory=dict)

    def is_control(self, command: Command, incoming: Incoming) -> bool:
        """Return whether a command is carried out at once, beside any turn."""
        return not (self.is_turn(command, incoming.thread) and incoming.thread.root)

    def is_turn(self, command: Command, thread: ThreadId) -> bool:
        """Return whether a command needs a turn of its thread, wherever it was given."""
        theirs = self.extension_of(command)
        return theirs.is_turn(thread, command.words) if theirs else command.is_turn

    def extension_of(self, command: Command | None) -> ExtensionCommand | None:
        """Return the extension's command that this one is, or None."""
        return self.extensions.get(command.typed) if command and not command.name else None

    def as_turn(self, incoming: Incoming) -> Incoming:
        """Return the message of a command that is a turn, with what that turn does first."""
        command = command_of(incoming)
        if command and command.name == "compact":
            return replace(incoming, first="compact", control=True)
        theirs = self.extension_of(command)
        return replace(incoming, first="command") if theirs and theirs.own else incoming

    def decides(self, who: str, asker: str) -> bool:
        """Return whether a person may decide about another person's request."""
        return who == asker or self.is_admin(who)

    def command_of(self, pending: PendingMessage) -> Command | None:
        """Return the command in a message. What a person types is the answer to a question that is open for them."""
        incoming, thread = pending.incoming, pending.incoming.thread
        command = command_of(incoming)
        # An answer to a question is nothing but what is typed.
        has_more = incoming.files or incoming.quoted or incoming.replaces
        if command or has_more or pending.started or pending.intent or due_of(incoming.id):
            return command
        before_restart = self.asked.expects(incoming, pending.received.at) and self.registry.recovering(
            thread
        )
        if before_restart or self.questions.awaiting(thread, incoming.author.id, incoming.text):
            return Command("answer", "", incoming.text)
        return None


def parse(text: str) -> Command | None:
    """Return the command in a message, or ``None`` for a message to the model."""
    said = text.strip()
    if said.lower() == "stop":
        return Command("stop", "stop")
    if (match := _COMMAND.fullmatch(said)) is None:
        return None
    typed, words = match[1].lower(), (match[2] or "").strip()
    return next(
        (Command(name, typed, words) for name in get_args(Name) if name == typed), Command("", typed, words)
    )


def retried(words: str) -> tuple[str, *tuple[Way, ...]]:
    """Return the message id of a /retry, blank for the last failed message, and the ways to go on."""
    *before, last = words.split() or [""]
    ways = tuple(way for way in get_args(Way) if way == last)
    return (" ".join(before if ways else [*before, last]), *ways)


def command_of(incoming: Incoming) -> Command | None:
    """Return the command in a message.

    A scheduled message has none, because a model could have written it, unless an extension scheduled its command.
    Nor has one that takes another's place: that was said to the model.
    """
    if incoming.replaces:
        return None
    if due_of(incoming.id) is None:
        return parse(incoming.text)
    command = parse(incoming.text) if is_command(incoming.id) else None
    return command if command and not command.name else None


async def obey(command: Command, pending: PendingMessage, controls: Controls) -> str:
    """Carry out a command and return the reply. Raises `StoreUnavailable`."""
    in_channel = not pending.incoming.thread.root
    if in_channel and (command.name in ABOUT_A_THREAD or (command.name == "model" and command.words)):
        return wording.IN_ITS_THREAD
    if command.name == "":
        if theirs := controls.extension_of(command):
            thread, own = pending.incoming.thread, theirs.own
            if in_channel and (own or theirs.is_turn(thread, command.words)):
                return wording.IN_ITS_THREAD
            if own and own.stops(thread, command.words):
                return await _stop(command, pending, controls)
            return await theirs.obey(command.words, pending.incoming) if theirs.obey else theirs.off
        close = get_close_matches(command.typed, [*get_args(Name), *controls.extensions], n=1)
        hint = f" Did you mean /{close[0]}?" if close else ""
        hint += f" {wording.HOW_TO_ASK}" if in_channel else ""
        return f"I do not know /{command.typed}.{hint} /help lists what I know."
    return await _ACTIONS[command.name](command, pending, controls)


async def _stop(_: Command, pending: PendingMessage, controls: Controls) -> str:
    stopped = await controls.registry.stop(pending)
    controls.on_stop(pending, *stopped)
    return wording.stopped(*stopped)


async def _status(_: Command, pending: PendingMessage, controls: Controls) -> str:
    running, waiting = await controls.registry.status_everywhere(pending.incoming.thread)
    doing = "Working on a message" if running else "Idle"
    told = f"{doing}; {waiting} waiting. {controls.models(pending.incoming).describe_model(pending.incoming.thread)}"
    return f"{told} Trouble: {down.rstrip('.')}." if (down := ", ".join(controls.troubles())) else told


async def _new(_: Command, pending: PendingMessage, controls: Controls) -> str:
    if await controls.registry.forget(pending.incoming.thread):
        for own in filter(None, (one.own for one in controls.extensions.values())):
            await own.forget(pending.incoming.thread)
        return "I put our conversation aside. This is a fresh start."
    return "I still have something to answer here. Say /stop first, then /new."


async def _model(command: Command, pending: PendingMessage, controls: Controls) -> str:
    thread = pending.incoming.thread
    if command.words:
        conversation = await controls.registry.conversation(thread)
        return await controls.models(pending.incoming).choose_model(thread, command.words, conversation)
    return controls.models(pending.incoming).list_models(thread)


async def _usage(_: Command, pending: PendingMessage, controls: Controls) -> str:
    return await controls.models(pending.incoming).describe_usage(
        pending.incoming.thread, pending.incoming.author.id
    )


async def _memory(command: Command, pending: PendingMessage, controls: Controls) -> str:
    if controls.memory is None:
        return "I have no memory here: `tools.enabled` in my settings does not name it."
    thread = pending.incoming.thread
    match command.words.split():
        case []:
            return await controls.memory.describe(thread)
        case ["forget", note_id]:
            return await controls.memory.forget(thread, note_id, pending.incoming.author.id)
        case _:
            return "Say /memory, or /memory forget and the id of a note."


async def _decide(command: Command, pending: PendingMessage, controls: Controls) -> str:
    thread, (question_id, words) = pending.incoming.thread, _question_and_words(command)
    answer = Answer(command.name == "approve", pending.incoming.author.id, words)
    if command.name == "deny" and words.lower() == "always":
        return wording.revoked(await controls.permissions.revoke(thread, answer.by))
    if not await _asked_again(thread, question_id, controls):
        return wording.NOT_YET_ASKED
    kind: QuestionKind = "answer" if command.name == "answer" else "decision"
    return await controls.questions.decide(thread, question_id, answer, kind)


def _question_and_words(command: Command) -> tuple[str, str]:
    first, _, rest = command.words.partition(" ")
    return (first, rest.strip()) if _QUESTION.fullmatch(first) else ("", command.words)


async def _asked_again(thread: ThreadId, question_id: str, controls: Controls) -> bool:
    """Wait until a question from before a restart is open again. Returns False if it is unknown which is meant."""
    patience = ASKED_AGAIN_S
    while controls.registry.recovering(thread) and not controls.questions.is_open(thread, question_id):
        if not question_id:
            return False
        await anyio.sleep(LOOK_AGAIN_S)  # the answer stays pending until the turn asks again
        if controls.questions.is_open(thread) and (patience := patience - LOOK_AGAIN_S) <= 0:
            break
    return True


async def take_typed(pending: PendingMessage, controls: Controls) -> tuple[str, str]:
    """Give what a person typed to the question that is open for them.

    Returns the id of the message whose turn asked, or a blank if the message is no answer, and the reply to it. Both
    are blank if no question is open any more.
    """
    incoming, thread = pending.incoming, pending.incoming.thread
    while True:
        if asked_by := controls.asked.answered_by(incoming):
            return asked_by, ""
        if question := controls.questions.awaiting(thread, incoming.author.id, incoming.text):
            break
        if not controls.registry.recovering(thread) or not controls.asked.expects(
            incoming, pending.received.at
        ):
            return "", ""
        await anyio.sleep(LOOK_AGAIN_S)  # it stays pending until the turn asks again
    answer = Answer(False, incoming.author.id, incoming.text, incoming.id)
    reply = await question.give(answer)
    return (question.message_id, "") if question.answer is answer else ("", reply)


async def _help(_: Command, pending: PendingMessage, controls: Controls) -> str:  # noqa: ARG001 - one shape for all
    meanings = with_extensions(controls.extensions.values())
    return "\n".join(f"{usage}  {meaning}" for usage, meaning in meanings.items())


class Described(Protocol):
    """What `/help` says of a command of an extension."""

    @property
    def usage(self) -> str: ...

    @property
    def meaning(self) -> str: ...


def with_extensions(theirs: Iterable[Described]) -> Mapping[str, str]:
    """Return the meaning of each command by its usage: those of extensions stand before `/help`, the last."""
    return {
        **{usage: MEANINGS[usage] for usage in MEANINGS if usage != "/help"},
        **{one.usage: one.meaning for one in theirs},
        "/help": MEANINGS["/help"],
    }


_ACTIONS: Mapping[str, Callable[[Command, PendingMessage, Controls], Awaitable[str]]] = {
    "stop": _stop,
    "status": _status,
    "new": _new,
    "model": _model,
    "usage": _usage,
    "approve": _decide,
    "deny": _decide,
    "answer": _decide,
    "memory": _memory,
    "help": _help,
}
