"""The loopback Slack without its sockets: the same rules and limits, in virtual time."""

from __future__ import annotations

import math

import anyio

from tests.fakes.slack import ApiError, Call, Cut, FakeSlack, Gate, RateLimited
from tests.fakes.slack.rules import Refusal
from tests.fakes.slack.web import METHODS, Args
from threads.errors import TransportRateLimited, TransportUnavailable
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.rate_limits import RateLimits
from transports.slack.api.web_api import WebApi

LATENCY_S = 0.1


class VirtualWeb(WebApi):
    """Our own limits and line before the fake's rules; an answer takes a tenth of a second."""

    def __init__(self, slack):
        super().__init__(None, None, RateLimits())
        self.slack = slack

    async def ask(self, method, **arguments):
        args = Args({name: value for name, value in arguments.items() if value is not None})
        call = Call(method, args, self.slack.bot_token, self.slack.clock(), 0)
        self.slack.calls.append(call)
        fault = self.slack.script.take(method, args)
        if isinstance(fault, Gate) and not fault.applied:
            await fault.hold()
        await anyio.sleep(LATENCY_S)
        match fault:
            case ApiError(error):
                raise SlackRefused(method, error)
            case RateLimited(seconds):
                self.limits.pause(method, seconds)
                raise TransportRateLimited(method, retry_after=seconds)
            case Cut(applied):
                if applied:
                    METHODS[method].run(self.slack, args)
                raise TransportUnavailable(method, maybe_posted=True)
        if wait := self.slack.buckets.take(method, args.text("channel")):
            self.slack.limited.append(call)
            self.limits.pause(method, math.ceil(wait))
            raise TransportRateLimited(method, retry_after=math.ceil(wait))
        try:
            answer = {"ok": True, **METHODS[method].run(self.slack, args)}
        except Refusal as refusal:
            raise SlackRefused(method, refusal.error) from None
        if isinstance(fault, Gate) and fault.applied:
            await fault.hold()
        return answer


def virtual_slack(**more):
    return FakeSlack(
        clock=anyio.current_time,
        wall=lambda: 1.7e9 + anyio.current_time(),
        rate_limits=True,
        echo=False,
        **more,
    )


def count_calls(slack):
    """How many calls of each method Slack had."""
    counts = {}
    for call in slack.calls:
        counts[call.method] = counts.get(call.method, 0) + 1
    return counts
