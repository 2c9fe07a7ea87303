"""The door of REST: reading a call, its faults, token and limits, and the answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fakes.discord import faults, limits
from tests.fakes.discord.ids import Json
from tests.fakes.discord.records import Attachment, Call
from tests.fakes.discord.rules import Refusal
from tests.fakes.sockets import connection, reset

if TYPE_CHECKING:
    from tests.fakes.discord.server import FakeDiscord

Run = Callable[["FakeDiscord", Call], Any]


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    run: Run
    by_token: bool
    """The address holds the token of an interaction, which is all it takes."""

    @property
    def name(self) -> str:
        return f"{self.method} {re.sub(r'{[^}]*}', '{}', self.path)}"


ROUTES: list[Route] = []


def route(method: str, path: str, *, by_token: bool = False) -> Callable[[Run], Run]:
    """Register what carries out *method* on *path* ("/channels/{channel}"); it returns JSON, or None for 204."""

    def register(run: Run) -> Run:
        ROUTES.append(Route(method, path, run, by_token))
        return run

    return register


def install(discord: FakeDiscord, app: web.Application) -> None:
    for known in ROUTES:
        app.router.add_route(known.method, f"/api/v10{known.path}", partial(answer, discord, known))
    unknown = Route("*", "/", _nowhere, by_token=True)
    app.router.add_route("*", "/api/{rest:.*}", partial(answer, discord, unknown))


def _nowhere(discord: FakeDiscord, call: Call) -> None:
    raise Refusal(404, 0, "404: Not Found")


async def answer(discord: FakeDiscord, known: Route, request: web.Request) -> web.StreamResponse:
    """Answer one call of REST."""
    if discord.offline:
        return cut(request)
    try:
        call = await _read(discord, known, request)
    except ValueError:
        return _json(400, {"message": "The request body contains invalid JSON.", "code": 50109}, {})
    discord.calls.append(call)
    discord.changed()
    try:
        return await under_fault(discord, request, call, lambda: _carry_out(discord, known, call))
    finally:
        discord.changed()


async def under_fault(
    discord: FakeDiscord, request: web.Request, call: Call, run: Callable[[], web.Response]
) -> web.StreamResponse:
    """Carry *run* out, before, after or not at all, as the script says."""
    fault = discord.script.take(call.route, call, own=call.route == "GET /cdn")
    return run() if fault is None else await apply_fault(discord, request, call, fault, run)


async def apply_fault(
    discord: FakeDiscord,
    request: web.Request,
    call: Call,
    fault: faults.Fault,
    run: Callable[[], web.Response],
) -> web.StreamResponse:
    """Answer as *fault* says."""
    done = run() if fault.applied else None
    call.refused = "fault"
    discord.changed()
    match fault:
        case faults.Status(status, _, html, location):
            answer = _status(discord, call, status, html=html)
            answer.headers.update({"Location": location} if location else {})
            return answer
        case faults.RateLimited(seconds, via, is_global):
            return _too_many(discord, call, seconds, via=via, is_global=is_global)
        case faults.Refused(status, code, message):
            return _refuse(discord, call, Refusal(status, code, message), {})
        case faults.Cut():
            return cut(request)
        case faults.Stall():
            await discord.closing.wait()
            return cut(request)
        case faults.Garbage(_, body):
            return _json(200, body, {})
        case faults.Slow(seconds):
            await asyncio.sleep(seconds)
        case faults.Gate():
            await fault.hold()
    call.refused = ""
    return run() if done is None else done


PAGE = "<!DOCTYPE html><html><head><title>{0}</title></head><body>Error {0}</body></html>"


def _status(discord: FakeDiscord, call: Call, status: int, *, html: bool) -> web.Response:
    call.status = status
    discord.count_invalid(status)
    if html:
        return web.Response(status=status, text=PAGE.format(status), content_type="text/html")
    return _json(status, {"message": f"{status}: Error", "code": 0}, {})


def _too_many(
    discord: FakeDiscord, call: Call, seconds: float, *, via: bool, is_global: bool
) -> web.Response:
    call.status = 429
    discord.count_invalid(429)
    headers = {"Retry-After": str(max(1, round(seconds)))}
    if not via:
        page = PAGE.format("You are being rate limited")
        return web.Response(status=429, text=page, content_type="text/html", headers=headers)
    if is_global:
        headers["X-RateLimit-Global"] = "true"
    return _json(429, limits.body_of_429(seconds, is_global=is_global), headers)


def _carry_out(discord: FakeDiscord, known: Route, call: Call) -> web.Response:
    headers: dict[str, str] = {}
    try:
        _check_token(discord, known, call)
        major = call.path.get("token") or call.path.get("channel") or call.path.get("guild") or ""
        verdict = discord.buckets.take(known.name, major, exempt=known.by_token)
        headers = verdict.headers
        if verdict.wait:
            call.refused = "limit"
            discord.limited.append(call)
            body = limits.body_of_429(verdict.wait, is_global=verdict.scope == "global")
            refusal = Refusal(429, 0, str(body.pop("message")), **body)
            headers["Retry-After"] = str(max(1, round(verdict.wait)))
            return _refuse(discord, call, refusal, headers)
        call.answer = known.run(discord, call)
    except Refusal as refusal:
        return _refuse(discord, call, refusal, headers)
    except Exception as bug:
        discord.bugs.append(bug)
        raise
    call.status = 204 if call.answer is None else 200
    return _json(call.status, call.answer, headers)


def _check_token(discord: FakeDiscord, known: Route, call: Call) -> None:
    if not known.by_token and (call.token != discord.token or discord.revoked):
        raise Refusal(401, 0, "401: Unauthorized")


def _refuse(discord: FakeDiscord, call: Call, refusal: Refusal, headers: dict[str, str]) -> web.Response:
    call.status, call.code, call.answer = refusal.status, refusal.code, refusal.body
    discord.count_invalid(refusal.status)
    return _json(refusal.status, refusal.body, headers)


def _json(status: int, body: Any, headers: dict[str, str]) -> web.Response:
    headers = headers | {"Via": "1.1 google"}
    if status == 204:
        return web.Response(status=204, headers=headers)
    text = body if isinstance(body, str) else json.dumps(body)
    return web.Response(status=status, body=text.encode(), content_type="application/json", headers=headers)


async def _read(discord: FakeDiscord, known: Route, request: web.Request) -> Call:
    token = request.headers.get("Authorization", "").removeprefix("Bot ")
    call = Call(known.name, dict(request.match_info), dict(request.query), {}, token, discord.clock())
    call.connection = connection(request)
    if request.content_type.startswith("multipart/"):
        call.body = await _form(discord, request, call)
    elif raw := await request.read():
        read = json.loads(raw)
        call.body = read if isinstance(read, dict) else {"items": read}
    return call


async def _form(discord: FakeDiscord, request: web.Request, call: Call) -> Json:
    body: Json = {}
    for name, part in (await request.post()).items():
        if isinstance(part, web.FileField):
            made = Attachment(
                discord.snowflake(), call.channel, part.filename, part.file.read(), part.content_type
            )
            call.files[name.removeprefix("files[").removesuffix("]")] = made
        elif name == "payload_json":
            body = json.loads(str(part))
    return body


def cut(request: web.Request) -> web.Response:
    """Reset the connection; what is returned can no longer be sent."""
    if transport := request.transport:
        reset(transport)
    return web.Response()
