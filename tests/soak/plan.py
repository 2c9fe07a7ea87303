"""What a soak does and when; a plan and nothing else, the same for the same seed."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

CANARIES = {
    "ANTHROPIC_API_KEY": "sk-ant-canary-5TqZr8mWv2Lk",
    "OPENAI_API_KEY": "sk-proj-canary-9YhXb3nPc7Jd",
}
"""Keys of the providers, which nothing may ever show."""


WARM_S = 600.0
TWICE = 2.0
"""What a short run may grow to, as its imports and caches do; a leak for each message is more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run: *seconds* of people talking, about *rate* messages a second over all *threads*.

    Restarts lie in the first third, one by SIGTERM and one by SIGKILL, so that memory is compared within one life:
    the median of the last third of the run with that of the second. ``growth`` is the most that may come of it.
    A run of less than `WARM_S` ends before all is loaded and every thread was heard: its medians are only told, and it
    is judged by what is held at rest, and by what people saw.
    """

    seconds: float
    threads: int
    seed: int
    rate: float = 1.0
    growth: float = 0.05
    silence_s: float = 180.0
    """The longest wait for the outcome of a message that reached the bot."""
    missed_s: float = 600.0
    """The same for one that was said while a link was down, and had to be looked for at the platform's own pace."""

    @property
    def is_short(self) -> bool:
        return self.seconds < WARM_S

    @property
    def restarts(self) -> tuple[tuple[float, signal.Signals], ...]:
        return (self.seconds / 9, signal.SIGTERM), (2 * self.seconds / 9, signal.SIGKILL)

    @property
    def sample_s(self) -> float:
        return min(5.0, self.seconds / 60)

    @property
    def idle_s(self) -> float:
        """After so long a quiet thread leaves memory: less than people's pauses, so that most are not there."""
        return min(20.0, self.seconds / 10)

    @property
    def pause_s(self) -> float:
        """The mean pause of one person."""
        return self.threads / self.rate


def settings(
    slack: str, discord: str, gateway: str, port: int, anthropic: str, openai: str, idle_s: float
) -> dict[str, Any]:
    """Return the settings of the bot: near the defaults, where those do not make the run pause for minutes."""
    plenty = {"requests_per_minute": 100_000, "tokens_per_minute": 1_000_000_000}
    return {
        "data": "data",
        "model": "anthropic/claude-sonnet-5-5",
        "fallback_models": ["openai/gpt-6.1-terra"],
        "providers": {
            "anthropic": {"base_url": anthropic, "model_map": {}, **plenty},
            "openai": {"base_url": openai, **plenty},
        },
        "llm_retry": {"base_delay_ms": 500, "max_delay_ms": 4000},
        "stream_timeouts_s": {"first_content": 10, "idle": 5, "total": 60},
        "budget": {"limit_usd": dict.fromkeys(("turn", "thread", "user_day", "day"), 10_000)},
        "limits": {"idle_timeout_s": idle_s, "turn_timeout_s": 90},
        "tools": {"enabled": ["files", "shell"], "policy": {"shell": "ask"}},
        "access": {"users": ["*"]},
        "transports": {
            "slack": {"api_base_url": slack},
            "discord": {"api_base_url": discord, "gateway_url": gateway},
            "web": {"port": port},
        },
    }
