"""`offline/demo`: a small set of rules in a model's place, so that everything else can be tried without an account.

It says what it is, uses the tools it is offered, and streams. The same request always gets the same answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue
from pydantic_core import from_json

from bot.llm.model import Completion, Request, ToolSpec, Usage
from threads.model import Block, Message, OnEvent, Text, TextDelta, ToolCall, ToolResult

NAME = "offline/demo"
MAX_SHOWN = 3000
"""Characters of a tool's result that are repeated."""
WHAT = "I am offline/demo: a few built-in rules, not a language model."
CONNECT = (
    "To connect a real model, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start a local server such as Ollama, "
    "and start me again."
)
HELP = f"""{WHAT} I understand:

- `list [PATH]`, `read PATH` and `search TEXT`
- `write PATH TEXT`, `edit PATH OLD => NEW` and `attach PATH`
- `run COMMAND` and `fetch ADDRESS`
- `remember TEXT` and `recall TEXT`
- `summarise`

{CONNECT}"""
GREETINGS = frozenset({"hi", "hello", "hey", "hallo", "yo", "good morning", "good evening", "good afternoon"})
INTENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "list": ("list_files", ("path",)),
    "ls": ("list_files", ("path",)),
    "read": ("read_file", ("path",)),
    "cat": ("read_file", ("path",)),
    "write": ("write_file", ("path", "content")),
    "edit": ("edit_file", ("path", "old", "new")),
    "attach": ("attach", ("path",)),
    "search": ("search_files", ("text",)),
    "fetch": ("web_fetch", ("url",)),
    "run": ("shell", ("command",)),
    "remember": ("remember", ("text",)),
    "recall": ("recall", ("query",)),
}
"""First word to a tool and the arguments that the rest of the line fills, the last one with all that is left."""

ONE_PATH = frozenset({"list", "ls", "read", "cat", "attach", "fetch"})
PATH = re.compile(r"\S*|`[^`]+`|\"[^\"]+\"|'[^']+'")
"""More words than that are a sentence ("list three rivers"), unless in quotes."""
FILES = frozenset({"", "files", "the files", "all files", "my files"})


class OfflineModel:
    """The rules as a `bot.llm.model.Model`. It cannot fail."""

    @property
    def name(self) -> str:
        return NAME

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """Answer at once, word by word; tokens are counted as four characters each."""
        message = answer(request)
        for word in re.findall(r"\s*\S+\s*", message.text):
            await on_event(TextDelta(word))
        read = sum(len(part.text) for part in request.messages)
        usage = Usage(input=(len(request.system) + read) // 4 + 1, output=len(message.text) // 4 + 1)
        return Completion(message, usage, "tool_calls" if message.calls else "end")


def answer(request: Request) -> Message:
    """Return the next entry of the conversation."""
    newest = request.messages[-1]
    names = {call.id: call.name for entry in request.messages for call in entry.calls}
    text = "\n\n".join(_told(names.get(result.call_id, "the tool"), result) for result in newest.results)
    blocks: list[Block] = [Text(text)] if text else []
    if _said(newest) or not text:
        reply = _reply(_said(newest), request)
        blocks.append(Text(f"\n\n{reply.text}") if text and isinstance(reply, Text) else reply)
    return Message("assistant", tuple(blocks), model=NAME)


def _said(message: Message) -> str:
    """Return a person's words: the last text, since a line on who wrote when may come before it."""
    return next((block.text.strip() for block in reversed(message.blocks) if isinstance(block, Text)), "")


def _reply(text: str, request: Request) -> Text | ToolCall:
    word, *more = text.split(maxsplit=1) or [""]
    intent, rest = word.lower().rstrip(":,.!?"), "".join(more)
    if not text:
        return Text(f"{WHAT} There was no text for me to read.")
    if text.lower().rstrip(" .!?,") in GREETINGS:
        return Text(f"Hello! {WHAT} Say `help` to see what I understand.")
    if intent == "help":
        return Text(HELP)
    if intent in {"summarise", "summarize", "summary"}:
        return Text(_summary(request.messages[:-1]))
    if intent in INTENTS and not (intent in ONE_PATH and rest not in FILES and not PATH.fullmatch(rest)):
        return _use(intent, rest, request)
    return Text(f"{WHAT} I cannot really answer this:\n\n> {_first_words(text, 200)}\n\n{CONNECT}")


def _use(intent: str, rest: str, request: Request) -> Text | ToolCall:
    tool, names = INTENTS[intent]
    allowed = request.tools if request.tool_choice == "auto" else ()
    spec = next((spec for spec in allowed if spec.name == tool), None)
    if spec is None:
        return Text(f"I have no tool `{tool}` here, so I cannot do that. {WHAT}")
    if tool == "list_files" and rest in FILES:
        rest = "."
    if intent in ONE_PATH or tool == "shell":
        rest = _unquoted(rest)
    values = rest.split(maxsplit=len(names) - 1) if len(names) > 1 else [rest]
    if tool == "edit_file":
        path, _, change = rest.partition(" ")
        old, _, new = change.partition(" => ")
        values = [path, old, new] if old and new else []
    if len(values) < len(names) or not all(values):
        form = "PATH OLD => NEW" if tool == "edit_file" else " ".join(name.upper() for name in names)
        return Text(f"Tell me more: `{intent} {form}`.")
    arguments: dict[str, JsonValue] = dict(zip(_parameters(spec, names), values, strict=False))
    return ToolCall(f"offline-{len(request.messages)}", tool, arguments)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "`\"'" else text


def _parameters(spec: ToolSpec, usual: Sequence[str]) -> Sequence[str]:
    """Return the tool's own words for what we fill in, should it not use the *usual* ones."""
    known, required = spec.parameters.get("properties"), spec.parameters.get("required")
    if not isinstance(known, dict) or all(name in known for name in usual) or not isinstance(required, list):
        return usual
    own = [name for name in required if isinstance(name, str)]
    return own if len(own) >= len(usual) else usual


def _told(tool: str, result: ToolResult) -> str:
    """Put a tool's result into words; what is not in the usual form is shown as it is."""
    try:
        content: JsonValue = from_json(result.content)
    except ValueError:
        content = result.content
    if isinstance(content, dict) and isinstance(error := content.get("error"), dict):
        said = " ".join(str(error[key]) for key in ("message", "suggestion") if error.get(key))
        return f"`{tool}` did not work: {said or 'it gave no reason.'}"
    value = content["result"] if isinstance(content, dict) and "result" in content else content
    if value in ("", None, [], {}):
        return f"`{tool}` worked and had nothing to show."
    shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    said = f"`{tool}` did not work:" if result.is_error else f"Here is what `{tool}` gave me:"
    return f"{said}\n\n{_fenced(shown)}"


def _fenced(text: str) -> str:
    shown, more = text[:MAX_SHOWN], len(text) - MAX_SHOWN
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}\n{shown}\n{fence}" + (f"\n({more} more characters)" if more > 0 else "")


def _summary(messages: Sequence[Message]) -> str:
    asked = [said for entry in messages if entry.role == "user" and (said := _said(entry))]
    answered = [entry.text for entry in messages if entry.role == "assistant" and entry.text.strip()]
    tools = sum(len(entry.calls) for entry in messages)
    if not asked:
        return f"Nothing was said before this. {WHAT}"
    count = f"So far: {len(asked)} from you, {len(answered)} from me, {tools} tool calls. You said:"
    return "\n".join([count, "", *(f"- {_first_words(text, 60)}" for text in asked[-10:])])


def _first_words(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit].rstrip()}…"
