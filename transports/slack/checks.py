"""Looks at Slack as the settings would have it used, one finding after another.

| finding           | what is done                                                                               |
|-------------------|--------------------------------------------------------------------------------------------|
| `slack.proxy`     | nothing; only there when the environment names one                                         |
| `slack.token`     | `auth.test`: whose token it is, and in which workspace                                     |
| `slack.clock`     | the Date of that answer beside this machine's                                              |
| `slack.scopes`    | its `x-oauth-scopes` beside the manifest's, with what does not work without each           |
| `slack.app_token` | `apps.connections.open`                                                                    |
| `slack.socket`    | a socket up to its hello, closed again; not beside a running bot, whose events it may take |
| `slack.app`       | `bots.info` beside the hello (or the token's own form): are both tokens of one app?        |
| `slack.post`      | a message, posted and deleted, in the place that was named; else one that nobody can see:  |
|                   | scheduled for a far day in the first direct conversation, and taken back at once           |
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime, timedelta

import aiohttp
import anyio
from pydantic import JsonValue
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from threads.errors import PostFailed, TransportUnavailable
from transports.shared.checks import REACH, TEST, WITHIN_S, Finding, clock, failed, plainly, proxy, utc_now
from transports.shared.link.proxy import proxy_for
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import string
from transports.slack.api.web_api import Web, explained, open_web
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
FAR_DAY = timedelta(days=100)
"""Slack takes messages for at most 120 days ahead."""

APP_ID = re.compile(r"xapp-\d+-(A[A-Z0-9]+)-")


async def check_slack(
    options: Options, *, running: bool = False, post_in: str = "", now: Callable[[], datetime] = utc_now
) -> AsyncGenerator[Finding, None]:
    """Give each finding as it is made. Raises nothing, and each takes some seconds at most.

    *running*: a bot serves this app now, so no socket is opened. *post_in*: the channel or person that may see a test
    message. Close it (`contextlib.aclosing`) if it is not read to its end.
    """
    async with open_web(options.api_base_url, options.bot_token) as web:
        if way := proxy("slack.proxy", web.client.base_url):
            yield way
        answer = await _ask(web, "auth.test")
        yield _token(answer, options.bot_token)
        if not isinstance(answer, PostFailed):
            if told := clock("slack.clock", answer.headers.get("Date"), now(), options.max_age_s):
                yield told
            yield _scopes(answer, options)
        opened = await _opened(web, options.app_token)
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
        yield await (_visible_post(web, post_in) if post_in else _unseen_post(web, now()))


async def _ask(web: Web, method: str, **arguments: JsonValue) -> AsyncSlackResponse | PostFailed:
    """Call *method* once. Every failure comes back; nothing is raised but a cancellation."""
    return await _tried(method, lambda: web.client.api_call(method, params=arguments))


async def _tried(method: str, call: Callable[[], object]) -> AsyncSlackResponse | PostFailed:
    try:
        with anyio.fail_after(WITHIN_S):
            answer = await call()  # type: ignore[misc]  # the SDK's calls have no common type
    except SlackApiError as error:
        return explained(method, error)
    except TimeoutError:
        return TransportUnavailable(f"{method}: no answer within {WITHIN_S:.0f} s")
    except Exception as error:  # noqa: BLE001  the boundary of a look: whatever broke is what was found
        return TransportUnavailable(f"{method}: {plainly(error)}")
    if not isinstance(answer, AsyncSlackResponse) or not isinstance(answer.data, dict):
        return TransportUnavailable(f"{method}: what answers is not Slack")
    return answer


def _token(answer: AsyncSlackResponse | PostFailed, token: str) -> Finding:
    name, meaning = "slack.token", "It can neither answer nor read in Slack."
    if isinstance(answer, PostFailed):
        if not isinstance(answer, SlackRefused):
            return failed(name, answer, meaning)
        form = "" if token.startswith("xoxb-") else "; a bot token begins with xoxb-"
        return Finding(name, "fail", f"Slack refuses it ({answer.error}){form}", meaning, NEW_BOT_TOKEN)
    body = answer.data
    assert isinstance(body, dict)
    user, team = string(body, "user"), string(body, "team")
    if not string(body, "bot_id"):
        return Finding(
            name, "fail", f"this token is a person's ({user}), not the bot's", meaning, NEW_BOT_TOKEN, (user,)
        )
    where = f"{team} ({string(body, 'team_id')})"
    names = user, string(body, "user_id"), team, string(body, "team_id")
    return Finding(name, "ok", f"{user} ({string(body, 'user_id')}) in the workspace {where}", names=names)


def _scopes(answer: AsyncSlackResponse, options: Options) -> Finding:
    name = "slack.scopes"
    granted = {part.strip() for part in answer.headers.get("x-oauth-scopes", "").split(",")} - {""}
    if not granted:
        return Finding(
            name, "warn", "Slack did not say which the token has", "They cannot be compared.", ADD_SCOPES
        )
    missing = [scope for scope in scopes(options.features) if scope.name not in granted]
    if not missing:
        return Finding(name, "ok", "all that these settings need")
    return Finding(
        name,
        "fail" if any(scope.name == "chat:write" for scope in missing) else "warn",
        f"missing: {', '.join(scope.name for scope in missing)}",
        f"Without: {'; '.join(scope.without for scope in missing)}.",
        ADD_SCOPES,
    )


async def _opened(web: Web, app_token: str) -> str | PostFailed:
    """Return the address of a socket, which holds a ticket and is never shown."""
    method = "apps.connections.open"
    token = app_token.strip()
    answer = await _tried(method, lambda: web.client.apps_connections_open(app_token=token))
    if isinstance(answer, PostFailed):
        return answer
    url = answer.get("url")
    return url if isinstance(url, str) else TransportUnavailable(f"{method}: the answer has no address")


def _app_token(opened: str | PostFailed, token: str) -> Finding:
    name = "slack.app_token"
    if not isinstance(opened, PostFailed):
        return Finding(name, "ok", "opens sockets (connections:write)")
    if not isinstance(opened, SlackRefused):
        return failed(name, opened, DEAF)
    form = "" if token.startswith("xapp-") else "; an app token begins with xapp-"
    return Finding(name, "fail", f"Slack refuses it ({opened.error}){form}", DEAF, NEW_APP_TOKEN)


async def _hello(web: Web, url: str) -> Mapping[str, JsonValue] | Finding:
    """Open a socket up to Slack's greeting and close it; nothing is acknowledged, so nothing is lost."""
    name = "slack.socket"
    try:
        with anyio.fail_after(WITHIN_S):
            closing = aiohttp.ClientWSTimeout(ws_close=1.0)
            async with web.session.ws_connect(url, proxy=proxy_for(url), timeout=closing) as socket:
                frame: dict[str, JsonValue] = await socket.receive_json()
    except TimeoutError:
        return Finding(name, "fail", f"no greeting within {WITHIN_S:.0f} s", DEAF, REACH)
    except Exception as error:  # noqa: BLE001  the boundary of a look: whatever broke is what was found
        return Finding(
            name, "fail", plainly(error), DEAF, "Allow websockets (wss://) on the way out. " + REACH
        )
    match frame:
        case {"type": "hello"}:
            return frame
        case {"type": "disconnect", "reason": "link_disabled"}:
            return Finding(name, "fail", "Socket Mode is switched off for this app", DEAF, SOCKET_MODE)
        case {"type": "disconnect", "reason": "too_many_websockets"}:
            return Finding(
                name, "fail", "all 10 links of the app are in use", DEAF, "Stop the other copies of the bot."
            )
        case _:
            return Finding(name, "fail", "the first frame was no greeting", DEAF, REACH)


def _socket(hello: Mapping[str, JsonValue]) -> Finding:
    links = hello.get("num_connections")
    if isinstance(links, int) and links > 1:
        return Finding(
            "slack.socket",
            "warn",
            f"opened and greeted; {links - 1} more of this app {'is' if links == 2 else 'are'} open",
            "Slack gives each event to one of them: another copy of the bot takes a part of what is said.",
            "Stop the other copy, or give this one an app of its own.",
        )
    return Finding("slack.socket", "ok", "opened and greeted")


async def _same_app(
    web: Web, auth: AsyncSlackResponse, hello: Mapping[str, JsonValue], app_token: str
) -> Finding | None:
    """Compare the apps of the two tokens; None when one of them cannot be known."""
    match hello.get("connection_info"):
        case {"app_id": str(listening)}:
            pass
        case _:
            found = APP_ID.match(app_token)
            listening = found[1] if found else ""
    answer = await _ask(web, "bots.info", bot=auth.get("bot_id"))
    told = None if isinstance(answer, PostFailed) else answer.get("bot")
    match told:
        case {"app_id": str(speaking)} if listening and speaking != listening:
            return Finding(
                "slack.app",
                "fail",
                f"the tokens belong to two apps: it would listen as {listening} and answer as {speaking}",
                "It hears what is said to one app and answers as the other.",
                "Take both tokens from one app.",
            )
        case {"app_id": str(speaking)} if listening:
            return Finding("slack.app", "ok", f"both tokens belong to {speaking}")
        case _:
            return None


async def _visible_post(web: Web, where: str) -> Finding:
    name = "slack.post"
    posted = await _ask(web, "chat.postMessage", channel=where, text=TEST, unfurl_links=False)
    if isinstance(posted, PostFailed):
        return failed(name, posted, "It cannot answer there.", "Invite the bot there, or name another place.")
    gone = await _ask(web, "chat.delete", channel=posted.get("channel"), ts=posted.get("ts"))
    if isinstance(gone, PostFailed):
        return Finding(
            name, "warn", f"posted; not deleted ({gone})", "The test stays there.", "Delete it by hand."
        )
    return Finding(name, "ok", f"posted in {where} and deleted", names=(where,))


async def _unseen_post(web: Web, now: datetime) -> Finding:
    name = "slack.post"
    hint = "`threadfast doctor --post-in CHANNEL` posts a line there and deletes it."
    places = await _ask(web, "users.conversations", types="im", limit=1)
    match None if isinstance(places, PostFailed) else places.get("channels"):
        case [{"id": str(channel)}, *_]:
            pass
        case _:
            return Finding(name, "ok", "not tried: it has no direct conversation yet", fix=hint)
    at = int((now + FAR_DAY).timestamp())
    made = await _ask(web, "chat.scheduleMessage", channel=channel, text=TEST, post_at=at)
    if isinstance(made, PostFailed):
        fix = ADD_SCOPES if isinstance(made, SlackRefused) and made.kind == "scope" else hint
        return failed(name, made, "It may not be able to answer.", fix)
    number = made.get("scheduled_message_id")
    taken = await _ask(web, "chat.deleteScheduledMessage", channel=channel, scheduled_message_id=number)
    if isinstance(taken, PostFailed):
        return Finding(
            name,
            "warn",
            f"a test message could be scheduled and not be taken back ({taken})",
            f"It will be posted in {FAR_DAY.days} days in {channel}.",
            f"Take it back: chat.deleteScheduledMessage with {channel} and {number}.",
        )
    return Finding(
        name, "ok", "may post (a message was scheduled for a far day and taken back; nobody saw it)"
    )
