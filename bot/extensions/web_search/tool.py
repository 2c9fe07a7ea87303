"""The `web_search` tool: results as text from outside, each search paid for in the ledger of the bot.

| a search ended with                                | charge                                   |
|----------------------------------------------------|------------------------------------------|
| an answer                                          | its price, and the tokens of a provider  |
| an error of the service, or no connection          | nothing                                  |
| no answer in time, a broken one, or a stop         | the most that it can cost                |
| the end of the process                             | the most that it can cost                |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import anyio
from pydantic import Field, JsonValue

from bot.budget.accounts import Accounts, SpendingLedger
from bot.budget.budgets import OverLimit
from bot.budget.money import micros, usd
from bot.config.scopes import Place, resolve
from bot.config.settings import Settings
from bot.extensions.web_search.client import NO_SEARCH, SearchClient, malformed
from bot.extensions.web_search.found import Source, line
from bot.ports.errors import ToolBusy, ToolDenied, ToolError, ToolMalformedOutput, ToolTimeout
from bot.ports.model import Usage
from bot.ports.tool import Arguments, ToolContext, ToolOutput
from threads.errors import StoreUnavailable
from threads.model import message_key

AT_ONCE = 8
"""Searches at once, for all threads."""

LONGEST_S = 100.0
ORIGIN = "web search"


class SearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=400, description="Words to search for, as in a search engine")

    def subject(self) -> str:
        return line(self.query)

    def always(self) -> str:
        """Return a pattern for every search: no two have the same words."""
        return "*"


@dataclass(frozen=True)
class WebSearch:
    source: Source
    client: SearchClient
    settings: Settings
    ledger: SpendingLedger
    slots: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))
    name: ClassVar[str] = "web_search"
    description: ClassVar[str] = (
        "Search the web. It returns titles, links and excerpts; read a page by its link where an excerpt is not "
        "enough. Give the links of what you use in your answer."
    )
    risk: ClassVar[Literal["net"]] = "net"
    arguments: ClassVar[type[Arguments]] = SearchArguments

    async def __call__(self, arguments: SearchArguments, context: ToolContext) -> JsonValue | ToolOutput:
        deadline = min(context.deadline, anyio.current_time() + LONGEST_S)
        with anyio.move_on_after((deadline - anyio.current_time()) / 2) as wait:
            await self.slots.acquire()
        if wait.cancelled_caught:
            raise ToolBusy("Too many searches are running.", suggestion="Try again in a moment.")
        try:
            found = await self._search(line(arguments.query), context, deadline)
            return ToolOutput(found, origin=ORIGIN)
        finally:
            self.slots.release()

    async def _search(self, words: str, context: ToolContext, deadline: float) -> dict[str, JsonValue]:
        source, most = self.source, self.source.most()
        place = resolve(self.settings, Place.in_thread(context.thread, context.asker.id))
        # The turn that the call works for pays, under the limits of its place.
        accounts = Accounts.of(self.ledger, place.settings.budget, place.day_limits)
        turn = message_key(context.thread, context.message_id)
        account = accounts.account(str(context.thread), context.asker.id, turn)
        query, answer = source.query(words), None
        if most is None and account.policy.binding:
            why = f"The price of {source.paid_as} is not known, and a hard budget allows no guess."
            raise ToolDenied(why, suggestion=NO_SEARCH)
        dearest = micros(most or 0)
        try:
            opened = await account.reserve(source.paid_as, dearest)
        except OverLimit as error:
            why = f"A search may cost up to {usd(dearest)}, and that is more than the budget has left."
            raise ToolDenied(why, suggestion=NO_SEARCH) from error
        except StoreUnavailable as error:
            raise ToolError("The cost of a search cannot be stored.", suggestion=NO_SEARCH) from error
        (cost, usage), outcome = (most, Usage()), "turn_stopped"
        try:
            answer = await self.client.ask(source, query, deadline)
            cost, usage = source.charge(answer)
            found, outcome = source.found(answer), "ok"
        except ToolError as error:
            outcome = error.code
            if answer is None and not isinstance(error, ToolTimeout | ToolMalformedOutput):
                cost = 0.0
            raise
        except (LookupError, TypeError, AttributeError) as error:
            outcome = ToolMalformedOutput.code
            raise malformed(source) from error
        finally:
            account.commit(opened, usage, None if cost is None else micros(cost), outcome)
            if place.settings.budget.footer and cost:  # what stands under the answer is what its model took
                context.note(f"({source.name}: {usd(micros(cost))})")
        return found
