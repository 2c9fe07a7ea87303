"""Checks Matrix with the settings, one finding after another."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from uuid import uuid4

from threads.errors import PostFailed, TransportFatal
from transports.matrix import render
from transports.matrix.api import CLIENT, in_room, open_api
from transports.shared.checks import REACH, TEST, Finding, failed_call, posted, proxy

CANNOT = "It can neither answer nor read in Matrix."
ALONE = "Nobody can write to it yet."


async def check_matrix(homeserver: str, token: str, post_in: str = "") -> AsyncGenerator[Finding, None]:
    """Yield each finding as it is made. Raises nothing. *post_in*: a room for a test post, if it is one of Matrix."""
    name = "matrix.homeserver"
    try:
        if finding := proxy("matrix.proxy", homeserver):
            yield finding
        async with open_api(homeserver, token, "matrix") as api:
            versions = (await api.find("/_matrix/client/versions")).get("versions") or ["of no version"]
            yield Finding(name, "ok", f"answers, {versions[-1]}")
            name = "matrix.token"
            device = await api.log_in()
            yield Finding(name, "ok", f"{api.me.id}, device {device}", names=(api.me.id,))
            name = "matrix.rooms"
            rooms = (await api.call("GET", f"{CLIENT}/joined_rooms")).get("joined_rooms") or []
            fix = f"Invite {api.me.id} to a room, or write to it directly."
            alone = Finding(name, "warn", "in no room", ALONE, fix, (api.me.id,))
            yield Finding(name, "ok", f"in {len(rooms)} rooms") if rooms else alone
            if post_in.startswith("!"):
                name = "matrix.post"
                path = in_room(post_in, "send", "m.room.message", uuid4().hex)
                event = await api.call("PUT", path, render.content(TEST, {}))
                await api.redact(post_in, str(event.get("event_id")))
                yield posted(name, post_in, None)
    except TransportFatal as fault:
        yield Finding(name, "fail", str(fault), CANNOT)
    except PostFailed as error:
        yield failed_call(name, error, CANNOT, f"Correct homeserver in the settings. {REACH}")
