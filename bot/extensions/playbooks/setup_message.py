"""What a stage is given: the words of the person, results of earlier stages, files, and how the one before failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from bot.agent.prompt.user_message import UserMessages, add_nothing
from bot.extensions.playbooks.definition import Stage
from bot.extensions.playbooks.run_state import Run
from bot.extensions.playbooks.stage_turn import StageTurn
from bot.extensions.playbooks.wording import failure_told
from bot.ports.outside_text import fence
from threads.model import Block, Message, Text, ToolResult
from threads.scheduled_messages import due_of

WORDS = "What was asked for:"


async def build_setup(
    turn: StageTurn,
    run: Run,
    stage: Stage,
    files: Sequence[tuple[str, ToolResult]],
    user_messages: UserMessages,
) -> Message:
    """Return the message that a stage begins with. *files* are the results of reading its files.

    The first stage of a run also gets the files that came with the person's message.
    """
    first = run.entries == run.attempt == 1
    asked = turn.playing.incoming
    shown_id = "" if due_of(asked.id) else asked.id  # a scheduled prompt would get a heading of its own
    quoted = asked.quoted if stage.setup.words else ""
    incoming = replace(turn.incoming, id=shown_id, files=asked.files if first else (), quoted=quoted)
    message = await replace(user_messages, extend=add_nothing).build(turn, incoming)
    *before, prompt = message.blocks
    given = [*_words(run, stage), *_results(run, stage), *map(_file, files), *_failure(run)]
    return replace(message, blocks=(*before, *given, prompt), source=turn.incoming.id)


def _words(run: Run, stage: Stage) -> list[Block]:
    return [Text(f"{WORDS} {run.words}")] if stage.setup.words and run.words else []


def _results(run: Run, stage: Stage) -> list[Block]:
    found = [(name, result) for name in stage.setup.results if (result := run.results.get(name))]
    return [
        Text(
            f"The result of the stage {name}:\n{_shown(name, result.value, outside=result.outside)}",
            outside=result.outside,
        )
        for name, result in found
    ]


def _shown(name: str, value: object, *, outside: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return fence(text, f"stage {name}", name) if outside else text


def _file(read: tuple[str, ToolResult]) -> Block:
    path, result = read
    return Text(f"The file {path}:\n{result.content}", outside=result.outside)


def _failure(run: Run) -> list[Block]:
    told = failure_told(run)
    return [Text(told)] if told else []
