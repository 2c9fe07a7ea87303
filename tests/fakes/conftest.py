import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """The SDK reads these even for loopback, and knows no NO_PROXY."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SKIP_SLACK_SDK_WARNING", "1")
