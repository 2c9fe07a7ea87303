"""The loopback Discord without its sockets: the same rules and limits, and our own `Rest`, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import anyio

from tests.fakes.discord import APP, BOT, Call, Cut, FakeDiscord, Gate, RateLimited, Refused, Stall, Status
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.web import ROUTES
from threads.errors import TransportRateLimited, TransportUnavailable
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.values import Me

LATENCY_S = 0.1

SEND, EDIT = "POST /channels/{}/messages", "PATCH /channels/{}/messages/{}"
DELETE, TYPING = "DELETE /channels/{}/messages/{}", "POST /channels/{}/typing"
REACT, UNREACT = (f"{verb} /channels/{{}}/messages/{{}}/reactions/{{}}/@me" for verb in ("PUT", "DELETE"))
OPEN = "POST /channels/{}/messages/{}/threads"


class VirtualRest(Rest):
    """Our own calls before the fake's rules; an answer takes a tenth of a second.

    As discord.py does, it sleeps through a 429, and the call that empties a bucket returns when that is full again.
    """

    def __init__(self, discord, tasks):
        super().__init__("", discord.token, tasks)
        self.discord = discord
        self.me = Me(BOT, "threadfast", APP)

    def _place(self, channel):
        return _Place(self, channel)

    def _message(self, channel, message):
        return _Message(self, channel, message)

    async def open_thread(self, channel, message, name):
        path = {"channel": channel, "message": message}
        work = partial(self.request, OPEN, path, {"name": name})
        await self._ask("open_thread", work, line=f"thread {message}")
        return message

    async def channel(self, channel):
        return await self._ask("channel", partial(self.request, "GET /channels/{}", {"channel": channel}, {}))

    async def request(self, name, path, body, *, posts=False):
        discord = self.discord
        [route] = [route for route in ROUTES if route.name == name]
        while True:
            call = Call(name, path, {}, body, discord.token, discord.clock())
            discord.calls.append(call)
            fault = discord.script.take(call.route, call)
            if isinstance(fault, Gate):
                await fault.hold()
            await anyio.sleep(LATENCY_S)
            if getattr(fault, "applied", False) and not isinstance(fault, Gate):
                route.run(discord, call)
            match fault:
                case Refused(status, code, message):
                    raise DiscordRefused(name, status, code, message)
                case RateLimited(seconds):
                    raise TransportRateLimited(name, retry_after=seconds)
                case Cut() | Status():
                    raise TransportUnavailable(name, maybe_posted=posts)
                case Stall():
                    await anyio.sleep_forever()
            verdict = discord.buckets.take(name, path.get("channel", ""))
            if not verdict.wait:
                break
            discord.limited.append(call)
            await anyio.sleep(verdict.wait)
        try:
            answer = route.run(discord, call)
        except Refusal as refusal:
            raise DiscordRefused(name, refusal.status, refusal.code, refusal.message) from None
        if verdict.headers["X-RateLimit-Remaining"] == "0":
            await anyio.sleep(float(verdict.headers["X-RateLimit-Reset-After"]))
        return SimpleNamespace(**(answer or {}))


@dataclass
class _Place:
    rest: VirtualRest
    id: str

    async def send(self, content, *, nonce, suppress_embeds, reference=None, view=None):
        body = {"content": content, "nonce": nonce, "enforce_nonce": True, "allowed_mentions": {"parse": []}}
        body |= {"flags": 4} if suppress_embeds else {}
        body |= {"components": view.to_components()} if view else {}
        if reference:
            body["message_reference"] = {"message_id": str(reference.message_id), "fail_if_not_exists": False}
        return await self.rest.request(SEND, {"channel": self.id}, body, posts=True)

    async def typing(self):
        await self.rest.request(TYPING, {"channel": self.id}, {})


@dataclass
class _Message:
    rest: VirtualRest
    channel: str
    id: str

    @property
    def path(self):
        return {"channel": self.channel, "message": self.id}

    async def edit(self, *, view, **body):
        body |= {"components": view.to_components() if view else [], "allowed_mentions": {"parse": []}}
        await self.rest.request(EDIT, self.path, body)

    async def delete(self):
        await self.rest.request(DELETE, self.path, {})

    async def add_reaction(self, emoji):
        await self.rest.request(REACT, self.path | {"emoji": emoji}, {})

    async def remove_reaction(self, emoji, _):
        await self.rest.request(UNREACT, self.path | {"emoji": emoji}, {})

    async def fetch(self):
        return await self.rest.request("GET /channels/{}/messages/{}", self.path, {})


def virtual_discord(**more):
    return FakeDiscord(
        clock=anyio.current_time,
        wall=lambda: 1.7e9 + anyio.current_time(),
        rate_limits=True,
        echo=False,
        **more,
    )
