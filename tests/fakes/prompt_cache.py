"""The providers' prompt caches, simulated from the bytes of requests: what is read, what is written, for how long.

A token is four characters of what a model reads: the strings of a request, not their names, types or marks.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MINIMUM = 1024
"""Tokens below which nothing is cached."""
LOOKBACK = 20
"""Blocks before a mark at which Anthropic still finds an older entry."""
MARKS = 4
LIFETIMES = {"5m": 300.0, "1h": 3600.0}
OPENAI_LIFETIME = 1800.0
OPENAI_STEP = 128
"""OpenAI reads whole steps of so many tokens."""
SILENT = ("type", "role", "cache_control", "id", "call_id", "tool_use_id", "tool_call_id", "signature")


def words(part: Any) -> str:
    """What a model reads of *part*."""
    match part:
        case str():
            return part
        case list():
            return "".join(map(words, part))
        case dict():
            return "".join(words(value) for name, value in part.items() if name not in SILENT)
    return ""


def tokens(part: Any) -> int:
    return len(words(part)) // 4


def prefixes(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The blocks of a Messages request in the order of the prompt, each with the bytes up to and with it."""
    system = [("system", block) for block in body.get("system", ())]
    tools = [("tools", tool) for tool in body.get("tools", ())]
    said = [(entry["role"], block) for entry in body["messages"] for block in entry["content"]]
    prefix = ""
    for where, block in [*tools, *system, *said]:
        plain = {name: value for name, value in block.items() if name != "cache_control"}
        prefix += f"{where} {json.dumps(plain)}\n"
        yield prefix, block


@dataclass
class AnthropicPromptCache:
    """Entries end where marks stood; the longest one that a mark leads to is read, the rest up to marks written."""

    entries: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By prefix: until when it lives, and its lifetime."""

    def usage(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Take a request; return the counts as the API reports them. A wrong mark is an AssertionError."""
        blocks = list(prefixes(body))
        ends, total = [], 0
        for _, block in blocks:
            total += tokens(block)
            ends.append(total)
        marks = {
            place: block["cache_control"]["ttl"]
            for place, (_, block) in enumerate(blocks)
            if "cache_control" in block
        }
        assert len(marks) <= MARKS
        assert list(marks.values()) == sorted(marks.values()), "an hour comes before five minutes"
        near = {place for mark in marks for place in range(max(0, mark - LOOKBACK), mark + 1)}
        hit = max((place for place in near if self._alive(blocks[place][0], now)), default=-1)
        if hit >= 0:
            lifetime = self.entries[blocks[hit][0]][1]
            self.entries[blocks[hit][0]] = now + lifetime, lifetime
        read = hour = five = ends[hit] if hit >= 0 else 0
        for place, ttl in marks.items():
            if place <= hit or ends[place] < MINIMUM:
                continue
            self.entries[blocks[place][0]] = now + LIFETIMES[ttl], LIFETIMES[ttl]
            hour, five = (ends[place], ends[place]) if ttl == "1h" else (hour, ends[place])
        return {
            "input_tokens": total - five,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": five - read,
            "cache_creation": {
                "ephemeral_1h_input_tokens": hour - read,
                "ephemeral_5m_input_tokens": five - hour,
            },
        }

    def _alive(self, prefix: str, now: float) -> bool:
        return prefix in self.entries and self.entries[prefix][0] > now


@dataclass
class OpenAIPromptCache:
    """What a request has in common with one before it, of the same key and still alive, is read; the rest written."""

    seen: list[tuple[str, str, float]] = field(default_factory=list)

    def usage(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """Take a Responses request; return the counts as the API reports them."""
        prompt = words([body.get("tools", []), body.get("instructions", ""), body["input"]])
        key = body.get("prompt_cache_key", "")
        alive = [before for before, owner, until in self.seen if owner == key and until > now]
        common = max((_common(prompt, before) for before in alive), default=0) // 4
        read = common // OPENAI_STEP * OPENAI_STEP if common >= MINIMUM else 0
        total = len(prompt) // 4
        self.seen.append((prompt, key, now + OPENAI_LIFETIME))
        written = total - read if total >= MINIMUM else 0
        return {
            "input_tokens": total,
            "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        }


def _common(a: str, b: str) -> int:
    """How many characters both begin with."""
    return bisect_left(range(min(len(a), len(b))), True, key=lambda end: a[: end + 1] != b[: end + 1])
