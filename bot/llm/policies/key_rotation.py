"""The keys of one provider: a call that one key cannot make takes the next. No person is asked or told.

| a key                                       | then                                                          |
|---------------------------------------------|---------------------------------------------------------------|
| is known to be refused or rate limited      | passed over                                                   |
| fails with auth, payment or rate_limited    | the next free one, logged as `model.key_rotated`              |
| fails in any other way                      | raised: the provider has the trouble, or the request          |
| is the last free one                        | retries and waits as the only key of a provider does          |
| failed so, after another was rate limited   | that other one retries and waits                              |
| none is left                                | a rate limit is raised, if there was one, or the first failure |

So only when no key is left is another model asked, or the person told. Each key has its own gate, and so its own
queue, rates and circuit breakers. A thread stays with one key while that is healthy, because a prompt cache may
belong to a key's account. The keys share the threads evenly, and all workers agree on who has which.
"""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bot.ports.errors import ProviderError
from bot.ports.model import Completion, Model, Request
from threads.model import OnEvent, TextReset

from .queue import OF_THE_KEY

log = logging.getLogger(__name__)

MOST_MOVED = 10_000
"""Threads that are remembered with another key than their first; the oldest are forgotten."""


class KeyOfThread:
    """Which of a provider's keys a thread uses, by its place in a list of *count* keys."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._moved: OrderedDict[str, int] = OrderedDict()

    def place(self, thread: str) -> int:
        return self._moved.get(thread, self._first(thread))

    def move(self, thread: str, place: int) -> None:
        """Let the thread stay with another key."""
        self._moved.pop(thread, None)
        if place != self._first(thread):
            self._moved[thread] = place
        if len(self._moved) > MOST_MOVED:
            self._moved.popitem(last=False)

    def _first(self, thread: str) -> int:
        return zlib.crc32(thread.encode()) % self._count


@dataclass(frozen=True, slots=True)
class KeyedModel:
    """A model behind one key, ``number`` from 1. ``unavailable`` returns why it cannot be asked now, or None."""

    number: int
    model: Model
    unavailable: Callable[[], ProviderError | None]


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """A `Model` over several keys, for one thread."""

    keys: Sequence[KeyedModel]
    key_of: KeyOfThread
    thread: str

    @property
    def name(self) -> str:
        return self.keys[0].model.name

    def unavailable(self) -> ProviderError | None:
        """Return why the model cannot be asked now with any key, or None."""
        return _first_choice(self._in_order()).unavailable()

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`."""
        untried, limited = self._in_order(), list[KeyedModel]()
        key, failure = _first_choice(untried), None
        while True:
            untried.remove(key)
            other_key = any(map(_is_free, untried))
            try:
                completion = await key.model.complete(replace(request, other_key=other_key), on_event)
            except ProviderError as error:
                if error.code not in OF_THE_KEY:
                    raise
                failure = error if failure is None or error.code == "rate_limited" else failure
                if error.code == "rate_limited" and other_key:
                    limited.append(key)
                following = next(filter(_is_free, untried), None)
                if following is None and limited and request.last_resort:
                    following, untried, limited = limited[0], limited[:1], []
                if following is None:
                    raise failure from failure.__cause__
                self._note(error, key, following)
                await on_event(TextReset())
                key = following
            else:
                self.key_of.move(self.thread, self.keys.index(key))
                return completion

    def _note(self, error: ProviderError, key: KeyedModel, following: KeyedModel) -> None:
        fields = {"code": error.code, "model": self.name, "key": following.number, "from_key": key.number}
        words = (self.name, key.number, following.number, error)
        log.warning("model.key_rotated: %s: from key %d to key %d: %s", *words, extra=fields)

    def _in_order(self) -> list[KeyedModel]:
        """Return the keys, the thread's own first."""
        place = self.key_of.place(self.thread)
        return [*self.keys[place:], *self.keys[:place]]


def _first_choice(keys: Sequence[KeyedModel]) -> KeyedModel:
    """Return the first key that nothing is known against, else the one that recovers first by itself."""
    return next(filter(_is_free, keys), None) or min(keys, key=_wait_of)


def _is_free(key: KeyedModel) -> bool:
    error = key.unavailable()
    return error is None or error.code not in OF_THE_KEY


def _wait_of(key: KeyedModel) -> tuple[bool, float]:
    error = key.unavailable()
    return (error is not None and error.code != "rate_limited", (error and error.retry_after) or 0.0)
