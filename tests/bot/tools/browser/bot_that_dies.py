"""A process with a browser in it that is killed by its test: it says when a page is open, and which processes run."""

import json
import os
import sys

import anyio

from bot.tools.browser.launch import Chromium
from bot.tools.browser.processes import parent
from bot.tools.browser.protocol import PageRequest
from bot.tools.browser.session import SharedBrowser

from .site import Site, page


async def main() -> None:
    site = Site()
    site.pages["/"] = page("<script>fetch('/opened')</script>")
    launch = Chromium(anyio.to_thread.run_sync, sandbox=os.geteuid() != 0)
    one = SharedBrowser(site.egress, launch)

    async def opened(stream):
        from bot.tools.browser.chromium import _pids  # noqa: PLC0415 - it needs Playwright

        pids = await _pids(one._session.engine.session)
        print(json.dumps([*pids, parent(pids[0])]), flush=True)
        await anyio.sleep_forever()

    site.pages["/opened"] = opened
    async with site.serving(), anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        await one.view(PageRequest("http://site.test/", wait_for="#never"), anyio.current_time() + 60)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
