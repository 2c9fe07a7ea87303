"""The site that the browser's tests open, and the names that lead to it or elsewhere."""

from functools import partial

from anyio.abc import SocketStream

from tests.bot.tools import site

NAMES = {
    "other.test": ["93.184.216.35"],
    "inside.test": ["10.0.0.7"],
    "looped.test": ["127.0.0.1"],
    "halved.test": [site.PUBLIC, "169.254.169.254"],
    "missing.test": [],
}

page = partial(site.page, kind="text/html; charset=utf-8")
serving = partial(site.serving, names=NAMES)


async def silence(stream: SocketStream) -> None:
    """Never answer."""
    await stream.receive()
