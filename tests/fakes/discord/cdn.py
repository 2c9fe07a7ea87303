"""Files: addresses are signed and expire, as Discord's do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from tests.fakes.discord.records import Call
from tests.fakes.discord.web import cut, under_fault
from tests.fakes.sockets import connection

if TYPE_CHECKING:
    from tests.fakes.discord.server import FakeDiscord


async def download(discord: FakeDiscord, request: web.Request) -> web.StreamResponse:
    """A file, 404 when its address is expired or was never given out. Its faults: "GET /cdn"."""
    if discord.offline:
        return cut(request)
    file = discord.files.get(request.match_info["file"])
    call = Call("GET /cdn", dict(request.match_info), dict(request.query), {}, "", discord.clock())
    call.connection = connection(request)
    discord.downloads.append(request.match_info["name"])
    discord.changed()

    def give() -> web.Response:
        fresh = request.query.get("ex") == f"{discord.generation:x}"
        if file is None or not fresh:
            return web.Response(status=404, text="This content is no longer available.")
        return web.Response(body=file.content, content_type=file.kind.partition(";")[0])

    return await under_fault(discord, request, call, give)
