"""What people read where the packages of Matrix are not installed."""

from types import SimpleNamespace

import pytest

from bot.ports.config_error import ConfigInvalid
from transports.matrix import extension as matrix


def test_where_its_packages_are_missing_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(matrix, "MISSING", "pip install it")
    for ask in (
        lambda: matrix.KIND.open(SimpleNamespace(name="home")),
        lambda: matrix.KIND.checks(None, "home"),
    ):
        with pytest.raises(ConfigInvalid, match=r"transports\.home: pip install it"):
            ask()
