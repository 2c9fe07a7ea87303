"""What one model of a server takes, and a request in the forms that it takes.

| a part          | its forms                                     |
|-----------------|-----------------------------------------------|
| ``max_tokens``  | ``max_tokens``, ``max_completion_tokens``     |
| ``system``      | ``system``, ``developer``, ``user``           |
| any other       | ``sent``, ``none``                            |

The settings decide first (`providers.NAME.forms`, and what `models.NAME` says of tools, vision and the window), then
what was learned, then the form above that stands first. Without tools, calls and their results are sent as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bot.config.settings import ModelFacts, Provider, Settings
from bot.llm.adapters.wire_form import dump_json, image_placeholder
from bot.ports.effort import Effort
from bot.ports.errors import Refusal
from bot.ports.model import AnswerRoom, ModelInfo, Request
from bot.store.learned_servers import Learned, LearnedServers
from threads.model import Block, Image, Message, Text, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class ServerTraits:
    """What is known of one model of a server. ``given`` are the forms that the settings fix."""

    learned: LearnedServers
    key: str
    given: dict[str, str]
    window: int | None = None

    @classmethod
    def of(cls, name: str, settings: Settings, learned: LearnedServers) -> ServerTraits:
        """Return those of the model *name*, ``provider/model``."""
        kind, _, model = name.partition("/")
        provider, facts = (
            settings.providers.get(kind) or Provider(),
            settings.models.get(name) or ModelFacts(),
        )
        given = {part: "sent" for part, has in {"tools": facts.tools, "images": facts.vision}.items() if has}
        address = (provider.base_url or provider.kind).rstrip("/")
        return cls(learned, f"{address} {model}", given | provider.forms, facts.context_window)

    @property
    def forms(self) -> dict[str, str]:
        return self._learned.forms | self.given

    @property
    def room(self) -> AnswerRoom:
        return self._learned.room

    @property
    def _learned(self) -> Learned:
        return self.learned.of(self.key)

    def known(self, info: ModelInfo) -> ModelInfo:
        """Return the capabilities of the model as they are with this server."""
        learned = self._learned
        window = self.window or learned.window or info.context_window
        vision = info.vision and (learned.forms | self.given).get("images") != "none"
        if (window, vision) == (info.context_window, info.vision):
            return info
        return replace(info, context_window=window, vision=vision)

    def refuses(self, effort: Effort) -> bool:
        return effort in self._learned.efforts

    def form_after(self, refusal: Refusal, tried: Mapping[str, str]) -> str:
        """Return the form to try after a refusal; blank if the settings fix that part, or no other form is left."""
        part, form = refusal.part, refusal.instead
        now = tried.get(part) or self.forms.get(part, part)
        if part == "system" and now == "developer":
            form = "user"
        repeated = now == form or (part in tried and form != "user")
        return "" if part in self.given or repeated else form

    async def learn_forms(self, forms: Mapping[str, str]) -> None:
        if not forms.items() <= self._learned.forms.items():
            await self.learned.learn(
                self.key, lambda old: old.model_copy(update={"forms": {**old.forms, **forms}})
            )

    async def learn_window(self, tokens: int) -> None:
        if tokens != self._learned.window:
            await self.learned.learn(self.key, lambda old: old.model_copy(update={"window": tokens}))

    async def learn_room(self, room: AnswerRoom) -> None:
        if room != self._learned.room:
            await self.learned.learn(self.key, lambda old: old.model_copy(update={"room": room}))

    async def learn_effort(self, effort: Effort) -> None:
        await self.learned.learn(
            self.key, lambda old: old.model_copy(update={"efforts": (*old.efforts, effort)})
        )

    def describe(self) -> str:
        """Return in words what differs from other servers, or a blank."""
        known, forms = self._learned, self.forms
        left_out = [part for part, form in sorted(forms.items()) if form == "none"]
        words = [f"sent without {', '.join(left_out)}"] if left_out else []
        if (form := forms.get("max_tokens", "max_tokens")) != "max_tokens":
            words.append(f"with {form} in place of max_tokens")
        if (form := forms.get("system", "system")) != "system":
            words.append(f"with its instructions in the role {form}")
        if known.efforts:
            words.append(f"never asked to reason {' or '.join(known.efforts)}")
        if known.window and not self.window:
            words.append(f"reads {known.window:,} tokens at once")
        return "; ".join(words)


def in_forms_of(request: Request, forms: Mapping[str, str]) -> Request:
    """Return the request in these forms; the adapter does the rest, see `bot.llm.adapters.wire_form.in_forms`."""
    if not forms:
        return request
    messages = request.messages
    unsent = {part for part, form in forms.items() if form == "none"} & {"tools", "images"}
    if unsent:
        messages = [replace(m, blocks=tuple(_as_text(m.blocks, unsent))) for m in messages]
    if "tools" in unsent:
        request = replace(request, tools=(), tool_choice="auto")
    if forms.get("system") == "user" and request.system.strip():
        messages = [Message("user", (Text(request.system),)), *messages]
        request = replace(request, system="")
    return replace(request, messages=messages, forms=forms)


def _as_text(blocks: Iterable[Block], unsent: set[str]) -> Iterable[Block]:
    """Yield the blocks, with text in place of what is not sent."""
    for block in blocks:
        match block:
            case ToolCall(_, name, arguments) if "tools" in unsent:
                yield Text(f"(called {name} with {dump_json(arguments)})")
            case ToolResult(_, content) if "tools" in unsent:
                yield Text(f"(the result: {content})")
            case Image() if "images" in unsent:
                yield image_placeholder(block)
            case _:
                yield block
