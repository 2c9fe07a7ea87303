"""How many messages one sender gets answered in a minute."""

from dataclasses import replace

from bot.routing import rate_limit as module
from bot.routing.rate_limit import RateLimiter
from tests.world import T2, Platform, Scripted, message, running
from threads.model import Author


class Time:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_minute_holds_so_many_and_fills_again_evenly():
    time = Time()
    rates = RateLimiter(6, time)
    assert [rates.take("U1") for _ in range(8)] == [True] * 6 + [False] * 2
    assert rates.take("U2")
    time.now = 10
    assert [rates.take("U1"), rates.take("U1")] == [True, False]
    time.now = 1000
    assert [rates.take("U1") for _ in range(7)] == [True] * 6 + [False]


def test_no_limit_is_no_limit():
    assert all(RateLimiter(None).take("U1") for _ in range(1000))


def test_an_admin_has_no_limit():
    rates = RateLimiter(1, Time(), exempt=lambda who: who == "U1")
    assert all(rates.take("U1") for _ in range(10))
    assert [rates.take("U2"), rates.take("U2")] == [True, False]


def test_a_crowd_costs_bounded_memory(monkeypatch):
    monkeypatch.setattr(module, "MOST_KNOWN", 100)
    rates = RateLimiter(1, Time())
    for number in range(1000):
        assert rates.take(f"U{number}")
    assert rates.take("U0"), "forgotten"
    assert not rates.take("U999")


async def test_a_flood_of_one_person_is_refused_before_any_model_is_asked_and_others_are_served(tmp_path):
    platform, model = Platform(), Scripted()
    async with running(tmp_path, platform, model, rates=RateLimiter(3)) as bot:
        for number in range(1, 11):
            await bot.orchestrator.receive(message(number, thread=replace(T2, root=f"{number}")))
        await bot.orchestrator.receive(message(11, "/status"))
        await bot.orchestrator.receive(message(12, author=Author("U2")))
        await platform.settled(*[f"m{number}" for number in range(1, 13)])
    outcomes = [platform.outcomes[f"m{number}"] for number in range(1, 13)]
    assert outcomes == ["answered"] * 3 + ["refused"] * 7 + ["answered"] * 2
    assert len(model.requests) == 4
    assert "faster than I may answer one person" in next(
        post.text for post in platform.posts if post.reply_to == "m4"
    )
