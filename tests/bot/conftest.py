from __future__ import annotations

import pytest

from tests.fakes.postgres import Server


@pytest.fixture(scope="session")
def server():
    with Server() as server:
        yield server


@pytest.fixture
def dsn(server):
    return server.new_database()
