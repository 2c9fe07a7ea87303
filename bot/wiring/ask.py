"""`threadfast ask`: one question from the command line, over the whole bot."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from bot.config.json_text import parse
from bot.config.load import check_start, repeated_faults
from bot.config.settings import Settings
from bot.llm.detect_model import with_model
from bot.llm.policies.structured_output import validator
from bot.ports.config_error import ConfigInvalid
from bot.wiring.app import serve
from bot.wiring.chat import console_logs, with_owner
from threads.model import Attachment, Incoming
from transports.console import BAD_NAME, Console, OneQuestion, is_thread_name, read_attachment


@dataclass(frozen=True, slots=True)
class AskRequest:
    """``thread`` is the name of a conversation to continue, blank for a new one. A blank ``model`` is the default.

    The answer must follow the JSON Schema in the file ``schema``, if there is one.
    """

    text: str
    schema: Path | None = None
    model: str = ""
    files: tuple[Path, ...] = ()
    thread: str = ""


async def run_ask(question: AskRequest, settings: Settings, environ: Mapping[str, str]) -> int:
    """Ask, print the answer, and return the exit code. Raises as `bot.wiring.app.serve`."""
    if question.thread and not is_thread_name(question.thread):
        raise ConfigInvalid(f"--thread {question.thread}: {BAD_NAME}")
    schema = _schema_in(question.schema) if question.schema else None
    session = format(time.time_ns() // 1_000_000, "x")
    files = tuple(
        _attachment(path, f"{session}-file-{number}") for number, path in enumerate(question.files, 1)
    )
    if question.model:
        settings = settings.model_copy(update={"model": question.model})
    settings, model, _ = await with_model(settings, environ)
    if faults := check_start(settings.model_copy(update={"model": model}), environ, transports=False):
        raise ConfigInvalid("\n".join(faults))
    if schema:  # a line about the usage is not JSON
        settings = settings.model_copy(
            update={"budget": settings.budget.model_copy(update={"footer": False})}
        )
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    thread = question.thread or f"ask-{session}"
    console = Console(
        session=session,
        attached=settings.data / "attached",
        question=OneQuestion(question.text, thread, files, schema is not None),
    )

    def schema_of(incoming: Incoming) -> dict[str, JsonValue] | None:
        return schema if incoming.id.startswith(f"{session}.") else None

    with console_logs(settings, environ):
        await serve(
            with_owner(settings),
            environ,
            model=model,
            make_transports=lambda _: [console],
            schema_of=schema_of if schema else None,
            chosen_here=not question.model,
        )
    return console.exit_code


def _schema_in(path: Path) -> dict[str, JsonValue]:
    try:
        data = path.read_bytes()
        schema = parse(data)
        if not isinstance(schema, dict):
            raise ConfigInvalid(f'--schema {path}: it should be an object, such as {{"type": "object"}}')
        if faults := repeated_faults(data):
            raise ConfigInvalid(f"--schema {path}: {faults[0]}")
        validator(schema)
    except OSError as error:
        raise ConfigInvalid(f"--schema {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigInvalid(f"--schema {path}: {error}") from error
    return schema


def _attachment(path: Path, file_id: str) -> Attachment:
    try:
        return read_attachment(str(path), file_id)
    except OSError as error:
        raise ConfigInvalid(f"--file {path}: {error.strerror}") from error
