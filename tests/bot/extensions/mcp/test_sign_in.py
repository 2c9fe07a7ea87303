"""Sign-ins at an MCP server, over the SDK's own client and server and a real authorization server on loopback."""

import json
import logging
import re
import stat
import time
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from bot.extensions.mcp.commands import HIDDEN, TAKEN, McpCommands
from bot.extensions.mcp.credentials import BOT, FOLDER, CredentialStore
from bot.extensions.mcp.references import References
from bot.extensions.mcp.settings import McpOAuth, McpServer
from bot.extensions.mcp.sign_in import SignInFailed
from bot.guards.redaction import Masker
from bot.ports.documents import PlainDocuments
from bot.ports.errors import McpUnavailable, SignInNeeded
from tests.bot.extensions.mcp.opened import QUICK, offload_to_thread, opened
from tests.fakes.mcp_oauth import CANARY, browse, parameters, serving
from tests.patience import WITHIN_S, until
from tests.tool_context import nowhere, tool_context
from threads.model import Author, Edited, Incoming, ThreadId
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles

ANN, BOB = Author("ann"), Author("bob")
DM = ThreadId("slack", "T", "D1", "1.0")
CONSOLE = ThreadId("console", "", "here", "1")


@pytest.fixture
async def site(free_tcp_port):
    async with serving(free_tcp_port) as site:
        yield site


@pytest.fixture
def redirect_port(free_tcp_port_factory):
    return free_tcp_port_factory()


class People:
    """The commands of some people, and the tools as the gate calls them."""

    def __init__(self, servers, configured):
        self.servers = servers
        workspace = None
        references = References(servers, PlainDocuments(offload_to_thread), None, workspace)
        self.commands = McpCommands(configured, servers, references, nowhere)
        self.number = 0

    async def say(self, text, author=ANN, thread=DM, **more):
        """Say a command as it comes in, and return what is stored of it and the reply."""
        self.number += 1
        incoming = Incoming(f"m{self.number}", thread, author, text, **more)
        stored = (await self.commands.hide_addresses(incoming)).text
        return stored, await self.commands.command(stored.removeprefix("/mcp").strip(), incoming)

    async def link(self, author=ANN, thread=DM, **more):
        reply = (await self.say("/mcp connect shop", author, thread, **more))[1]
        found = re.search(r"```\n(\S+)\n```", reply)
        assert found, reply
        return found[1]

    async def sign_in(self, author=ANN, thread=DM):
        address = await browse(await self.link(author, thread))
        return (await self.say(f"/mcp connect shop {address}", author, thread))[1]

    async def call(self, author=ANN, tool="shop__whoami", thread=DM, **context):
        found = next(one for one in self.servers.tools if one.name == tool)
        context = tool_context(
            thread=thread, asker=author, deadline=anyio.current_time() + 20, message_id="m", **context
        )
        return (await found(found.arguments.model_validate({}), context)).result


@asynccontextmanager
async def people(folder, site, port, **oauth):
    configured = {"shop": McpServer(url=site.url, oauth=McpOAuth(redirect_port=port, **oauth))}
    async with opened(folder, configured, times=QUICK, learn_s=2) as servers:
        yield People(servers, configured)


def token_files(folder):
    return sorted((folder / "data" / FOLDER).glob("*"))


async def test_each_person_calls_with_their_own_account(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        assert our.servers.tools == []
        assert await our.sign_in() == "You are signed in at shop."
        assert {tool.name for tool in our.servers.tools} == {"shop__whoami", "shop__leak"}
        with pytest.raises(SignInNeeded) as needed:
            await our.call(BOB)
        assert (needed.value.server, needed.value.retryable) == ("shop", True)
        site.grants.person = "bob"
        await our.sign_in(BOB)
        results = [await our.call(who) for who in (ANN, BOB, ANN)]
        assert results == ["you are ann", "you are bob", "you are ann"]
        other_platform = ThreadId("discord", "", "1", "2")
        with pytest.raises(SignInNeeded):
            await our.call(ANN, thread=other_platform)


async def test_tokens_outlive_the_process_and_their_files_are_private(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        await our.sign_in()
    folder = tmp_path / "data" / FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in token_files(tmp_path)] == [0o600]
    async with people(tmp_path, site, redirect_port) as our:
        assert await our.call() == "you are ann"
    assert len(site.grants.clients) == 1


@pytest.mark.parametrize("lifetime_s", [-1, 3600, None])
async def test_a_token_that_is_over_is_refreshed_even_after_a_restart(
    tmp_path, site, redirect_port, lifetime_s
):
    """-1: it has expired by its own account; else the server refuses it, whatever it said."""
    async with people(tmp_path, site, redirect_port) as our:
        site.grants.lifetime_s = lifetime_s
        if lifetime_s == -1:
            site.grants.lifetime_s = 2
        await our.sign_in()
        assert await our.call() == "you are ann"
        if lifetime_s == -1:
            await anyio.sleep(2.1)
        else:
            site.grants.revoke(refresh=False)
        site.grants.lifetime_s = 3600
        assert await our.call() == "you are ann"
        assert site.grants.refreshes == 1
        site.grants.revoke(refresh=False)
    async with people(tmp_path, site, redirect_port) as our:
        assert await our.call() == "you are ann"
    assert site.grants.refreshes == 2


async def test_a_revoked_grant_asks_for_a_new_sign_in(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        await our.sign_in()
        assert await our.call() == "you are ann"
        site.grants.revoke()
        with pytest.raises(SignInNeeded):
            await our.call()
        assert json.loads(token_files(tmp_path)[0].read_text())["tokens"] is None
        assert "you are not signed in" in (await our.say("/mcp"))[1]
        await our.sign_in()
        assert await our.call() == "you are ann"
    assert our.servers.trouble() == ""


async def test_a_person_who_says_no_there_is_told_so(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        site.grants.refuses = True
        assert await our.sign_in() == "That did not work at shop: the sign-in was refused there."
        with pytest.raises(SignInNeeded):
            await our.servers.by_name["shop"].of("slack:ann").call("whoami", {}, anyio.current_time() + 20)


async def test_an_address_counts_once_for_its_person_in_its_conversation(tmp_path, site, redirect_port):
    not_open = "That address belongs to no sign-in that is open for you here."
    elsewhere = ThreadId("slack", "T", "D2", "1.0")
    async with people(tmp_path, site, redirect_port) as our:
        address = await browse(await our.link())
        for author, thread in ((BOB, DM), (ANN, elsewhere)):
            stored, reply = await our.say(f"/mcp connect shop {address}", author, thread)
            assert reply.startswith(not_open)
            assert CANARY not in stored
        assert (await our.say(address))[1] == "You are signed in at shop."
        assert (await our.say(address))[1].startswith(not_open)
        old = await browse(await our.link())
        await our.link()
        assert (await our.say(old))[1].startswith(not_open)
        forged = re.sub(r"state=[^&]+", "state=guessed", old)
        assert (await our.say(forged))[1].startswith(not_open)


async def test_an_offer_ends(tmp_path, site, redirect_port, monkeypatch):
    async with people(tmp_path, site, redirect_port) as our:
        address = await browse(await our.link())
        later = time.time() + 601
        monkeypatch.setattr(time, "time", lambda: later)
        assert "no sign-in that is open" in (await our.say(address))[1]


async def test_the_link_is_given_in_private_only(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        reply = (await our.say("/mcp connect shop", via="mention"))[1]
        assert reply.startswith("The link is for you alone")
        assert site.url.rpartition("/")[0] not in reply
        assert await our.link(via="direct")
        assert parameters(await our.link())["code_challenge_method"] == "S256"


async def test_no_code_is_stored_with_a_message(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        address = await browse(await our.link())
        stored, _ = await our.say(f"/mcp connect shop {address}")
        assert stored == f"/mcp connect shop {TAKEN}"
        for event in (Edited("m1", DM, f"x {address}"), Incoming("m9", DM, BOB, f"look: {address} ?")):
            text = (await our.commands.hide_addresses(event)).text
            assert HIDDEN in text
            assert CANARY not in text
        for event in (Edited("m1", DM, "x", f"> {address}"), Incoming("m9", DM, BOB, "x", quoted=address)):
            quoted = (await our.commands.hide_addresses(event)).quoted
            assert HIDDEN in quoted
            assert CANARY not in quoted
        mine = Incoming("m8", DM, BOB, "http://127.0.0.1:3000/callback?code=of-my-own-app")
        assert await our.commands.hide_addresses(mine) is mine


async def test_a_person_at_this_machine_need_not_copy_anything(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        address = await browse(await our.link(thread=CONSOLE))
        async with httpx2.AsyncClient() as browser:
            wrong = await browser.get(re.sub(r"state=[^&]+", "state=guessed", address))
            right = await browser.get(address)
        assert (wrong.status_code, right.status_code) == (404, 200)
        await until(lambda: our.servers.tools)
        assert await our.call(thread=CONSOLE) == "you are ann"


async def test_signing_out_ends_it_also_for_a_connection_that_is_open(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        await our.sign_in()
        assert await our.call() == "you are ann"
        server = our.servers.by_name["shop"].of("slack:ann")
        assert (await our.say("/mcp disconnect shop"))[1].startswith("I have forgotten your sign-in at shop.")
        assert CANARY not in token_files(tmp_path)[0].read_text()
        with pytest.raises(SignInNeeded):
            await our.call()
        assert our.servers.by_name["shop"].of("slack:ann") is not server
        assert (await our.say("/mcp disconnect shop"))[1] == "You are not signed in at shop."


async def test_a_sign_out_elsewhere_is_noticed_before_the_next_call(tmp_path, site, redirect_port):
    """As by another worker, or on the command line."""
    async with people(tmp_path, site, redirect_port) as our:
        await our.sign_in()
        assert await our.call() == "you are ann"
        await our.servers.sign_ins.sign_out("shop", "slack:ann")
        with pytest.raises(SignInNeeded):
            await our.call()


def sign_in_of(our, thread=DM, **context):
    return our.commands.sign_in("shop", tool_context(thread=thread, asker=ANN, message_id="m", **context))


async def test_a_call_is_told_how_its_asker_signs_in_and_when_that_is_done(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port) as our:
        sign_in, done = sign_in_of(our, private=True), anyio.Event()

        async def on_done():
            done.set()

        with sign_in.watching(on_done), anyio.fail_after(WITHIN_S):
            link = re.search(r"```\n(\S+)\n```", await sign_in.instructions())[1]
            assert link in await sign_in.instructions(), "a link that is open is the same for another call"
            await our.sign_in(BOB)
            assert not done.is_set()
            assert not await sign_in.is_done()
            assert (await our.say(await browse(link)))[1] == "You are signed in at shop."
            await done.wait()
        assert await sign_in.is_done()


async def test_a_call_in_a_channel_and_one_without_a_link_say_how_to_get_one(
    tmp_path, site, free_tcp_port_factory, redirect_port
):
    async with people(tmp_path, site, redirect_port) as our:
        assert "link for you alone" in await sign_in_of(our).instructions()
    site.url = f"http://127.0.0.1:{free_tcp_port_factory()}/mcp"
    async with people(tmp_path, site, redirect_port) as our:
        text = await sign_in_of(our, private=True).instructions()
        assert text == "I have no link for you: it cannot be reached. `/mcp connect shop` tries again."


async def test_an_authorization_server_in_trouble_costs_nobody_their_sign_in(
    tmp_path, site, redirect_port, monkeypatch
):
    async with people(tmp_path, site, redirect_port) as our:
        await our.sign_in()
        site.grants.revoke(refresh=False)

        async def broken(*_):
            raise RuntimeError("out of order")

        with monkeypatch.context() as patch:
            patch.setattr(site.grants, "exchange_refresh_token", broken)
            with pytest.raises(McpUnavailable):
                await our.call()
        with anyio.fail_after(WITHIN_S):
            while True:
                try:
                    assert await our.call() == "you are ann"
                    break
                except McpUnavailable:
                    await anyio.sleep(0.05)


async def test_one_account_for_the_bot(tmp_path, site, redirect_port):
    async with people(tmp_path, site, redirect_port, account="bot") as our:
        link = await our.servers.sign_ins.begin("shop", BOT, "console:")
        async with httpx2.AsyncClient() as browser:
            await browser.get(await browse(link))
        assert await our.servers.sign_ins.outcome("shop", BOT) == ""
        assert await our.call(BOB) == "you are ann"
        site.grants.revoke()
        with pytest.raises(SignInNeeded) as needed:
            await our.call(BOB)
        assert sign_in_of(our) is None, "nobody is asked for the bot's own account"
        assert "threadfast mcp login shop" in needed.value.suggestion
        assert (await our.say("/mcp connect shop"))[1].startswith("Nobody signs in at shop here")


async def test_a_client_of_the_settings_is_used_as_it_is(tmp_path, site, redirect_port, monkeypatch):
    monkeypatch.setenv("SHOP_SECRET", "a-secret-of-the-client")
    oauth = {"client_id": "ours", "client_secret": "env:SHOP_SECRET"}
    async with people(tmp_path, site, redirect_port, **oauth) as our:
        reply = (await our.say("/mcp connect shop"))[1]
        assert "client_id=ours" in reply
    assert site.grants.clients == {}


async def test_a_server_that_cannot_be_reached_says_so(tmp_path, free_tcp_port, redirect_port):
    settings = McpServer(
        url=f"http://127.0.0.1:{free_tcp_port}/mcp", oauth=McpOAuth(redirect_port=redirect_port)
    )
    async with opened(tmp_path, {"shop": settings}) as servers:
        with pytest.raises(SignInFailed, match="it cannot be reached"):
            await servers.sign_ins.begin("shop", "slack:ann", "slack:T:D1")


async def test_every_secret_is_masked_from_the_moment_that_it_is_known(tmp_path, site, redirect_port, caplog):
    caplog.set_level(logging.DEBUG)
    mask = Masker()
    configured = {"shop": McpServer(url=site.url, oauth=McpOAuth(redirect_port=redirect_port))}
    async with opened(tmp_path, configured, learn=mask.learn, mask=mask) as servers:
        our = People(servers, configured)
        await our.sign_in()
        leaked = await our.call(tool="shop__leak")
    tokens = [secret for secret in site.grants.issued if "-code-" not in secret]
    assert [secret for secret in tokens if secret in mask(leaked)] == []
    assert len(tokens) >= 3
    ours = [record for record in caplog.records if record.name.startswith(("bot", "threads"))]
    assert CANARY not in "\n".join(record.getMessage() for record in ours)
    assert "mcp.client.auth" not in {record.name.rpartition(".")[0] for record in caplog.records}


def test_a_damaged_file_of_tokens_is_not_quoted_in_the_log(tmp_path, caplog):
    async def read():
        store = CredentialStore(JsonFiles(PosixDisk(), tmp_path, offload_to_thread), lambda _: None)
        await store.change(
            "http://x", "p", lambda old: old.model_copy(update={"tokens": {"access_token": CANARY}})
        )
        (file,) = (tmp_path / FOLDER).glob("*.json")
        file.write_text(json.dumps({"v": 1, "tokens": f"{CANARY}-text", "offer": {"state": CANARY}}))
        return await store.read("http://x", "p")

    assert anyio.run(read).tokens is None
    assert "state.damaged" in caplog.text
    assert CANARY not in caplog.text
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (tmp_path / FOLDER).glob("*.broken"))
