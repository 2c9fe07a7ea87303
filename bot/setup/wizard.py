"""One setup from its first question to its last line: model, platform, and only then the disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from pydantic import JsonValue

from bot.errors import ConfigInvalid
from bot.llm.choose import LocalServer
from bot.observe.asked import Silent, ask
from bot.settings import OFFLINE
from bot.setup.draft import Draft, foreign
from bot.setup.given import Given
from bot.setup.models import Choosing, Chosen
from bot.setup.piped import read_piped
from bot.setup.platforms import Joining, Platform
from bot.setup.screen import Screen
from transports.checks import Finding


@dataclass(frozen=True, slots=True)
class Done:
    """What was set up. ``written`` are the files that changed; ``then`` is the next command, and what to do next."""

    chosen: Chosen
    findings: Sequence[Finding]
    written: Sequence[Path]
    settings: Path
    then: str
    hello: str = ""
    startable: bool = True
    """False beside a running bot, and for root in somebody else's folder: what it made would not be theirs."""

    def document(self) -> dict[str, JsonValue]:
        """Return it as JSON."""
        verified = self.chosen.verified
        return {
            "settings": str(self.settings),
            "model": self.chosen.model,
            "model_answers": verified.ok if verified else None,
            "model_took_s": round(verified.took_s, 3) if verified else None,
            "checks": [
                {
                    "name": finding.name,
                    "state": finding.state,
                    "found": finding.found,
                    "meaning": finding.meaning,
                    "fix": finding.fix,
                }
                for finding in self.findings
            ],
            "written": [str(path) for path in self.written],
            "next": self.then,
        }


def set_up(
    given: Given,
    environ: Mapping[str, str],
    screen: Screen,
    *,
    servers: Sequence[LocalServer] | None = None,
    piped: Callable[[int], str] = read_piped,
) -> Done:
    """Ask, try, write. Raises `ConfigInvalid` and OSError with everything as it was before."""
    draft = Draft.open(given.settings, environ)
    if hindrance := draft.hindrance():
        raise ConfigInvalid(hindrance)
    _general(draft, given)
    screen.title("Threadfast", f"{draft.path}{'' if draft.before else ' (new)'}")
    chosen = Choosing(draft, given, screen, servers).run()
    platform, final = _platform(given.platform), chosen.draft
    findings: Sequence[Finding] = ()
    runs, pid = anyio.run(_beside, final.loaded().settings.data)
    if platform:
        joining = Joining(platform, final, given, screen, running=runs, piped=piped)
        final, findings = joining.run(), joining.findings
    written = final.write()
    _tell(screen, final, written, chosen)
    if runs:
        screen.say(
            f"A bot runs here (process {pid}); what changed counts when it starts again.", state="warn"
        )
    startable = not runs and not foreign(final.path.parent)
    hello = platform.hello(final.loaded().settings) if platform else ""
    return Done(chosen, findings, written, final.path, _next(final, given), hello, startable)


async def _beside(data: Path) -> tuple[bool, int]:
    """Say whether a bot has the data folder now, and which process that is."""
    try:
        told = await ask(data)
    except OSError:
        return False, 0  # not ours to ask, so not ours to start either: that will say so
    return not (isinstance(told, Silent) and told.state == "absent"), told.pid


def _general(draft: Draft, given: Given) -> None:
    """Put the name and the data folder, where they are not what they would be anyway."""
    if given.name and given.name != draft.loaded().settings.name:
        draft.put(given.name, "name")
    if given.data and given.data.absolute() != draft.loaded().settings.data:
        draft.put(str(given.data.absolute()), "data")
    draft.loaded()


def _platform(name: str) -> Platform | None:
    match name:
        case "slack":
            from bot.setup.slack import SLACK  # noqa: PLC0415 - loaded only when asked for

            return SLACK
        case "discord":
            from bot.setup.discord import DISCORD  # noqa: PLC0415 - the same

            return DISCORD
        case _:
            return None


def _tell(screen: Screen, draft: Draft, written: Sequence[Path], chosen: Chosen) -> None:
    if chosen.model == OFFLINE:
        how = (
            "`threadfast init` changes that"
            if draft.get("model")
            else "set a key, and the next start uses it"
        )
        screen.say(f"offline/demo answers: built-in rules, no language model; {how}.", state="warn")
    if not written:
        screen.say(f"{draft.path.name} is as it should be; nothing was changed", state="ok")
        return
    names = ", ".join(path.name for path in written if path.parent == draft.path.parent)
    secrets = sum(path.parent == draft.credentials for path in written)
    kept = f"; {secrets} secret{'s' * (secrets > 1)} in {draft.credentials.name}/" if secrets else ""
    screen.say(f"Written: {names or draft.credentials.name}{kept}", state="ok")


def _next(draft: Draft, given: Given) -> str:
    """Return the next command, as it has to be typed here."""
    where = "" if draft.path == Path("settings.json").absolute() else f" --settings {draft.path}"
    if foreign(draft.path.parent):
        return "systemctl restart threadfast"
    return f"threadfast {'run' if given.platform else 'chat'}{where}"
