"""What a transcription model is asked with, and what it counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bot.ports.model import Request, Usage
from threads.model import File


@dataclass(frozen=True, slots=True)
class TranscriptionRequest(Request):
    """A call for the text of a recording: a ``file``, whose bytes ``read`` returns. Nothing else is sent.

    ``read`` raises OSError.
    """

    file: File = field(kw_only=True)
    read: Callable[[], Awaitable[bytes]] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class AudioUsage(Usage):
    """The usage of a transcription. ``input`` has ``audio_tokens`` of the recording, which lasts ``seconds``.

    Providers count either tokens or seconds; what they did not count is 0.
    """

    audio_tokens: int = 0
    seconds: float = 0.0
