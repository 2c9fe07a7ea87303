"""`offline/demo`: a small set of rules in a model's place, so that everything else can be tried without an account.

It says what it is, uses the tools it is offered, and streams. The same request always gets the same answer. If that
must follow a schema, it is an example that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pydantic import JsonValue
from pydantic_core import from_json

from bot.llm.adapters.offline_sample import sample
from bot.ports.model import Completion, Request, Usage
from bot.wording import INTERRUPTED
from threads.model import Message, OnEvent, Text, TextDelta, ToolCall, ToolResult

NAME = "offline/demo"
WHAT = "I am offline/demo: a few built-in rules, not a language model."
CONNECT = (
    "To connect a real model, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start a local server such as Ollama, "
    "and start me again."
)
HELP = f"""{WHAT} I understand:

- `list [PATH]`, `read PATH`, `write PATH TEXT` and `attach PATH`
- `run COMMAND`
- `remember TEXT` and `recall TEXT`
- `ask QUESTION | ANSWER | ANSWER`, which asks you
- `summarise`

{CONNECT}"""
GREETINGS = frozenset({"hi", "hello", "hey"})

INTENTS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "list": ("list_files", ("path",), "[PATH]"),
    "read": ("read_file", ("path",), "PATH"),
    "write": ("write_file", ("path", "content"), "PATH TEXT"),
    "attach": ("attach", ("path",), "PATH"),
    "run": ("shell", ("command",), "COMMAND"),
    "remember": ("remember", ("text",), "TEXT"),
    "recall": ("recall", ("query",), "TEXT"),
    "ask": ("ask_person", ("question",), "QUESTION | ANSWER | ANSWER"),
}
"""By the first word of a line: a tool, its arguments (the last one takes all that is left), and how to write them."""

ONE_PATH = frozenset({"list", "read", "attach"})
PATH = re.compile(r"\S*|`[^`]+`|\"[^\"]+\"|'[^']+'")
"""More words than that are a sentence ("list three rivers"), unless in quotes."""

SENTENCES: Mapping[str, str] = {
    "write_file": "Wrote `{written}` ({size} bytes).",
    "attach": "Here is `{posted}`.",
    "remember": "I will remember that {remembered}.",
}
"""How the result of a tool is worded; the fields are those of the result."""

TEXTS = ("stdout", "stderr", "text", "head")
"""The fields of a result that are shown as blocks of text."""

MAX_SHOWN = 3000
"""Characters of one text that are repeated."""

_FENCE = re.compile(r"<outside (?P<seal>[0-9a-f]+) .*?>\\n(?P<text>.*?)\\n</outside (?P=seal)>")
"""The marks around a text from outside, as JSON has them: they are meant for a model."""


class OfflineModel:
    """The rules as a `bot.ports.model.Model`. It cannot fail."""

    @property
    def name(self) -> str:
        return NAME

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """Answer at once, word by word. Rules use no tokens."""
        message = answer(request)
        for word in re.findall(r"\s*\S+\s*", message.text):
            await on_event(TextDelta(word))
        return Completion(message, Usage(), "tool_calls" if message.calls else "end")


def answer(request: Request) -> Message:
    """Return the next entry of the conversation: the calls that were asked for, or all that there is to say."""
    turn = _turn(request.messages)
    replies = [
        _reply(text, request, place) for place, text in enumerate(filter(None, map(_text_of, _new(turn))))
    ]
    texts = [reply for reply in replies if isinstance(reply, Text)]
    if calls := [reply for reply in replies if isinstance(reply, ToolCall)]:
        return Message("assistant", (*texts, *calls), model=NAME)
    if request.output_schema is not None:
        return Message("assistant", (Text(json.dumps(sample(request.output_schema))),), model=NAME)
    names = {call.id: call.name for entry in turn for call in entry.calls}
    parts = [part for entry in turn for part in _outcomes(entry, names)]
    if not parts or request.tool_choice == "auto":
        parts += [reply.text for reply in texts]
    text = "\n\n".join(parts) or f"{WHAT} There was no text for me to read."
    return Message("assistant", (Text(text),), model=NAME)


def _turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the current turn: the message to answer, and all calls and results since."""
    answers = [place for place, entry in enumerate(messages) if entry.role == "assistant" and not entry.calls]
    turn = messages[answers[-1] + 1 if answers else 0 :]
    cut = [place for place, entry in enumerate(turn) if any(map(_was_cut_off, entry.results))]
    if cut and any(map(_text_of, turn[cut[-1] + 1 :])):
        turn = turn[cut[-1] + 1 :]  # its turn was stopped, and somebody went on
    waiting = next((place for place, entry in enumerate(turn) if entry.role == "assistant"), len(turn))
    return turn[max(0, waiting - 1) :]  # an older message was stopped, or failed


def _was_cut_off(result: ToolResult) -> bool:
    return INTERRUPTED in result.content


def _new(turn: Sequence[Message]) -> Sequence[Message]:
    """Return the messages since the last calls."""
    calls = [place for place, entry in enumerate(turn) if entry.role == "assistant"]
    return turn[calls[-1] + 1 if calls else 0 :]


def _outcomes(entry: Message, names: Mapping[str, str]) -> list[str]:
    """Return the texts and tool results of one step."""
    if entry.role == "assistant":
        return [entry.text] if entry.text else []
    return [_render(names.get(result.call_id, "the tool"), result.content) for result in entry.results]


def _render(tool: str, result: str) -> str:
    """Return a tool's result for people: a sentence and its texts, or all of it as JSON."""
    try:
        content: JsonValue = from_json(_FENCE.sub(lambda found: found["text"], result))
    except ValueError:
        content = result
    match content:
        case {"error": {"type": kind, "message": message}, **more}:
            told = f"`{tool}` {'was not used' if kind == 'permission' else 'did not work'}: {message}"
            return "\n\n".join([told, *_texts_of(more.get("partial"))])
        case {"result": value}:
            parts = _parts(tool, value) if isinstance(value, dict) else []
            return "\n\n".join(parts) or f"Here is what `{tool}` gave me:\n\n{_block(value)}"
    return f"Here is what `{tool}` gave me:\n\n{_block(content)}"


def _parts(tool: str, value: Mapping[str, JsonValue]) -> list[str]:
    parts = []
    with suppress(KeyError):
        parts.append(SENTENCES[tool].format_map(value))
    parts += _texts_of(value)
    match value:
        case {"entries": [_, *_] as items} | {"notes": [_, *_] as items}:
            lines = (item.get("text") or item.get("name") for item in items if isinstance(item, dict))
            parts.append(_block("\n".join(map(str, lines))))
        case {"exit_code": code} if not parts:
            parts.append(f"It ended with exit code {code}.")
    return parts


def _texts_of(value: object) -> list[str]:
    """Return the texts of a result, such as what a command printed."""
    texts = [value.get(name) for name in TEXTS] if isinstance(value, Mapping) else []
    return [_block(text) for text in texts if isinstance(text, str) and text.strip()]


def _block(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    shown, more = text.removesuffix("\n")[:MAX_SHOWN], len(text) - MAX_SHOWN
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}\n{shown}\n{fence}" + (f"\n({more} more characters)" if more > 0 else "")


def _text_of(message: Message) -> str:
    """Return a person's text: the last block, since a line on who wrote when may come before it."""
    typed = (
        block.text.strip()
        for block in reversed(message.blocks)
        if isinstance(block, Text) and not block.outside
    )
    return next(typed, "")


def _reply(text: str, request: Request, place: int) -> Text | ToolCall:
    """Answer one message; *place* is its number among the new ones."""
    word, *more = text.split(maxsplit=1) or [""]
    intent, rest = word.lower().rstrip(":,.!?"), "".join(more)
    if text.lower().rstrip(" .!?,") in GREETINGS:
        return Text(f"Hello! {WHAT} Say `help` to see what I understand.")
    if intent == "help" or "what can you do" in text.lower():
        return Text(HELP)
    if intent in {"summarise", "summarize"}:
        return Text(_summary(request.messages[:-1]))
    if intent in INTENTS and not (intent in ONE_PATH and not PATH.fullmatch(rest)):
        return _use(intent, rest, request, place)
    return Text(f"{WHAT} I cannot really answer this:\n\n> {_first_words(text, 200)}\n\n{CONNECT}")


def _use(intent: str, rest: str, request: Request, place: int) -> Text | ToolCall:
    tool, names, form = INTENTS[intent]
    if request.tool_choice == "none" or tool not in {spec.name for spec in request.tools}:
        return Text(f"I have no tool `{tool}` here, so I cannot do that. {WHAT}")
    if tool == "list_files":
        rest = rest or "."
    if intent in ONE_PATH or tool == "shell":
        rest = _unquoted(rest)
    if tool == "remember":
        rest = rest.removeprefix("that ")
    values = rest.split(maxsplit=len(names) - 1) if len(names) > 1 else [rest]
    if len(values) < len(names) or not all(values):
        return Text(f"Tell me more: `{intent} {form}`.")
    arguments: dict[str, JsonValue] = dict(zip(names, values, strict=True))
    if tool == "ask_person":
        question, *answers = (part.strip() for part in rest.split("|"))
        arguments = {"question": question, "answers": list[JsonValue](answers)}
    number = f"{len(request.messages)}-{place}" if place else f"{len(request.messages)}"
    return ToolCall(f"offline-{number}", tool, arguments)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "`\"'" else text


def _summary(messages: Sequence[Message]) -> str:
    questions = [text for entry in messages if entry.role == "user" and (text := _text_of(entry))]
    answers = [entry.text for entry in messages if entry.role == "assistant" and entry.text.strip()]
    tools = sum(len(entry.calls) for entry in messages)
    if not questions:
        return f"Nothing was said before this. {WHAT}"
    count = f"So far: {len(questions)} from you, {len(answers)} from me, {tools} tool calls. You said:"
    return "\n".join([count, "", *(f"- {_first_words(text, 60)}" for text in questions[-10:])])


def _first_words(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit].rstrip()}…"
