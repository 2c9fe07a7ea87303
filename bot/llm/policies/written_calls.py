"""Tool calls that a server hands over as text, because nobody told it how its model marks them.

The model is asked once more for the call in its proper form. If it comes as text again, the person is told which
switch the server lacks. A call is never made from text: a model may repeat text from outside.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import anyio
from pydantic import JsonValue

from bot.ports.errors import CallAsText, model_retry_fields
from bot.ports.model import Completion, ModelWrapper, Request
from threads.model import Message, OnEvent, Text, TextReset

log = logging.getLogger(__name__)

BAR = "\uff5c"
"""The bar in the marks of DeepSeek."""

MARKS = (
    *(
        "<tool_call>",
        "<tool_calls>",
        "<tool_call:",
        "<tool_calls:",
        "<toolcall>",
        "<tool_use>",
        "<tool_code>",
    ),
    *("<function_call>", "<function_calls>", "<function=", "<invoke name=", "<xai:function_call"),
    *("<|tool_call", "<|tool▁call", f"<{BAR}tool_call", f"<{BAR}tool▁call", "[tool_call]", "[tool_calls]"),
    *(f"<{BAR}dsml{BAR}", "<|dsml|", f"<{BAR}gcml{BAR}", "<|function_call|>", "function call<|role_sep|>"),
    *("<|python_tag|>", "<|python_start|>", "<|action_start|>", "<|start_action|>", "<|tools_prefix|>"),
    *("<minimax:tool_call>", "<seed:tool_call>", "<longcat_tool_call>", "<start_function_call>"),
    *("<dots_function_call>", "<atem:function_calls>", "<ifm|tool_call", "<|plamo:begin_tool_request"),
    *("<|open|>tools", "<|open|>call ", "<|content_invoke_tool", "functools["),
    *("<|channel|>commentary to=", "<|start|>assistant to=", "to=functions."),
)
"""How models begin a call, in lower case. docs/servers.md says which do, with the sources."""

_MARK = re.compile(rf"(?<!['\"])(?:{'|'.join(map(re.escape, MARKS))})", re.IGNORECASE)
_CODE = re.compile(r"(?ms)^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`")
_FENCED = re.compile(r"```(?P<kind>\w*)[ \t]*\n(?P<code>.*?)\n?```", re.DOTALL)
_CODE_KINDS = frozenset({"tool_code", "tool_call", "tool_calls", "tool"})
_NAMES = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "params")

AGAIN = (
    "Your last answer had a tool call written as text. It was not run. Make the call in the proper form of the API, "
    "or answer without a call. If you meant to show such text, put it into a code block."
)


@dataclass(frozen=True, slots=True)
class WrittenCallsModel(ModelWrapper):
    """A `Model` that is asked once more if it writes a call as text."""

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`; raises `CallAsText` if the second answer has such text too."""
        began = anyio.current_time()
        completion = await self.model.complete(request, on_event)
        tools = frozenset(tool.name for tool in request.tools)
        if not tools or not has_written_call(completion.message, tools):
            return completion
        error = CallAsText(f"a tool call as text: {completion.message.text[:200]!r}")
        provider, _, model = self.name.partition("/")
        error.fields |= {"provider": provider, "model": model}
        error.usage = completion.usage
        fields = model_retry_fields(error, 2, 0, self.name, anyio.current_time() - began)
        log.warning("model.retry: %s", error, extra=fields)
        await on_event(TextReset())
        answer = replace(completion.message, blocks=(Text(completion.message.text),))
        again = replace(request, messages=(*request.messages, answer, Message("user", (Text(AGAIN),))))
        completion = await self.model.complete(again, on_event)
        if has_written_call(completion.message, tools):
            error.usage = completion.usage
            raise error
        return completion


def has_written_call(message: Message, tools: Collection[str]) -> bool:
    """Return whether a message has a call as text, and none in its proper form. Code is none, unless all is code."""
    if message.calls:
        return False
    text = message.text.strip()
    fenced = _FENCED.fullmatch(text)
    if fenced and fenced["kind"].lower() in _CODE_KINDS:
        return True
    if _MARK.search(_CODE.sub("", text)):
        return True
    whole = fenced["code"].strip() if fenced else text
    return _is_json_call(whole, tools) or _is_python_call(whole, tools)


def _is_json_call(text: str, tools: Collection[str]) -> bool:
    """Return whether all of *text* is one or more calls of *tools* as JSON."""
    if text[:1] not in ("{", "["):
        return False
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return False
    calls = list(_calls_in(value))
    return bool(calls) and all(_names_tool(call, tools) for call in calls)


def _calls_in(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict) and isinstance(calls := value.get("tool_calls"), list):
        value = calls
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _names_tool(call: JsonValue, tools: Collection[str]) -> bool:
    if not isinstance(call, dict):
        return False
    if isinstance(inner := call.get("function"), dict):
        call = inner
    named = any(call.get(name) in tools for name in _NAMES if isinstance(call.get(name), str))
    return named and any(name in call for name in _ARGUMENTS)


def _is_python_call(text: str, tools: Collection[str]) -> bool:
    """Return whether all of *text* is a call as code, as some models of Llama write it: ``[name(x="y")]``."""
    written = text.removeprefix("[").removesuffix("]").strip()
    return written.endswith(")") and written.partition("(")[0] in tools
