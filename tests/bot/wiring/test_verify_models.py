"""`verify_providers`: what a start makes of models that do not answer."""

import logging

import pytest

from bot.config.settings import Settings
from bot.llm.verify import Verification
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ModelUnavailable, Unauthorized
from bot.wiring.verify_models import verify_all

GOOD = Verification(ok=True, took_s=0.1)
BAD_KEY = Verification(ok=False, took_s=0.1, error=Unauthorized("no such key"))
DOWN = Verification(ok=False, took_s=0.1, error=ModelUnavailable("503"))


async def start(caplog, **answers):
    asked = []

    async def ask(name, settings, environ):
        asked.append(name)
        return answers[name]

    with caplog.at_level(logging.INFO, "bot.wiring.verify_models"):
        try:
            await verify_all(list(answers), Settings(), {}, ask=ask)
        finally:
            assert sorted(asked) == sorted(answers)
    return [record.getMessage().partition(":")[0] for record in caplog.records]


@pytest.mark.parametrize(
    ("answers", "events"),
    [
        ((GOOD, GOOD), ["model.verified", "model.verified"]),
        ((BAD_KEY, GOOD), ["model.unverified", "model.verified"]),
        ((BAD_KEY, DOWN), ["model.unverified", "model.unverified"]),
    ],
    ids=["all answer", "one answers", "what is wrong may pass"],
)
async def test_it_asks_all_that_may_be_asked_and_serves(caplog, answers, events):
    assert await start(caplog, **dict(zip("ab", answers, strict=True))) == events


async def test_each_key_of_a_provider_is_asked_and_one_that_answers_is_enough(caplog):
    settings = Settings.model_validate(
        {"providers": {"anthropic": {"api_keys": ["env:ONE", "env:TWO"]}}}, strict=False
    )

    async def ask(name, settings, environ):
        return GOOD if settings.providers["anthropic"].keys == ("env:TWO",) else BAD_KEY

    [fault] = await verify_all(["anthropic/x"], settings, {}, ask=ask)
    assert fault.startswith("anthropic/x, key 1: Anthropic does not accept the key in ONE.")


async def test_it_refuses_to_start_when_only_a_person_can_fix_all(caplog):
    with pytest.raises(
        ConfigInvalid, match=r"a: a does not accept .* auth: no such key\nb: b does not accept .* auth"
    ):
        await start(caplog, a=BAD_KEY, b=BAD_KEY)
