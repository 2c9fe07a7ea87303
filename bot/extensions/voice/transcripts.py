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
from dataclasses import dataclass, field, replace
from functools import partial

from bot.budget.accounts import Account
from bot.extensions.voice import wording
from bot.extensions.voice.metering import MeteredTranscription
from bot.extensions.voice.openai_transcription import MAX_BYTES, OpenAITranscription
from bot.extensions.voice.prices import audio_rate
from bot.extensions.voice.recording import TranscriptionRequest
from bot.extensions.voice.settings import Transcription
from bot.host.agents import PlaceModels
from bot.host.extension import Host
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.build import secret_of
from bot.ports.errors import PriceUnknown, ProviderError
from bot.ports.model import Model
from threads.errors import error_fields
from threads.model import File, ToolFinished, ToolStarted, Turn

log = logging.getLogger(__name__)

LISTENING = "transcribe"
"""The name of the work, for those who watch the turn."""

SHOWN = 200
"""Characters of a transcript that the person is shown."""


async def cannot_listen(_turn: Turn, file: File, _models: PlaceModels) -> File:
    """Return the file; a recording has the problem that nothing here can listen to it."""
    return _unheard(file, file.problem or wording.CANNOT_LISTEN) if file.audio else file


@dataclass(frozen=True, slots=True)
class Transcripts:
    """Makes text of recordings with the transcription model of the settings, which name one that can be asked."""

    given: Transcription
    host: Host
    _adapters: dict[int, Model] = field(default_factory=dict, init=False)

    async def to_text(self, turn: Turn, file: File, models: PlaceModels) -> File:
        """Return the file, with its text or its problem if it is a recording.

        Raises `BudgetExceeded` if nobody grants the money, and `StoreUnavailable`.
        """
        if not file.audio:
            return file
        why = file.problem or (wording.too_long_to_hear(MAX_BYTES) if file.size > MAX_BYTES else "")
        return _unheard(file, why) if why else await self._transcribe(turn, file, models)

    async def _transcribe(self, turn: Turn, file: File, models: PlaceModels) -> File:
        await turn.tell(ToolStarted(LISTENING, file.name, file.path, wording.listening(file.audio)))
        heard: File | None = None
        try:
            if text := await self._text_of(turn, file, models):
                heard = await self._with_text(turn, file, text)
        except (ProviderError, PriceUnknown, OSError) as error:
            ids = {"thread_id": str(turn.incoming.thread), "message_id": turn.incoming.id}
            log.warning("transcription.failed: %s", error, extra={**ids, **error_fields(error)})
            return _unheard(file, wording.not_transcribed(error))
        finally:
            await turn.tell(ToolFinished(LISTENING, heard is not None, file.path))
        return heard or _unheard(file, wording.NOTHING_SAID)

    async def _text_of(self, turn: Turn, file: File, models: PlaceModels) -> str:
        rate = partial(audio_rate, models.catalog, self.given.model, self.given.usd_per_minute)

        def metered(account: Account, key: int) -> Model:
            return MeteredTranscription(self._adapter(key, models.http), account, rate)

        model = await models.with_policies(turn, self.given.model, metered)
        thread, read = str(turn.incoming.thread), partial(turn.bytes_of, file)
        request = TranscriptionRequest("", (), max_tokens=0, cache_key=thread, file=file, read=read)
        return (await model.complete(request, turn.tell)).message.text.strip()

    def _adapter(self, key: int, http: SharedHttp) -> Model:
        """Return the adapter with the provider's key at the place *key*. Raises `ConfigInvalid` if it is missing."""
        if key not in self._adapters:
            settings, (kind, _, model) = self.host.settings, self.given.model.partition("/")
            provider = settings.providers[kind]
            secret = secret_of(provider, kind, self.host.environ, key)
            self._adapters[key] = OpenAITranscription(
                kind, model, secret, provider.base_url, http, settings.stream_timeouts_s, self.host.now
            )
        return self._adapters[key]

    async def _with_text(self, turn: Turn, file: File, text: str) -> File:
        if file.audio == "file":
            return await turn.with_text(file, text)
        if self.given.show:
            turn.note(wording.heard(text if len(text) <= SHOWN else f"{text[:SHOWN].rstrip()}…"))
        return replace(file, said=f"{wording.SPOKEN.format(path=file.path)}\n{text}")


def _unheard(file: File, why: str) -> File:
    """Return a recording without a transcript, and *why*."""
    said = wording.unheard_for_model(file.path or file.name, why) if file.audio == "voice" else ""
    return replace(file, problem=why, said=said, told=wording.unheard(file.name, why))
