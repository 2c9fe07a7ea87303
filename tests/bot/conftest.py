from __future__ import annotations

import pytest

from tests.fakes.postgres import Server


@pytest.fixture(scope="session")
def server():
    server = Server()
    server.start()
    yield server
    server.close()


@pytest.fixture
def dsn(server):
    return server.new_database()
