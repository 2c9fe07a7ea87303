"""`threadfast web`: a bot that serves the page alone, to whoever started it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bot.config.load import SettingsFile
from bot.config.settings import Settings
from bot.llm.detect_model import with_model
from bot.wiring.chat import completed, say_model, to_person, with_owner
from bot.wiring.run import run_transports
from transports.web.page import page_settings


async def run_page(
    port: int | None,
    on_open: Callable[[str], None],
    settings: Settings,
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
) -> None:
    """Serve the page until Ctrl-C, at this *port* if it is given. Changes of *file* are taken up.

    Raises as `bot.wiring.run.run_transports`.
    """
    settings, model, reason = await with_model(settings, environ)
    say_model(model, reason, settings.data, to_person)

    def complete(changed: Settings) -> Settings:
        """Return the settings for the page and nothing else, whose person is an admin."""
        changed = completed(settings, model, changed)
        observe, others = changed.observe, dict.fromkeys(type(changed.transports).model_fields)
        if "log_level" not in observe.model_fields_set:  # a person reads the terminal
            observe = observe.model_copy(update={"log_level": "warning"})
        transports = changed.transports.model_copy(update={**others, "web": page_settings(changed, port)})
        return with_owner(changed.model_copy(update={"transports": transports, "observe": observe}))

    await run_transports(complete(settings), environ, file, on_open, complete)
