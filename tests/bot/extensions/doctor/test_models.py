"""What the doctor says of a server that a bot has learned about."""

from bot.config.extensions import settings_model
from bot.extensions.doctor.models import Candidate, check_model
from bot.host.checks import Context
from tests.fakes import openai as o
from tests.serving import serving
from tests.stories.test_servers import NO_MAX_TOKENS, refusing, settings


async def test_doctor_shows_how_the_server_of_a_model_is_asked(tmp_path):
    async with o.FakeOpenAI(refusing(tools="gemma:2b does not support tools")) as fake:
        given = settings(fake.base_url)
        async with serving(tmp_path, given) as chat:
            await chat.say("hello")
        fake.script = refusing(max_tokens=NO_MAX_TOKENS)
        made = settings_model().model_validate({**given, "data": tmp_path}, strict=False)
        found = [one async for one in check_model(Candidate("local/x", 0, made), Context(made, {}))]
    [asked, how] = found
    assert (asked.name, asked.state) == ("model", "ok")
    assert (how.name, how.state) == ("model.server", "warn")
    assert how.found == "local/x: sent without tools; with max_completion_tokens in place of max_tokens"
    assert "providers.local.forms" in how.fix
