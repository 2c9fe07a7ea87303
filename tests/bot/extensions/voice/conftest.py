from tests.bot.llm.conftest import http, listener

__all__ = ["http", "listener"]
