from tests.bot.llm.conftest import complete, http, listener  # noqa: F401 - fixtures
