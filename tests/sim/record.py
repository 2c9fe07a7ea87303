"""What really happened in a run, kept outside the bot: plain values that the judge can trust."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

REACTIONS_FROM = 1000
"""The numbers of what people write because of a post, in their thread."""


@dataclass(slots=True)
class Sent:
    """A message that a person sent. ``command`` is its text when it is one; ``versions`` counts edits."""

    key: str
    id: str
    thread: str
    number: int
    command: str = ""
    versions: int = 1
    acknowledged: bool = False
    deleted: bool = False
    deleted_at: float | None = None
    author: str = ""


@dataclass(frozen=True, slots=True)
class Post:
    """A post that people can see from ``at`` on."""

    at: float
    key: str
    thread: str
    text: str
    kind: str
    sent_at: float = 0.0
    """When the bot began to send it."""


@dataclass(slots=True)
class Bill:
    """What a provider takes for one call that reached it, in micro-dollars; ``turn`` is its message's key."""

    at: float
    thread: str
    user: str
    turn: str
    micros: int
    visit: str = ""
    """The run, the stage and its entry, if a stage made the call."""


@dataclass(frozen=True, slots=True)
class PlayCall:
    """A call of the model or of a tool by a stage: the run's id, the key of its message, and the visit."""

    at: float
    run: str
    key: str
    stage: str
    entry: int
    attempt: int
    act: str


@dataclass(slots=True)
class Record:
    """``refused`` counts calls for a key that failed; ``doubtful`` keys were cut where a post may be out."""

    find: bool
    busy: str
    mailbox: int = 20
    sent: dict[str, Sent] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    rejected: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    blind: set[str] = field(default_factory=set)
    shown: dict[str, str] = field(default_factory=dict)
    served: dict[str, set[str]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    restarts: int = 0
    max_age_s: float = math.inf
    """After so many seconds an answer is not posted any more."""
    calls: int = 0
    summaries: int = 0
    bills: list[Bill] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    """Hard limits in micro-dollars, by scope."""
    admins: set[str] = field(default_factory=set)
    asker_may_grant: bool = False
    plays: list[PlayCall] = field(default_factory=list)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The runs of playbooks by id, each as it was durable when a stage called last."""
    forgotten: dict[str, float] = field(default_factory=dict)
    """When something was last taken of each thread."""
    gone: set[str] = field(default_factory=set)
    """The ids of messages that people had forgotten."""
    tops: dict[str, set[str]] = field(default_factory=dict)
    """The models that were chosen, by the message whose turn they were to answer; only with the real stack."""
