"""The platform as a page in the browser: it refuses nothing, knows only the posts of its process, and shows by key.

A post that comes again takes the place of the one with its key, so a bot that repeats it after a death, without a mark,
repeats nothing that people see. What was on its way when the process died is gone with it.
"""

from __future__ import annotations

from dataclasses import replace

from tests.judge.records import NOT_SAVED
from threads.model import Outgoing, ThreadId
from transports.base.transport import Capabilities

from .plan import Plan
from .platform import Platform


def as_page(plan: Plan) -> None:
    """Take what a page never does out of a plan."""
    plan.rates.post.clear()
    plan.rates.find, plan.outage, plan.rejecting = 0.0, (0.0, 0.0), set()


class Page(Platform):
    capabilities = Capabilities(find=True, lands_late=False)

    def open(self) -> None:
        super().open()
        self.capabilities = Page.capabilities
        self._of_this_process: dict[str, str] = {}

    def process_died(self) -> None:
        self._flying.clear()
        super().process_died()

    async def find(self, thread: ThreadId, key: str) -> str | None:
        if self._fate.step(f"find {key}"):
            self._fate.die()
        return self._of_this_process.get(key)

    async def _post(self, outgoing: Outgoing) -> str:
        return self._keep(outgoing)

    def _keep(self, outgoing: Outgoing, at: float | None = None) -> str:
        number = self.place_of(outgoing.key)
        if number is None:
            post_id = super()._keep(outgoing, at)
        else:
            post_id = f"p{number}"
            self._replace(number, outgoing)
        self._of_this_process[outgoing.key] = post_id
        return post_id

    def place_of(self, key: str) -> int | None:
        """Return where a post with this key is on the page."""
        return next((n for n, post in enumerate(self._record.posts) if post.key == key), None)

    def _replace(self, number: int, outgoing: Outgoing) -> None:
        before = self._record.posts[number]
        # The conversation that could not be saved then may be now.
        told = (post.text.replace(NOT_SAVED, "").strip() for post in (before, outgoing))
        if before.kind == outgoing.kind and len({*told}) > 1:
            self._record.violations.append(f"{outgoing.key}: {before.text!r} became {outgoing.text!r}")
        self._record.posts[number] = replace(before, text=outgoing.text, kind=outgoing.kind)
        if outgoing in self._flying:
            self._flying.remove(outgoing)
        self._fate.note(f"shown again {outgoing.key}")
