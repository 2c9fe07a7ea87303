"""Voice messages and other recordings as text, before the model is asked.

| a recording                              | becomes                                                             |
|------------------------------------------|---------------------------------------------------------------------|
| that the asker spoke in the chat         | the asker's own words, marked as a transcript; not text from outside |
| of any other kind, such as an .mp3       | the text of a file from outside, fenced as that of any document      |
| that cannot be transcribed, or is silent | a file with its problem, which the person is told once               |

Who records a voice message in the chat says it in person, as if it was typed. Nobody can know who speaks in a file.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bot import wording
from bot.ports.errors import PriceUnknown, ProviderError
from bot.ports.model import Model, Recording, Request
from threads.errors import error_fields
from threads.model import File, Incoming, ToolFinished, ToolStarted, Turn
from threads.store.attachments import ReadableFile

log = logging.getLogger(__name__)

LISTENING = "transcribe"
"""The name of the work, for those who watch the turn."""

SHOWN = 200
"""Characters of a transcript that the person is shown."""

ToText = Callable[[Turn, Sequence[File]], Awaitable[list[File]]]
"""Returns the files, each recording with its text or its problem."""


async def no_transcripts(_turn: Turn, files: Sequence[File]) -> list[File]:
    """Return the files; every recording has the problem that nothing here can listen to it."""
    return [
        replace(file, problem=wording.CANNOT_LISTEN) if file.audio and not file.problem else file
        for file in files
    ]


@dataclass(frozen=True, slots=True)
class Transcripts:
    """A `ToText`. ``model_for`` returns the transcription model with all its policies for one turn.

    ``max_bytes`` is the largest recording. With ``show`` the person sees the beginning of what was heard.
    """

    model_for: Callable[[Turn], Awaitable[Model]]
    max_bytes: int
    show: bool = True

    async def __call__(self, turn: Turn, files: Sequence[File]) -> list[File]:
        """See `ToText`. Raises `BudgetExceeded` if nobody grants the money, and `StoreUnavailable`."""
        return [
            await self._transcribe(turn, file) if file.audio and not file.problem else file for file in files
        ]

    async def _transcribe(self, turn: Turn, file: File) -> File:
        if file.size > self.max_bytes:
            return replace(file, problem=wording.too_long_to_hear(self.max_bytes))
        await turn.tell(ToolStarted(LISTENING, file.name, file.path, wording.listening(file.audio)))
        ok = False
        try:
            text = await self._text_of(turn, file)
            heard = await self._with_text(turn, file, text) if text else None
            ok = heard is not None
        except (ProviderError, PriceUnknown, OSError) as error:
            ids = {"thread_id": str(turn.incoming.thread), "message_id": turn.incoming.id}
            log.warning("transcription.failed: %s", error, extra={**ids, **error_fields(error)})
            return replace(file, problem=wording.not_transcribed(error))
        finally:
            await turn.tell(ToolFinished(LISTENING, ok, file.path))
        return heard or replace(file, problem=wording.NOTHING_SAID)

    async def _text_of(self, turn: Turn, file: File) -> str:
        model = await self.model_for(turn)
        recording = Recording(file.name, file.media_type, file.size, partial(turn.recording, file))
        request = Request("", (), max_tokens=0, cache_key=str(turn.incoming.thread), recording=recording)
        completion = await model.complete(request, turn.tell)
        return completion.message.text.strip()

    async def _with_text(self, turn: Turn, file: File, text: str) -> File:
        if file.audio == "file":
            return await turn.with_text(file, text)
        if self.show:
            turn.note(wording.heard(text if len(text) <= SHOWN else f"{text[:SHOWN].rstrip()}…"))
        return ReadableFile(
            file.name, file.path, file.media_type, file.size, audio=file.audio, text=text, text_path=file.path
        )


def not_heard(incoming: Incoming, files: Sequence[File]) -> str:
    """Return the reply to a message that is nothing but recordings which nobody could listen to; blank otherwise."""
    has_words = incoming.text.strip() or incoming.quoted
    if has_words or not files or not all(file.audio and file.problem for file in files):
        return ""
    return "\n\n".join(dict.fromkeys(map(problem_of, files)))


def problem_of(file: File) -> str:
    """Return the sentence about a recording without a transcript."""
    return file.problem if file.problem == wording.CANNOT_LISTEN else wording.unheard(file.name, file.problem)
