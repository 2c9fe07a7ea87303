"""The Web API's door: reading a call, its faults, token, limits and scopes, and the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fakes.slack import faults
from tests.fakes.slack.records import Call, Json
from tests.fakes.slack.rules import Refusal
from tests.fakes.sockets import connection, reset

if TYPE_CHECKING:
    from tests.fakes.slack.server import FakeSlack


class Args(dict[str, Any]):
    """A call's arguments, whether they came as JSON, as a form or in the address."""

    def need(self, name: str) -> str:
        value = self.get(name)
        if value in (None, ""):
            raise Refusal("invalid_arguments", f"missing required field: {name}")
        return str(value)

    def text(self, name: str) -> str:
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def flag(self, name: str) -> bool | None:
        value = self.get(name)
        return value if isinstance(value, bool) or value is None else str(value).lower() in ("1", "true")

    def number(self, name: str, default: int) -> int:
        try:
            return int(self.get(name, default))
        except (TypeError, ValueError):
            raise Refusal("invalid_arguments", f"must be an integer: {name}") from None

    def json(self, name: str, error: str = "invalid_arguments") -> Any:
        """A value that a form carries as JSON."""
        value = self.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value else None
        except ValueError:
            raise Refusal(error) from None


@dataclass(frozen=True)
class Method:
    run: Callable[[FakeSlack, Args], Json]
    scope: str


METHODS: dict[str, Method] = {}


def method(name: str, scope: str = "") -> Callable[[Callable[[FakeSlack, Args], Json]], Any]:
    """Register what carries the method *name* out; *scope* is what its token needs."""

    def register(run: Callable[[FakeSlack, Args], Json]) -> Any:
        METHODS[name] = Method(run, scope)
        return run

    return register


async def answer(slack: FakeSlack, request: web.Request) -> web.StreamResponse:
    """Answer one call of the Web API."""
    name = request.match_info["method"]
    try:
        args = await _args(request)
    except ValueError:
        return web.json_response({"ok": False, "error": "invalid_json"})
    token = _token(request, args)
    call = Call(name, args, token, slack.clock(), connection(request))
    slack.calls.append(call)
    slack.connections.add(call.connection)
    if slack.buckets.impatient(name, args.text("channel")):
        slack.impatient.append(call)
    slack.changed()
    try:
        return await under_fault(slack, request, name, args, lambda: _carry_out(slack, call, args))
    finally:
        slack.changed()


async def under_fault(
    slack: FakeSlack, request: web.Request, name: str, args: Json, run: Callable[[], web.Response]
) -> web.StreamResponse:
    """Carry *run* out, before, after or not at all, as the script for *name* says."""
    fault = slack.script.take(name, args)
    if fault is None:
        return run()
    done = run() if fault.applied else None
    slack.changed()
    match fault:
        case faults.RateLimited(retry_after):
            slack.buckets.pause(name, retry_after)
            return too_many(retry_after)
        case faults.Html(status):
            return web.Response(status=status, text=PAGE.format(status), content_type="text/html")
        case faults.Cut(_, how):
            return cut(request, how)
        case faults.Stall():
            await slack.closing.wait()
            return cut(request, "fin")
        case faults.Garbage(_, body, kind):
            return web.Response(text=body, content_type=kind)
        case faults.ApiError(error, more):
            return web.json_response({"ok": False, "error": error, **more})
        case faults.Slow(seconds):
            await asyncio.sleep(seconds)
        case faults.Gate():
            await fault.hold()
    return run() if done is None else done


PAGE = "<!DOCTYPE html><html><head><title>Slack</title></head><body>Server error {}</body></html>"


def _carry_out(slack: FakeSlack, call: Call, args: Args) -> web.Response:
    try:
        wait = _admit(slack, call, args)
        if wait:
            call.status, call.error = 429, "ratelimited"
            slack.limited.append(call)
            return too_many(wait)
        body = {"ok": True, **METHODS[call.method].run(slack, args)}
    except Refusal as refusal:
        body = {"ok": False, "error": refusal.error, **refusal.more}
    except Exception as bug:
        slack.bugs.append(bug)
        raise
    call.status, call.error, call.answer = 200, body.get("error", ""), body
    headers = {"x-slack-req-id": f"{len(slack.calls):x}"}
    if call.token in slack.bot_tokens:
        headers["x-oauth-scopes"] = ",".join(sorted(slack.scopes))
    if known := METHODS.get(call.method):
        headers["x-accepted-oauth-scopes"] = known.scope
    return web.Response(text=json.dumps(body), content_type="application/json", headers=headers)


def _admit(slack: FakeSlack, call: Call, args: Args) -> int:
    """Check method, token, limit and scope; return the seconds to wait."""
    known = METHODS.get(call.method)
    if known is None:
        raise Refusal("unknown_method", req_method=call.method)
    if call.token is None:
        raise Refusal("not_authed")
    if call.token in slack.revoked:
        raise Refusal("token_revoked")
    wanted, other = slack.bot_tokens, slack.app_tokens
    if call.method == "apps.connections.open":
        wanted, other = other, wanted
    if call.token not in wanted:
        raise Refusal("not_allowed_token_type" if call.token in other else "invalid_auth")
    if wait := slack.buckets.take(call.method, args.text("channel")):
        return wait
    if known.scope and known.scope not in slack.scopes:
        raise missing(slack, known.scope)
    return 0


def missing(slack: FakeSlack, scope: str) -> Refusal:
    return Refusal("missing_scope", needed=scope, provided=",".join(sorted(slack.scopes)))


async def _args(request: web.Request) -> Args:
    args = Args(request.query)
    if request.content_type == "application/json":
        body = json.loads(await request.text() or "{}")
        args.update(body if isinstance(body, dict) else {})
    elif request.can_read_body:
        args.update(await request.post())
    return args


def _token(request: web.Request, args: Args) -> str | None:
    bearer = request.headers.get("Authorization", "")
    if bearer.startswith("Bearer "):
        return bearer.removeprefix("Bearer ")
    token: str | None = args.pop("token", None)
    return token


def too_many(retry_after: int) -> web.Response:
    return web.json_response(
        {"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": str(retry_after)}
    )


def cut(request: web.Request, how: str) -> web.Response:
    """Hang up; what is returned can no longer be sent."""
    if transport := request.transport:
        if how == "rst":
            reset(transport)
        else:
            transport.close()
    return web.Response()
