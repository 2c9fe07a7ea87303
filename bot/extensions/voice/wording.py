"""What people read about recordings, and what the model reads in their place."""

from __future__ import annotations

from bot.wording import REASONS
from threads import wording

CANNOT_LISTEN = (
    "I cannot listen to recordings here, so please write it to me instead. "
    "Whoever runs this bot can have me listen: it takes a `transcription` model in the settings."
)
NOTHING_SAID = "I heard no words in it."

SPOKEN = "Said by them in a voice message ({path}); this is its transcript, made by a machine that may have misheard:"


def listening(audio: str) -> str:
    """Say, as a label of running work, what is being listened to."""
    return "listening to your voice message" if audio == "voice" else "listening to a recording"


def heard(words: str) -> str:
    """Show what a voice message was understood as."""
    return f"I heard: “{' '.join(words.split())}”"


def unheard(name: str, why: str) -> str:
    """Say that a recording has no transcript, *why*, and that it is not lost."""
    return why if why == CANNOT_LISTEN else f"I could not listen to {name}: {why} I have it as a file only."


def unheard_for_model(file: str, why: str) -> str:
    """Tell the model of a voice message without a transcript."""
    return f"A voice message of theirs ({file}) could not be transcribed: {why}"


def too_long_to_hear(limit: int) -> str:
    """Say that a recording has more than *limit* bytes."""
    return f"it is larger than {limit // 1_000_000} MB, the most that can be transcribed."


def not_transcribed(error: Exception) -> str:
    """Say in a sentence why a recording could not be transcribed."""
    if isinstance(error, OSError):
        return "my disk does not give it back."
    if (code := wording.code_of(error)) == "budget_exceeded":
        return "I do not know what that costs, and my budget allows no guess."
    if code in ("bad_request", "context_overflow", "content_policy"):
        return "the service that transcribes does not take it."
    return f"the service that transcribes {REASONS.get(code, 'has trouble')}."
