"""`threadfast init discord` against a Discord on loopback."""

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord.ids import U1


def init(setup, discord, *arguments, **given):
    where = ("--api-base-url", discord.api_base_url, "--gateway-url", discord.gateway_url)
    return setup.run("discord", "--model", "offline/demo", "--no-start", *where, *arguments, **given)


async def test_one_pasted_token_is_looked_at_and_kept(setup):
    async with FakeDiscord() as discord:
        done = await init(setup, discord, answers=["xoxb-1-2", f" {discord.token} ", U1, U1])
    assert "not the bot token" in done.stdout
    assert setup.secrets() == {"discord_token": discord.token}
    assert setup.document()["transports"]["discord"] == {
        "api_base_url": discord.api_base_url,
        "gateway_url": discord.gateway_url,
        "token": "file:discord_token",
    }
    assert discord.token not in done.output
    assert len(setup.asked) == 4
    assert setup.document()["access"] == {"users": [U1], "admins": [U1]}


async def test_an_intent_that_is_not_ticked_is_told_with_where_to_click(setup):
    async with FakeDiscord(message_content=False) as discord:
        setup.env = {"DISCORD_TOKEN": discord.token}
        done = await init(setup, discord, "--yes", code=78)
    assert setup.tree() == {}
    assert "Message Content" in done.stdout
    assert "discord.intents" in done.stderr


async def test_a_bot_that_is_in_no_server_gets_its_invitation_in_one_piece(setup):
    async with FakeDiscord() as discord:
        discord.kick()
        setup.env = {"DISCORD_TOKEN": discord.token}
        done = await init(setup, discord, "--yes")
    [line] = [line for line in done.stdout.splitlines() if "oauth2/authorize" in line]
    assert "permissions=" in line
    assert "scope=bot" in line
