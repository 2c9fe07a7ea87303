from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("bot.extensions.postgres")
    from tests.fakes.postgres import Server

    with Server() as server:
        yield server


@pytest.fixture
def dsn(server):
    return server.new_database()
