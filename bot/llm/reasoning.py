"""How much each model can be told to reason; pure.

| model                                        | off                | low, medium, high                     |
|----------------------------------------------|--------------------|---------------------------------------|
| Claude Fable, Mythos; Opus, Haiku from 5.5   | refused            | adaptive thinking, and the effort     |
| Claude Sonnet from 5.5                       | ``between_tools``  | the same                              |
| other Claude from 4.6                        | ``disabled``       | the same                              |
| Claude 3.7 to 4.5                            | no thinking        | thinking, with a part of `max_tokens` |
| GPT from 5.1, without "codex", "pro", "astra" | ``none``          | the effort                            |
| GPT-5, o1, o3, o4, other GPT                 | refused            | the effort; "pro" only medium or high |
| GPT-3, GPT-4, "chat" models, older Claude    | cannot reason      | cannot reason                         |
| OpenAI-compatible servers                    | ``none``           | the effort                            |

Sources: the types of both SDKs (anthropic 2.12, openai 3.54), the providers' pages on thinking and reasoning, and the
errors that people report. `models.NAME.efforts` in the settings overrides the table, and a server that refuses what
was chosen is asked again without it (`bot.llm.policies.learning`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.ports.effort import EFFORTS, Effort

LEVELS: tuple[Effort, ...] = ("low", "medium", "high")

_CLAUDE = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d+)(?:[-.](\d{1,2})(?!\d))?")
_CLAUDE_3_7 = "claude-3-7"
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_O_SERIES = re.compile(r"o[134](-|$)")
_NEVER = ("gpt-3", "gpt-4", "chatgpt", "o1-mini", "o1-preview")
_ALWAYS_HIGH = "gpt-5-pro"


def efforts_of(kind: str, model: str) -> tuple[Effort, ...]:
    """Return what a model of a provider of this *kind* takes as `Request.reasoning`; empty if it cannot reason."""
    match kind:
        case "anthropic":
            return _claude_efforts(model)
        case "openai":
            return _gpt_efforts(model)
        case "offline":
            return ()
        case _:
            return EFFORTS


def nearest(effort: Effort, efforts: Sequence[Effort]) -> Effort | None:
    """Return *effort*, or the next higher one that is among *efforts*, else the highest; None if there are none."""
    rank = EFFORTS.index
    higher = [other for other in efforts if rank(other) >= rank(effort)]
    return min(higher, key=rank, default=max(efforts, key=rank, default=None))


def claude_version(model: str) -> tuple[str, tuple[int, int]] | None:
    """Return the family and version of a Claude model from 4 on, or None."""
    found = _CLAUDE.search(model)
    return (found[1], (int(found[2]), int(found[3] or 0))) if found else None


def _claude_efforts(model: str) -> tuple[Effort, ...]:
    if (known := claude_version(model)) is None:
        return EFFORTS if _CLAUDE_3_7 in model else ()
    family, version = known
    always = family in ("fable", "mythos") or (family != "sonnet" and version >= (5, 5))
    return LEVELS if always else EFFORTS


def _gpt_efforts(model: str) -> tuple[Effort, ...]:
    if model.startswith(_NEVER) or "-chat" in model:
        return ()
    if model.startswith(_ALWAYS_HIGH):
        return ("high",)
    if "-pro" in model and not _O_SERIES.match(model):
        return ("medium", "high")
    found = _GPT.match(model)
    version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    can_be_off = version >= (5, 1) and not any(word in model for word in ("codex", "astra"))
    return EFFORTS if can_be_off else LEVELS
