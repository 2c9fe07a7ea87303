"""From settings to the parts of a model."""

import pytest

from bot.config.settings import Provider
from bot.llm.build import is_local


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://127.9.9.9/v1", True),
        ("https://localhost:8000", True),
        ("http://LOCALHOST:1/v1", True),
        ("http://[::1]:8080/v1", True),
        ("http://127.evil.example/v1", False),
        ("http://localhost.evil.example/v1", False),
        ("http://127.0.0.1.nip.example/v1", False),
        ("http://192.168.0.7:11434/v1", False),
        (None, False),
    ],
)
def test_only_a_host_of_this_machine_is_local(address, local):
    assert is_local(Provider(base_url=address)) is local
