"""Checks Slack with the settings, one finding after another."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping

import aiohttp
import anyio
from pydantic import JsonValue
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from threads.errors import PostFailed, TransportUnavailable
from threads.model import WallClock
from transports.shared.checks import (
    REACH,
    TEST,
    WITHIN_S,
    Finding,
    State,
    clock,
    describe_failure,
    failed_call,
    posted,
    proxy,
    try_socket,
    utc_now,
)
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import part, string
from transports.slack.api.web_api import WebApi, explained, open_web
from transports.slack.client import Options
from transports.slack.manifest import scopes

NEW_BOT_TOKEN = (
    "At api.slack.com/apps, your app, OAuth & Permissions: (re)install it and set the new xoxb- token."  # noqa: S105
)
NEW_APP_TOKEN = (
    "At api.slack.com/apps, your app, Basic Information, App-Level Tokens: "  # noqa: S105
    "make one with connections:write and set it."
)
SOCKET_MODE = "At api.slack.com/apps, your app, Socket Mode: switch it on."
ADD_SCOPES = (
    "Paste `threadfast manifest slack` at api.slack.com/apps, App Manifest; then install the app again."
)
DEAF = "It hears nothing from Slack."

APP_ID = re.compile(r"xapp-\d+-(A[A-Z0-9]+)-")


async def check_slack(
    options: Options, *, running: bool = False, post_in: str = "", now: WallClock = utc_now
) -> AsyncGenerator[Finding, None]:
    """Yield each finding as it is made, after a few seconds at most. Raises nothing.

    *running*: a bot serves this app now, so no socket is opened. *post_in*: a channel or person for a test message.
    Close it (`contextlib.aclosing`) if it is not read to its end.
    """
    async with open_web(options.api_base_url, options.bot_token) as web:
        if way := proxy("slack.proxy", web.client.base_url):
            yield way
        answer = await _ask(web, "auth.test")
        yield _token(answer, options.bot_token)
        if not isinstance(answer, PostFailed):
            if finding := clock("slack.clock", answer.headers.get("Date"), now(), options.max_age_s):
                yield finding
            yield _scopes(answer, options)
        opened = await _open(web, options.app_token)
        yield _app_token(opened, options.app_token)
        hello: Mapping[str, JsonValue] = {}
        if isinstance(opened, str) and not running:
            greeting = await _hello(web, opened)
            yield greeting if isinstance(greeting, Finding) else _socket(greeting)
            hello = {} if isinstance(greeting, Finding) else greeting
        if isinstance(answer, PostFailed):
            return
        if found := await _same_app(web, answer, hello, options.app_token):
            yield found
        if post_in:
            yield await _post(web, post_in)


async def _ask(web: WebApi, method: str, **arguments: JsonValue) -> AsyncSlackResponse | PostFailed:
    """Call *method* once. Every failure comes back; nothing is raised but a cancellation."""
    try:
        with anyio.fail_after(WITHIN_S):
            answer = await web.client.api_call(method, params=arguments)
    except SlackApiError as error:
        return explained(method, error)
    except TimeoutError:
        return TransportUnavailable(f"{method}: no answer within {WITHIN_S:.0f} s")
    except Exception as error:  # noqa: BLE001  the boundary of a check: every failure is a finding
        return TransportUnavailable(f"{method}: {describe_failure(error)}")
    if not isinstance(answer.data, dict):
        return TransportUnavailable(f"{method}: the answer is not Slack's")
    return answer


def _token(answer: AsyncSlackResponse | PostFailed, token: str) -> Finding:
    name, meaning = "slack.token", "It can neither answer nor read in Slack."
    if isinstance(answer, PostFailed):
        if not isinstance(answer, SlackRefused):
            return failed_call(name, answer, meaning)
        form = "" if token.startswith("xoxb-") else "; a bot token begins with xoxb-"
        return Finding(name, "fail", f"Slack refuses it ({answer.error}){form}", meaning, NEW_BOT_TOKEN)
    body = answer.data
    assert isinstance(body, dict)
    user, team = string(body, "user"), string(body, "team")
    if not string(body, "bot_id"):
        found = f"this token is a person's ({user}), not the bot's"
        return Finding(name, "fail", found, meaning, NEW_BOT_TOKEN, (user,))
    user_id, team_id = string(body, "user_id"), string(body, "team_id")
    found = f"{user} ({user_id}) in the workspace {team} ({team_id})"
    return Finding(name, "ok", found, names=(user, user_id, team, team_id))


def _scopes(answer: AsyncSlackResponse, options: Options) -> Finding:
    name = "slack.scopes"
    granted = {part.strip() for part in answer.headers.get("x-oauth-scopes", "").split(",")} - {""}
    if not granted:
        found = "Slack did not say which the token has"
        return Finding(name, "warn", found, "They cannot be compared.", ADD_SCOPES)
    missing = [scope for scope in scopes(options.features) if scope.name not in granted]
    if not missing:
        return Finding(name, "ok", "all that these settings need")
    state: State = "fail" if any(scope.name == "chat:write" for scope in missing) else "warn"
    found = f"missing: {', '.join(scope.name for scope in missing)}"
    return Finding(
        name, state, found, f"Without: {'; '.join(scope.without for scope in missing)}.", ADD_SCOPES
    )


async def _open(web: WebApi, app_token: str) -> str | PostFailed:
    """Return the address of a socket, which holds a ticket and is never shown."""
    method = "apps.connections.open"
    answer = await _ask(web, method, token=app_token.strip())
    if isinstance(answer, PostFailed):
        return answer
    url = answer.get("url")
    return url if isinstance(url, str) else TransportUnavailable(f"{method}: the answer has no address")


def _app_token(opened: str | PostFailed, token: str) -> Finding:
    name = "slack.app_token"
    if not isinstance(opened, PostFailed):
        return Finding(name, "ok", "opens sockets (connections:write)")
    if not isinstance(opened, SlackRefused):
        return failed_call(name, opened, DEAF)
    form = "" if token.startswith("xapp-") else "; an app token begins with xapp-"
    return Finding(name, "fail", f"Slack refuses it ({opened.error}){form}", DEAF, NEW_APP_TOKEN)


async def _hello(web: WebApi, url: str) -> Mapping[str, JsonValue] | Finding:
    """Open a socket up to Slack's greeting and close it; nothing is acknowledged, so nothing is lost."""
    name = "slack.socket"

    async def greeting(socket: aiohttp.ClientWebSocketResponse) -> dict[str, JsonValue]:
        frame: dict[str, JsonValue] = await socket.receive_json()
        return frame

    frame = await try_socket(name, web.session, url, greeting, DEAF)
    match frame:
        case Finding() | {"type": "hello"}:
            return frame
        case {"type": "disconnect", "reason": "link_disabled"}:
            found, fix = "Socket Mode is switched off for this app", SOCKET_MODE
        case {"type": "disconnect", "reason": "too_many_websockets"}:
            found, fix = "all 10 links of the app are in use", "Stop the other copies of the bot."
        case _:
            found, fix = "the first frame was not a greeting", REACH
    return Finding(name, "fail", found, DEAF, fix)


def _socket(hello: Mapping[str, JsonValue]) -> Finding:
    name, links = "slack.socket", hello.get("num_connections")
    if not isinstance(links, int) or links < 2:
        return Finding(name, "ok", "opened and greeted")
    found = f"opened and greeted; {links - 1} more of this app {'is' if links == 2 else 'are'} open"
    meaning = "Slack gives each event to one of them: another copy of the bot takes a part of what is said."
    return Finding(name, "warn", found, meaning, "Stop the other copy, or give this one an app of its own.")


async def _same_app(
    web: WebApi, auth: AsyncSlackResponse, hello: Mapping[str, JsonValue], app_token: str
) -> Finding | None:
    """Compare the apps of the two tokens; None if one of them is unknown."""
    app = APP_ID.match(app_token)
    listening = string(part(hello, "connection_info"), "app_id") or (app[1] if app else "")
    answer = await _ask(web, "bots.info", bot=auth.get("bot_id"))
    bot = None if isinstance(answer, PostFailed) else answer.get("bot")
    speaking = string(bot, "app_id") if isinstance(bot, dict) else ""
    if not listening or not speaking:
        return None
    if speaking == listening:
        return Finding("slack.app", "ok", f"both tokens belong to {speaking}")
    found = f"the tokens belong to two apps: it would listen as {listening} and answer as {speaking}"
    meaning = "It hears what is said to one app and answers as the other."
    return Finding("slack.app", "fail", found, meaning, "Take both tokens from one app.")


async def _post(web: WebApi, where: str) -> Finding:
    name = "slack.post"
    message = await _ask(web, "chat.postMessage", channel=where, text=TEST, unfurl_links=False)
    if isinstance(message, PostFailed):
        fix = "Invite the bot there, or name another place."
        return failed_call(name, message, "It cannot answer there.", fix)
    deletion = await _ask(web, "chat.delete", channel=message.get("channel"), ts=message.get("ts"))
    return posted(name, where, deletion)
