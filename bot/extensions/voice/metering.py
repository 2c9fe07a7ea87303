"""The budget of transcriptions: the most that a recording can cost is reserved, and what it did cost is committed.

Only the provider can tell how long a recording is: what a platform says comes from the sender's program. So its size
bounds it, at the lowest rate of bits that speech is sent with. A provider counts seconds or tokens. The price may be
for the other one, so a count of one gives an upper bound of the other.

| it ended with                                       | charge                         |
|-----------------------------------------------------|--------------------------------|
| a transcript, with the provider's count             | that count                     |
| a transcript without a count                        | the reservation                |
| an error of the provider, or no connection          | nothing                        |
| an interruption after the recording was sent        | the reservation                |
| the end of the process                              | the reservation                |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from bot.budget.accounts import Account
from bot.budget.money import micros
from bot.extensions.voice.prices import AudioRate, audio_price_fix
from bot.extensions.voice.recording import AudioUsage, TranscriptionRequest
from bot.ports.errors import PriceUnknown
from bot.ports.model import Completion, ModelWrapper, Request, Usage
from threads.model import OnEvent
from threads.wording import code_of

BYTES_PER_SECOND = 1_000
"""The lowest rate of MP3, 8 kbit/s. Chat platforms record speech with four times as much and more."""

AUDIO_TOKENS_PER_SECOND = 10
"""OpenAI counts a token for each 100 ms of speech (platform.openai.com/docs/guides/realtime-costs)."""

TEXT_TOKENS_PER_SECOND = 10
"""Tokens of a transcript: nobody speaks that fast in any script."""


def longest(size: int) -> AudioUsage:
    """Return the most that a recording of *size* bytes can use."""
    return of_seconds(size / BYTES_PER_SECOND)


def of_seconds(seconds: float) -> AudioUsage:
    """Return an upper bound of the usage of so many seconds."""
    heard = math.ceil(seconds * AUDIO_TOKENS_PER_SECOND)
    written = math.ceil(seconds * TEXT_TOKENS_PER_SECOND)
    return AudioUsage(input=heard, output=written, audio_tokens=heard, seconds=seconds)


def completed(counted: AudioUsage, most: AudioUsage) -> AudioUsage:
    """Return a provider's count with what it did not count; *most* if it counted nothing."""
    if counted.input:
        heard = min(counted.audio_tokens or counted.input, counted.input)
        seconds = counted.seconds or heard / AUDIO_TOKENS_PER_SECOND
        return replace(counted, audio_tokens=heard, seconds=seconds)
    return of_seconds(counted.seconds) if counted.seconds else most


@dataclass(frozen=True, slots=True)
class MeteredTranscription(ModelWrapper):
    """A transcription model that reserves each call before it goes out, and commits it when it ends.

    ``rate`` returns the rate of a call that begins now, None if the price is unknown.
    """

    account: Account
    rate: Callable[[], AudioRate | None]

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        if (rate := self.rate()) is None and self.account.policy.binding:
            raise PriceUnknown(f"the price of {self.name} is not known. {audio_price_fix(self.name)}")
        most = longest(request.file.size if isinstance(request, TranscriptionRequest) else 0)
        opened = await self.account.reserve(self.name, micros(rate(most)) if rate else 0)
        sent = False

        def commit(charged: AudioUsage, counted: AudioUsage, code: str) -> None:
            """Charge a call, and count only those tokens that the provider has counted."""
            usage = Usage(input=counted.input, output=counted.output)
            self.account.commit(opened, usage, None if rate is None else micros(rate(charged)), code)

        def meter(usage: Usage) -> None:
            nonlocal sent
            sent = True
            request.meter(usage)

        try:
            completion = await self.model.complete(replace(request, meter=meter), on_event)
        except BaseException as error:
            code = code_of(error) if isinstance(error, Exception) else "turn_stopped"
            commit(most if sent else AudioUsage(), AudioUsage(), code)
            raise
        counted = completion.usage if isinstance(completion.usage, AudioUsage) else AudioUsage()
        commit(completed(counted, most), counted, "ok")
        return completion
