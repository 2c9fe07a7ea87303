"""What changed for a thread since its last answer: its usual model, and its tools.

The user entry of a turn records the model and the tools of that turn (``Message.setup``), but only where they differ
from those before. A summary carries on what the messages had that it replaces. So the record survives restarts and
compactions, and a conversation that begins anew has none.

| since the last answer                                  | the person is told       | the model is told            |
|--------------------------------------------------------|--------------------------|------------------------------|
| the usual model is another one                         | once, above the answer   |                              |
| a tool is gone                                         | once, above the answer   | if it used it here           |
| there is a new tool                                    | once, above the answer   |                              |
| the thread has another model by `/model`, or had one   |                          |                              |
| another model stands in for one that fails             | by the failover          |                              |
| somebody with a scope of their own asked               |                          |                              |
| nothing was answered here yet                          |                          |                              |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bot import wording
from threads.model import Message, known

CHOSEN = "-"
"""Stands for a model that a person chose with `/model`: they know when it changes."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """The usual model of a thread, `CHOSEN` for a chosen one, and the names of its tools.

    ``scope`` is the asker's own scope of the settings, blank for everybody else: others in the thread may have
    another model and other tools, and that is no change.
    """

    model: str
    tools: frozenset[str]
    scope: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelSetup:
        model, _, rest = text.partition(" ")
        names, _, scope = rest.partition(" ")
        return cls(model, frozenset(filter(None, names.split(","))), scope)

    def __str__(self) -> str:
        return f"{self.model} {','.join(sorted(self.tools))} {self.scope}"


@dataclass(slots=True)
class _Records:
    """The last record of a conversation, and by scope the one that held at the last answer."""

    latest: str = ""
    answered: dict[str, str] = field(default_factory=dict)


def latest_setup(messages: Sequence[Message]) -> str:
    """Return the last record in a conversation, blank if there is none."""
    return known(messages, _records).latest


def answered_setup(messages: Sequence[Message], scope: str = "") -> str:
    """Return the record that held at the last answer in this *scope*, blank if there is none."""
    return known(messages, _records).answered.get(scope, "")


def _records(before: _Records | None, new: Sequence[Message]) -> _Records:
    """Read the records of new messages; see `threads.model.Fact`."""
    records = before or _Records()
    for message in new:
        records.latest = message.setup or records.latest
        # A summary is of answers.
        ends = message.role == "assistant" if message.source else bool(message.setup)
        if ends and records.latest:
            records.answered[ModelSetup.parse(records.latest).scope] = records.latest
    return records


def changes(old: ModelSetup, new: ModelSetup) -> str:
    """Return the note for people on what changed, blank if nothing did."""
    told = CHOSEN not in (old.model, new.model) and old.model != new.model
    model = (old.model, new.model) if told else None
    return wording.setup_changed(model, sorted(old.tools - new.tools), sorted(new.tools - old.tools))


def missed_tools(old: ModelSetup, new: ModelSetup, messages: Sequence[Message]) -> list[str]:
    """Return the tools that the model has used in this conversation and does not have any more."""
    return sorted({call.name for message in messages for call in message.calls} & (old.tools - new.tools))
