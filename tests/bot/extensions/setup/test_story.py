"""From nothing to a reply in Slack, as a person does it: one command in a terminal, two pastes, and a mention.

The commands are the installation (done here already) and `threadfast init slack`; the third step is the mention.
"""

import signal
from contextlib import ExitStack

import anyio.to_thread
import pytest

from tests.bot.cli.window import BOT, Window
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, FakeSlack

WITHIN_S = 30


class Terminal(Window):
    """A window in which one command runs."""

    def __init__(self, folder, *arguments):
        super().__init__(folder)
        self._process = self.start(*BOT, *arguments)

    async def shows(self, text):
        await anyio.to_thread.run_sync(self.until, text)

    async def end(self):
        self._process.send_signal(signal.SIGINT)
        return await anyio.to_thread.run_sync(self.ends, self._process)


@pytest.fixture
def terminal(tmp_path):
    with ExitStack() as opened:

        def start(*arguments):
            terminal = Terminal(tmp_path, *arguments)
            opened.callback(terminal.close)
            return terminal

        yield start


async def test_one_command_and_two_pastes_later_a_mention_is_answered(terminal, tmp_path):
    async with FakeSlack() as slack:
        screen = terminal("init", "slack", "--api-base-url", slack.api_base_url)
        await screen.shows("Number, or any provider/model")
        screen.type("offline/demo\n")
        await screen.shows("Enter to go on")
        screen.type("\n")
        await screen.shows("Paste the app token")
        screen.type(f"{APP_TOKEN}\n")
        await screen.shows("Paste the bot token")
        screen.type(f"{BOT_TOKEN}\n")
        await screen.shows("Who may use it?")
        screen.type("\n")
        await screen.shows("Who is admin?")
        screen.type("U1\n")
        await screen.shows("/invite @threadfast")
        await slack.until(lambda: slack.sockets.links, WITHIN_S)
        said = await slack.say("U1", "C1", "<@UBOT> hello")
        await slack.until(lambda: len(slack.thread("C1", said.ts)) == 2, WITHIN_S)
        assert "offline/demo" in slack.thread("C1", said.ts)[1].text
        assert BOT_TOKEN not in screen.shown
        assert APP_TOKEN not in screen.shown
