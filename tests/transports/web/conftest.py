import pytest


@pytest.fixture(scope="module")
async def one_chromium(anyio_backend):
    from tests.transports.web.chromium import SHARED, started  # noqa: PLC0415 - see tests/conftest.py

    async with started() as browser:
        SHARED.append(browser)
        yield
        SHARED.clear()
