"""Whether there is a browser here, in a sentence."""

import importlib.util
import os

import pytest

from bot.extensions.browser.launch import INSTALL, has_own, unavailable


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with the extra, an ordinary user, and no browser yet."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "own"))
    return tmp_path


def program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def test_without_the_extra_or_without_a_browser_it_says_how_to_install_one(machine, monkeypatch):
    assert unavailable() == INSTALL
    program(machine / "chromium")
    assert unavailable() == ""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert unavailable() == INSTALL


def test_playwrights_own_browser_is_enough(machine):
    assert not has_own()
    program(machine / "own" / "chromium-1234" / "chrome-linux" / "chrome")
    assert has_own()
    assert unavailable() == ""


def test_it_is_off_for_root_whom_no_sandbox_holds(machine, monkeypatch):
    program(machine / "chromium")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "root" in unavailable()


@pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="it is an extra")
def test_a_driver_gets_none_of_our_secrets_and_nothing_stays_replaced(monkeypatch):
    from playwright._impl import transport  # noqa: PLC0415

    from bot.extensions.browser.chromium import bare_driver_environment  # noqa: PLC0415

    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-canary")
    with bare_driver_environment():
        assert "SLACK_BOT_TOKEN" not in transport.get_driver_env()
    assert "SLACK_BOT_TOKEN" in transport.get_driver_env()
