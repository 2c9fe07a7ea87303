from tests.bot.llm.conftest import http, listener  # noqa: F401 - fixtures
