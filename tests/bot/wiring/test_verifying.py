"""`verify_providers`: what a start makes of models that do not answer."""

import logging

import pytest

from bot.config.settings import Settings
from bot.llm.verify import Verification
from bot.ports.errors import ConfigInvalid, ModelUnavailable, Unauthorized
from bot.wiring.verify_models import verify_all

pytestmark = pytest.mark.anyio

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


async def test_all_that_may_be_asked_are_asked_and_told(caplog):
    assert await start(caplog, a=GOOD, b=GOOD) == ["model.verified", "model.verified"]


async def test_it_serves_with_one_that_answers(caplog):
    assert await start(caplog, a=BAD_KEY, b=GOOD) == ["model.unverified", "model.verified"]


async def test_it_serves_when_what_is_wrong_may_pass(caplog):
    assert await start(caplog, a=BAD_KEY, b=DOWN) == ["model.unverified", "model.unverified"]


async def test_it_refuses_to_start_when_only_a_person_can_mend_all(caplog):
    with pytest.raises(
        ConfigInvalid, match=r"a: a does not accept .* auth: no such key\nb: b does not accept .* auth"
    ):
        await start(caplog, a=BAD_KEY, b=BAD_KEY)
