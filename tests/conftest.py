import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # how long an example takes is the machine's business
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Write captured text so that a worker of pytest-xdist can hand it over: it takes no lone surrogates."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "replace").decode()) for name, text in report.sections]
    return report
