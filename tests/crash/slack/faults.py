"""What goes wrong with the bot's calls in Slack, and how often."""

from __future__ import annotations

from tests.crash.chance import Chance, Step
from tests.fakes.slack.faults import Cut, Fault, Html, RateLimited
from tests.fakes.slack.records import Json

WRITES = frozenset(
    {"chat.postMessage", "chat.update", "chat.delete", "chat.startStream", "chat.appendStream"}
    | {"chat.stopStream", "chat.postEphemeral", "files.completeUploadExternal"}
)
READS = frozenset({"conversations.replies", "conversations.history", "users.conversations"})


class SlackChance(Chance[Fault, Json]):
    def cut(self, *, applied: bool) -> Fault:
        return Cut(applied=applied)

    def draw(self, method: str) -> Fault | None:
        fate = self._fate
        drawn = fate.random()
        if method in WRITES:
            if drawn < 0.2:
                return Step(seconds=fate.uniform(0, self._late_s))
            faults: list[Fault] = [
                *(Html(503), Html(502, applied=True), RateLimited(1)),
                *(Cut(), Cut(applied=True), Cut(applied=True, how="fin")),
            ]
            return fate.choice(faults) if drawn > 0.94 else None
        if method in READS or method in ("auth.test", "apps.connections.open"):
            return fate.choice([Html(503), RateLimited(1), Cut()]) if drawn > 0.97 else None
        return Html(503) if drawn > 0.97 else None
