"""Which addresses a server may name for its sign-in, and which refusals are about it."""

import httpx2
import pytest

from bot.extensions.mcp.connection import ConnectionLost
from bot.extensions.mcp.credentials import CredentialStore
from bot.extensions.mcp.oauth import OriginGuard, SignedOut, make_auth
from bot.extensions.mcp.settings import McpOAuth
from bot.guards.egress import Egress
from tests.bot.extensions.mcp.opened import offload_to_thread
from tests.bot.tools.site import PUBLIC
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles

TOKENS = {"access_token": "a", "token_type": "Bearer"}

NAMES = {
    "mcp.example.com": PUBLIC,
    "login.example.com": "93.184.215.15",
    "inside.example.com": "10.0.0.7",
    "metadata.example.com": "169.254.169.254",
}


async def resolve(host: str, _port: int) -> list[str]:
    if host not in NAMES:
        raise OSError(host)
    return [NAMES[host]]


def guard(url: str, *private_hosts: str) -> OriginGuard:
    made = OriginGuard(url, private_hosts)
    for egress in (made._public, made._private):
        egress._resolve = resolve
    return made


async def sent(guard: OriginGuard, url: str) -> httpx2.Request:
    request = httpx2.Request("GET", url)
    await guard(request)
    return request


async def test_the_servers_own_origin_is_reached_as_before():
    for origin in ("http://127.0.0.1:9", "https://mcp.example.com:9999"):
        request = await sent(guard(f"{origin}/mcp"), f"{origin}/token")
        assert (str(request.url), request.extensions) == (f"{origin}/token", {})


async def test_another_public_address_is_the_one_that_was_checked():
    request = await sent(guard("https://mcp.example.com/mcp"), "https://login.example.com/token")
    assert str(request.url) == "https://93.184.215.15/token"
    assert request.headers["host"] == "login.example.com"
    assert request.extensions["sni_hostname"] == "login.example.com"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1/token", "not public"),
        ("https://10.1.2.3/token", "not public"),
        ("https://169.254.169.254/token", "not public"),
        ("https://inside.example.com/token", "not public"),
        ("https://metadata.example.com/token", "not public"),
        ("https://localhost/token", "not public"),
        ("https://login.example.com:22/token", "not public"),
        ("http://login.example.com/token", "without TLS"),
        ("https://nowhere.example.com/token", "cannot be reached"),
    ],
)
@pytest.mark.parametrize("own", ["https://mcp.example.com/mcp", "https://mcp.example.com:9999/mcp"])
async def test_a_public_server_cannot_name_a_private_address(own, url, why):
    with pytest.raises(ConnectionLost, match=why):
        await sent(guard(own), url)


async def test_a_server_that_is_not_public_may_name_its_neighbours_but_no_metadata_service():
    for own in ("http://127.0.0.1:8000/mcp", "https://inside.example.com/mcp"):
        assert await sent(guard(own), "http://127.0.0.1:9000/token")
        for url in ("http://169.254.169.254/token", "https://metadata.example.com/token"):
            with pytest.raises(ConnectionLost, match="not public"):
                await sent(guard(own), url)


async def test_a_server_that_cannot_be_looked_up_is_not_taken_for_a_private_one():
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await sent(guard("https://nowhere.example.com/mcp"), "http://127.0.0.1/token")


async def test_hosts_of_the_settings_are_reached_too():
    made = guard("https://mcp.example.com/mcp", "inside.example.com")
    assert isinstance(made._public, Egress)
    assert await sent(made, "https://inside.example.com/token")


@pytest.mark.parametrize(
    ("headers", "is_session"), [({}, True), ({"www-authenticate": 'Bearer error="invalid_token"'}, False)]
)
async def test_a_401_that_names_no_way_to_sign_in_is_about_the_session(tmp_path, headers, is_session):
    url = "https://mcp.example.com/mcp"
    store = CredentialStore(JsonFiles(PosixDisk(), tmp_path, offload_to_thread), lambda _: None)
    await store.change(url, "ann", lambda old: old.model_copy(update={"tokens": TOKENS}))
    auth = await make_auth(url, McpOAuth(), store, "ann", None)
    flow = auth.async_auth_flow(httpx2.Request("POST", url, headers={"mcp-session-id": "s1"}))
    sent = await anext(flow)
    with pytest.raises(StopAsyncIteration if is_session else SignedOut):
        await flow.asend(httpx2.Response(401, headers=headers, request=sent))
    assert auth.signed_out is not is_session
    assert ((await store.read(url, "ann")).tokens is not None) is is_session
