"""How long things are kept, in settings.json: `retention`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from bot.config.parts import SettingsPart
from bot.config.scopes import Place
from bot.config.settings import ScopeName, Section, setting
from threads.model import ThreadId

Days = Annotated[int, Field(ge=1, le=36_500)]
"""At least a day: a platform may deliver a message again for an hour."""


def _is_place(name: str) -> str:
    if name.startswith("user:"):
        raise PydanticCustomError("form", "must be a place: a thread is of all who write there")
    return name


class ThreadRetention(Section):
    """Days of silence in a thread after which a part of it is forgotten; null keeps it."""

    conversation_days: Days | None = setting(
        None, "What the model sees of the thread, and its notes in the memory."
    )
    log_days: Days | None = setting(None, "The history for people and for search.")
    attachments_days: Days | None = setting(None, "Files that came with messages.")
    workspace_days: Days | None = setting(None, "All other files of the thread.")


class Retention(ThreadRetention):
    """How long things are kept. A thread with a message, a question or a schedule that is open is never touched."""

    audit_days: Days | None = setting(None, "Days for which the audit is kept.")
    spending_days: Days | None = setting(
        None, "Days for which each model call is kept; after that, sums by day and model."
    )
    dead_letters_days: Days | None = setting(
        None, "Days for which a message that was given up stays in its thread's history."
    )
    scopes: dict[Annotated[ScopeName, AfterValidator(_is_place)], ThreadRetention] = Field(
        default_factory=dict,
        description="What differs in a transport, a workspace or a channel; the most specific one counts.",
    )

    def of(self, thread: ThreadId) -> ThreadRetention:
        """Return what holds for a thread: each key by the most specific scope that has it."""
        keys = {name: getattr(self, name) for name in ThreadRetention.model_fields}
        for name in Place.in_thread(thread).scopes:
            if name in self.scopes:
                keys |= self.scopes[name].model_dump(exclude_unset=True)
        return ThreadRetention(**keys)


RETENTION = SettingsPart[Retention | None](
    "retention",
    Retention | None,
    FieldInfo(default=None, description="How long things are kept; null keeps everything."),
)
