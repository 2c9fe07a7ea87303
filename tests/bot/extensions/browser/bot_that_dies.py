"""A process with a browser that its test kills: it prints the ids of its processes when a page is open."""

import json
import sys

import anyio

from bot.extensions.browser.session import PageRequest
from tests.bot.tools.processes import descendants

from .site import page, running, serving


async def main() -> None:
    async def opened(stream):
        print(json.dumps([*descendants()]), flush=True)
        await anyio.sleep_forever()

    async with serving() as site, running(site.egress()) as browser:
        site.pages |= {"/": page("<script>fetch('/opened')</script>"), "/opened": opened}
        await browser.view(PageRequest("http://site.test/", wait_for="#never"), anyio.current_time() + 60)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
