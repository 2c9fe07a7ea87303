"""Checks Matrix with the settings, one finding after another."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from threads.errors import PostFailed, TransportFatal
from transports.matrix import render
from transports.matrix.api import CLIENT, NEW_LOGIN, open_api
from transports.matrix.client import Options
from transports.matrix.errors import MatrixRefused
from transports.matrix.values import Mark, transaction
from transports.shared.checks import REACH, TEST, Finding, failed_call, posted, proxy

CANNOT = "It can neither answer nor read in Matrix."


async def check_matrix(options: Options, *, post_in: str = "") -> AsyncGenerator[Finding, None]:
    """Yield each finding as it is made. Raises nothing. *post_in*: a room for a test post."""
    try:
        if finding := proxy("matrix.proxy", options.homeserver):
            yield finding
        async with open_api(options.homeserver, options.token, "matrix") as api:
            try:
                versions = (await api.call("GET", "/_matrix/client/versions")).get("versions")
            except PostFailed as error:
                yield failed_call(
                    "matrix.homeserver", error, CANNOT, f"Correct homeserver in the settings. {REACH}"
                )
                return
            newest = versions[-1] if isinstance(versions, list) and versions else "no version"
            yield Finding("matrix.homeserver", "ok", f"answers, speaks {newest}")
            try:
                who = await api.call("GET", f"{CLIENT}/account/whoami")
            except MatrixRefused as refused:
                yield Finding("matrix.token", "fail", str(refused), CANNOT, NEW_LOGIN)
                return
            except PostFailed as error:
                yield failed_call("matrix.token", error, CANNOT)
                return
            user, device = str(who.get("user_id")), who.get("device_id")
            if not device:
                yield Finding("matrix.token", "fail", "belongs to no device", CANNOT, NEW_LOGIN, (user,))
                return
            yield Finding("matrix.token", "ok", f"{user}, device {device}", names=(user,))
            rooms = (await api.call("GET", f"{CLIENT}/joined_rooms")).get("joined_rooms") or []
            meaning = "" if rooms else "Nobody can write to it yet."
            fix = "" if rooms else f"Invite {user} to a room, or write to it directly."
            yield Finding(
                "matrix.rooms", "ok" if rooms else "warn", f"in {len(rooms)} rooms", meaning, fix, (user,)
            )
            if post_in:
                content = render.content(TEST, Mark("test", final=False), notice=True)
                path = f"{CLIENT}/rooms/{post_in}/send/m.room.message/{transaction('test', user, id(api))}"
                event = str((await api.call("PUT", path, content)).get("event_id"))
                try:
                    await api.redact(post_in, event)
                    yield posted("matrix.post", post_in, None)
                except PostFailed as error:
                    yield posted("matrix.post", post_in, error)
    except TransportFatal as fault:
        yield Finding("matrix", "fail", str(fault), CANNOT)
    except PostFailed as error:
        yield failed_call("matrix", error, CANNOT)
