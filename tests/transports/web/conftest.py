import pytest

from tests.transports.web.chromium import SHARED, started


@pytest.fixture(scope="module")
async def one_chromium(anyio_backend):
    async with started() as browser:
        SHARED.append(browser)
        yield
        SHARED.clear()
