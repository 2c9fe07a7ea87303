"""What a message only gives the ids of: names of people, channels and groups, and files of other companies.

A name is asked for once a day, a file once. What cannot be had harms nothing else: it is unknown for as long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import anyio
from cachetools import LRUCache, TTLCache

from threads.errors import PostFailed
from transports.shared.client import CountUnread
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import Shape, identifier, part, parts, string
from transports.slack.api.web_api import WebApi
from transports.slack.events.parse_message import Known, Me, wanted

log = logging.getLogger(__name__)

MOST_AT_ONCE = 60
"""Look-ups for one message or one thread; the rest stays unknown."""

MOST_NAMES, MOST_FILES = 5_000, 500
LASTS_S = 86_400.0

NAMED_WITHIN_S = 1.0
"""How long an event waits for what it leaves out; Slack sends it again after 3 s."""

REST_S = 60.0
"""Nothing is looked up for so long after look-ups of which none had an answer: messages wait for them."""

ABOUT = {
    "U": ("users.info", "user"),
    "W": ("users.info", "user"),
    "C": ("conversations.info", "channel"),
    "G": ("conversations.info", "channel"),
    "F": ("files.info", "file"),
    "S": ("usergroups.list", "usergroups"),
}
"""By the first letter of an id: the method, and the name of its argument and of its answer.

Groups are told all at once, without an argument.
"""


class Lookups:
    """Fills ``known``."""

    def __init__(self, web: WebApi, me: Me, count_unread: CountUnread) -> None:
        self._names: TTLCache[str, str] = TTLCache(MOST_NAMES, LASTS_S, anyio.current_time)
        self._files: LRUCache[str, Shape] = LRUCache(MOST_FILES)
        self.known = Known(self._names, self._files)
        self._web, self._me, self._count_unread, self._rest_until = web, me, count_unread, 0.0

    async def explain(self, messages: Sequence[Shape], within_s: float) -> bool:
        """Look up what these messages leave out, the first ones first. Return whether anything became known.

        Their parts of a kind that cannot be read are counted.
        """
        ids: list[str] = []
        for message in messages:
            unread: set[str] = set()
            ids += wanted(message, unread)
            for kind in unread:
                self._count_unread(kind)
        return await self._learn(ids, within_s)

    async def name_of(self, user: str) -> str:
        """Return a person's name, or "" if it cannot be read now."""
        await self._learn([user], NAMED_WITHIN_S)
        return self._names.get(user, "")

    async def file(self, file_id: str) -> Shape:
        """Ask for a file anew, and return it. Raises `PostFailed`."""
        self._files[file_id] = found = part(await self._web.call("files.info", file=file_id), "file")
        return found

    async def _learn(self, ids: Iterable[str], within_s: float) -> bool:
        told = dict.fromkeys(one for one in ids if one[:1] in ABOUT and one != self._me.user)
        unknown = [one for one in told if one not in self._names and one not in self._files]
        if not unknown or anyio.current_time() < self._rest_until:
            return False
        answered: list[str] = []
        with anyio.move_on_after(within_s):
            async with anyio.create_task_group() as tasks:
                for one in unknown[:MOST_AT_ONCE]:
                    await self._web.limits.take(ABOUT[one[0]][0], urgent=False)
                    tasks.start_soon(self._look_up, one, answered)
        if not answered:
            self._rest_until = anyio.current_time() + REST_S
            log.warning("names.unknown: Slack does not say what ids stand for: going on without for a minute")
        return bool(answered)

    async def _look_up(self, one: str, answered: list[str]) -> None:
        method, name = ABOUT[one[0]]
        groups: Sequence[Shape] = ()
        try:
            answer = await self._web.ask(method, **({} if one[0] == "S" else {name: one}))
            found, groups = part(answer, name), parts(answer, name)
        except SlackRefused as refused:
            log.info("names.refused: Slack does not say what an id stands for: %s", refused)
            found = {}
        except PostFailed as error:
            log.info("names.failed: a look-up had no answer: %s", error)
            return
        if name == "file":
            self._files[one] = found
        else:
            self._names[one] = _name_of(found)
        for group in groups:
            self._names[identifier(group, "id")] = string(group, "handle")
        answered.append(one)


def _name_of(found: Shape) -> str:
    """Return what people call a person or a public channel; the name of a private one is for its members."""
    if found.get("is_private") is True:
        return ""
    profile = part(found, "profile")
    names = (string(profile, "display_name"), string(profile, "real_name"), string(found, "name"))
    return next(filter(None, names), "")
