"""The model that transcribes, in settings.json: `transcription`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field
from pydantic.fields import FieldInfo

from bot.config.document import Document, object_in
from bot.config.parts import SettingsPart
from bot.config.settings import MODEL_NAME, ModelName, Section, Usd, built_in_providers, setting


class Transcription(Section):
    """Voice messages as text."""

    model: ModelName = Field(description="provider/model that transcribes, at openai or a compatible server.")
    usd_per_minute: Usd | None = setting(
        None, "Its price, USD per minute; null uses `prices`, then the price list."
    )
    show: bool = setting(True, "Quote the beginning of what was heard above the answer.")


def _faults(document: Document) -> Iterator[str]:
    model = object_in(document.get("transcription")).get("model")
    if not isinstance(model, str) or not MODEL_NAME.fullmatch(model):
        return
    name, path = model.partition("/")[0], "transcription.model"
    providers = object_in(document.get("providers"))
    known = sorted({*built_in_providers(), *providers})
    if name not in known:
        yield f'{path}: no provider is called "{name[:60]}"; there are {", ".join(known)[:400]}'
    elif "anthropic" in (name, object_in(providers.get(name)).get("kind")):
        yield f"{path}: must be a model of openai or of a compatible server; {name} does not transcribe"


TRANSCRIPTION = SettingsPart[Transcription | None](
    "transcription",
    Transcription | None,
    FieldInfo(default=None, description="Voice messages as text; null does not listen."),
    _faults,
    models=lambda given: [given.model] if given else [],
)
