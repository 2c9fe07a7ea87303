"""Proxies of the environment and authorities of one's own: used, or named in a sentence at the start."""

from __future__ import annotations

import httpx2
import pytest

from bot.config.network import network_faults, normalize_proxies, tls_context
from bot.config.settings import Settings
from bot.ports.config_error import ConfigInvalid


@pytest.fixture
def proxied(monkeypatch):
    """Set variables, normalised as at the start, and return the faults that the start tells."""

    def proxied(**variables):
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        normalize_proxies(variables)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return list(network_faults(variables, None))

    return proxied


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize(
    "value",
    [
        *("http://proxy:3128", "https://proxy:3128", "http://ann:p%40ss@proxy:3128", "proxy:3128", " proxy "),
        *(
            "socks5://127.0.0.1:1080",
            "socks5h://127.0.0.1:1080",
            "socks://127.0.0.1:1080/",
            "HTTP://Proxy:1",
            " ",
        ),
    ],
)
def test_a_proxy_of_each_usual_form_is_one_that_models_can_be_asked_through(proxied, name, value):
    assert proxied(**{name: value}) == []
    httpx2.AsyncClient()


@pytest.mark.parametrize(
    "value",
    [
        "socks4://127.0.0.1:1080",
        "ftp://proxy:21",
        "http://",
        "http://proxy:port",
        "http://proxy:99999",
        "://",
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_with_what_to_set(proxied, value):
    [fault] = proxied(ALL_PROXY=value)
    assert fault.startswith("ALL_PROXY: I cannot use this proxy. Set it to http://HOST:PORT")


def test_authorities_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "empty.pem").write_text("no certificate")
    for name, why in {
        "empty.pem": "holds no certificate in PEM form",
        "none.pem": "cannot be read (No such file",
    }.items():
        with pytest.raises(ConfigInvalid, match="ca_file") as raised:
            tls_context(tmp_path / name)
        assert why in str(raised.value)
    assert Settings().ca_file is None
