"""What is proved, one after the other, on one machine. Each returns what it saw, or raises `Failed` with that."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import anyio

from tests.systemd.machine import (
    CHECKOUT,
    DATA,
    ETC,
    UNIT,
    changed,
    ctl,
    drop_in,
    install,
    journal,
    run,
    secret,
    serving,
    settings,
    state,
    take_out,
    until,
)
from tests.systemd.people import Crowd

BACK_S, TOLD_S = 5.0, 5.0
"""From the kill until it serves again; from then until everybody who waited was answered or told."""
DEATHS = 20
QUIET_S = 360.0
METRICS_PORT = 9464
SCORE = re.compile(r"exposure level for \S+: (\d+\.\d)")


class Failed(AssertionError):
    """What was seen instead."""


def demand(holds: object, words: str) -> None:
    if not holds:
        raise Failed(words)


def usual(crowd: Crowd) -> dict[str, Any]:
    return {
        "model": "anthropic/claude-sonnet-5-5",
        "providers": {
            "anthropic": {
                "base_url": crowd.model.base_url,
                "api_key": "file:anthropic",
                "requests_per_minute": None,
            }
        },
        "transports": {
            "slack": {
                "bot_token": "file:slack-bot",
                "app_token": "file:slack-app",
                "api_base_url": crowd.slack.api_base_url,
            }
        },
        "tools": {"policy": {"shell": "allow"}},
    }


async def installed(crowd: Crowd) -> str:
    """The installer makes it all, and a second run nothing."""
    first = await install()
    demand(first.returncode == 0, first.stderr)
    settings(**usual(crowd))
    for name, value in (
        ("slack-bot", crowd.slack.bot_token),
        ("slack-app", crowd.slack.app_token),
        ("anthropic", "sk-proof"),
    ):
        secret(name, value)
    await install("credentials")
    again = await install()
    demand(again.stdout.startswith("nothing to change"), again.stdout + again.stderr)
    return "and a second run changes nothing"


async def verified(_: Crowd) -> str:
    """systemd finds nothing wrong with the unit, and little to get at."""
    words = []
    checked = await run("systemd-analyze", "verify", f"/etc/systemd/system/{UNIT}")
    demand(checked.returncode == 0 and not checked.stdout + checked.stderr, checked.stderr)
    for name, most, extra in (("as shipped", 2.0, ""), ("strict.conf", 1.1, "strict.conf")):
        unit = Path("/run", name.replace(" ", "-") + ".service")
        parts = [CHECKOUT / "deploy" / part for part in ("threadfast.service", extra) if part]
        unit.write_text("\n".join(part.read_text() for part in parts))
        judged = await run("systemd-analyze", "security", "--offline=yes", "--no-pager", unit)
        score = SCORE.search(judged.stdout)
        demand(score and float(score[1]) <= most and not judged.stderr, judged.stdout[-200:] + judged.stderr)
        words.append(f"{score[1]} {name}")
    return f"exposure {', '.join(words)}"


async def starts(crowd: Crowd) -> str:
    """`start` returns when it serves; commands run behind bubblewrap."""
    since, began = time.time(), time.monotonic()
    started = await ctl("start", UNIT)
    took = time.monotonic() - began
    demand(started.returncode == 0, started.stderr + await journal(since))
    demand(crowd.slack.sockets.links, "READY came without a link")
    spoken = await crowd.ask(
        "run id -un; cat /proc/self/status | grep -c NoNewPrivs; ls /run/credentials", user="U1"
    )
    said = await journal(since)
    demand("commands run in bubblewrap" in said, said)
    demand("exit code 0" not in "".join(crowd.answers(spoken)), "the credentials can be listed by a command")
    return f"READY after {took:.1f} s, sandbox: bubblewrap"


async def secrets(crowd: Crowd) -> str:
    """The credentials are in files for the process alone: no environment, no other user, no command."""
    now = await state()
    environment = Path(f"/proc/{now.pid}/environ").read_bytes()
    values = [crowd.slack.bot_token, crowd.slack.app_token]
    demand(not any(value.encode() in environment for value in values), "a token is in the environment")
    for place in (
        f"/run/credentials/{UNIT}/slack-bot",
        ETC / "credentials/slack-bot",
        ETC / "settings.json",
        DATA,
    ):
        nobody = await run("runuser", "-u", "nobody", "--", "head", "-c", "1", place)
        demand(nobody.returncode, f"{place} can be read by others")
    spoken = await crowd.ask(
        f"run cat /run/credentials/{UNIT}/* {ETC}/credentials/* {ETC}/settings.json /proc/*/environ"
    )
    shown = "".join(crowd.answers(spoken))
    demand(not any(value in shown for value in values), "a command read a token")
    return "in no environment, for no other user, for no command"


async def killed(crowd: Crowd) -> str:
    """kill -9 while eight people write: back soon, everybody answered once.

    The first death is measured to the last answer. Two more follow at once, where Slack's own limits on looking up and
    posting set the pace: there only that nobody is lost counts.
    """
    backs, tolds = [], []
    async with crowd.talking():
        for _ in range(3):
            await anyio.sleep(2.0)
            before = await state()
            await crowd.slack.until(lambda: len(crowd.open_at(time.monotonic() - 0.3)) > 3, 20)
            kill(before.pid, signal.SIGKILL)
            died = time.monotonic()
            _, took = await serving(before.pid)
            back = time.monotonic()
            backs.append(took)
            interrupted = crowd.open_at(died)
            with anyio.move_on_after(20):
                while any(spoken.answered_at is None for spoken in interrupted):
                    await anyio.sleep(0.02)
            demand(all(s.answered_at for s in interrupted), f"somebody waits for 20 s: {interrupted}")
            tolds.append(max((s.answered_at or 0) - back for s in interrupted))
    judge(crowd)
    words = f"serves again after {span(backs)} s; all who were interrupted answered {tolds[0]:.1f} s later"
    demand(max(backs) < BACK_S and tolds[0] < TOLD_S, words)
    return (
        f"{words} (two more deaths at once: {span(tolds[1:])} s); {len(crowd.spoken)} said, 0 lost, 0 doubled"
    )


async def restarted(crowd: Crowd) -> str:
    """`restart` while people write loses nothing either."""
    took = []
    async with crowd.talking():
        for _ in range(2):
            await anyio.sleep(1.0)
            began = time.monotonic()
            done = await ctl("restart", UNIT)
            demand(done.returncode == 0, done.stderr)
            took.append(time.monotonic() - began)
    judge(crowd)
    return f"each took {span(took)} s; {len(crowd.spoken)} said, 0 lost, 0 doubled"


async def stopped(crowd: Crowd) -> str:
    """`stop` lets the running turn end, and is quick."""
    since = time.time()
    spoken = crowd.say("", "U1", "C1")
    await anyio.sleep(0.3)
    began = time.monotonic()
    await ctl("stop", UNIT)
    took = time.monotonic() - began
    now, said = await state(), await journal(since)
    demand(crowd.answers(spoken), "the turn was not let end\n" + said)
    demand((now.active, now.result, now.code) == ("inactive", "success", 0), str(now))
    demand("process.stopping" in said and "process.drained" in said, said)
    demand(took < 10, f"it took {took:.1f} s")
    left = await run("pgrep", "-u", "threadfast")
    demand(left.returncode == 1, f"processes are left: {left.stdout}")
    await ctl("start", UNIT)
    return f"took {took:.1f} s, the turn was answered, exit code 0"


async def hung(crowd: Crowd) -> str:
    """An event loop that hangs is ended by the watchdog (3 s here), and the next process answers."""
    await drop_in("hang", "WatchdogSec=3", "Environment=PYTHONPATH=/proof/inject")
    await ctl("restart", UNIT)
    before, since = await state(), time.time()
    kill(before.pid, signal.SIGUSR2)
    began = time.monotonic()
    spoken = crowd.say("", "U2", "C2")
    _, _ = await until(lambda now: now.result == "watchdog" or now.pid not in (0, before.pid), 10)
    caught = time.monotonic() - began
    await serving(before.pid)
    back = time.monotonic() - began
    await crowd.answered(spoken)
    said = await journal(since)
    demand("Watchdog timeout" in said, said)
    demand("loop.blocked" in said, "the log does not say where it hung")
    await take_out("hang")
    await ctl("restart", UNIT)
    return f"killed after {caught:.1f} s, serves after {back:.1f} s, the log has the stack; who wrote meanwhile was answered"


async def misconfigured(_: Crowd) -> str:
    """A fault in the settings ends with 78 and stays so; the journal says what it is."""
    good, since = (ETC / "settings.json").read_text(), time.time()
    (ETC / "settings.json").write_text(
        good.replace('"slack"', '"slakc"', 1).replace('"model": "', '"model": "x', 1)
    )
    words = await _ends_with_78(since, "model")
    (ETC / "settings.json").write_text(good)
    await ctl("start", UNIT)
    return words


async def rejected(crowd: Crowd) -> str:
    """The same for a token that Slack does not take."""
    since = time.time()
    secret("slack-bot", "xoxb-not-this-one-0123456789")
    words = await _ends_with_78(since, "bot token")
    demand("xoxb-not" not in await journal(since), "the token is in the journal")
    secret("slack-bot", crowd.slack.bot_token)
    await ctl("start", UNIT)
    await crowd.ask()
    return f"{words}; started by hand, it serves"


async def _ends_with_78(since: float, named: str) -> str:
    before = await state()
    await ctl("restart", UNIT)
    now, _ = await until(lambda now: now.active == "failed", 15)
    await anyio.sleep(3)
    now = await state()
    said = await journal(since)
    demand((now.active, now.code, now.restarts) == ("failed", 78, 0), f"{now}, before: {before}\n{said}")
    line = next((line for line in said.splitlines() if named in line), "")
    demand(line, said)
    return f"failed, no restart; the journal: {line[:90]}"


async def starved(crowd: Crowd) -> str:
    """A command that eats more than the unit may have dies alone."""
    if not Path("/sys/fs/cgroup/memory").is_dir() and not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return "not enforced here"
    before = await state()
    await ctl("set-property", "--runtime", UNIT, "MemoryMax=450M")
    spoken = await crowd.ask("run head -c 900M /dev/zero | tail; echo done")
    now = await state()
    shown = "".join(crowd.answers(spoken))
    demand((now.pid, now.restarts) == (before.pid, before.restarts), f"the bot died: {now}")
    demand("Killed" in shown or "137" in shown or "killed" in shown, shown)
    await ctl("set-property", "--runtime", UNIT, "MemoryMax=75%")
    return "the command was killed at 450 MB, the bot lives and says so"


async def quiet(crowd: Crowd) -> str:
    """Six minutes in which nobody says anything, with the page: healthy all along, and still the same process."""
    given = usual(crowd)
    given["transports"]["web"] = {}
    settings(**given, observe={"metrics_port": METRICS_PORT})
    await ctl("restart", UNIT)
    before, since, looks = await state(), time.time(), 0
    while time.time() < since + QUIET_S:
        health, page = await reply(f"{METRICS_PORT}/healthz"), await reply("7777/")
        demand(health[0] == 200, f"healthz after {time.time() - since:.0f} s: {health}")
        demand(page[0] < 500, f"the page after {time.time() - since:.0f} s: {page}")
        looks += 1
        await anyio.sleep(5)
    demand(await state() == before, f"before: {before}, now: {await state()}\n{await journal(since)}")
    await crowd.ask()
    settings(**usual(crowd))
    await ctl("restart", UNIT)
    return f"{QUIET_S:.0f} s with Slack and the page, {looks} looks, the same process, and it answers"


async def reply(place: str) -> tuple[int, str]:
    """Return the status and the text of a local page."""
    done = await run(
        "curl", "--silent", "--max-time", "5", "--write-out", " %{http_code}", f"http://127.0.0.1:{place}"
    )
    text, _, status = done.stdout.rpartition(" ")
    return int(status or 0), text


async def stubborn(crowd: Crowd) -> str:
    """So many deaths in a row, each as soon as it is born: it is started again, always."""
    began, before = time.monotonic(), await state()
    pid = before.pid
    for _ in range(DEATHS):
        kill(pid, signal.SIGKILL)
        now, _ = await until(lambda now, dead=pid: now.pid not in (0, dead) or now.active == "failed")
        demand(now.active != "failed", f"given up after {now.restarts - before.restarts} deaths")
        pid = now.pid
    took = time.monotonic() - began
    now, _ = await serving()
    await crowd.ask()
    return f"{now.restarts - before.restarts} restarts in {took:.0f} s, and it serves"


async def upgraded(crowd: Crowd) -> str:
    """A version that works is taken, one that does not is taken back, and both keep all that was said."""
    better = changed("better", "bot/proof.py", '"""Another version."""\n')
    worse = changed("worse", "bot/wiring/run.py", "raise SystemExit(3)\n")
    async with crowd.talking(4):
        done = await install("upgrade", source=better)
        demand(
            done.returncode == 0 and "upgraded:" in done.stdout,
            done.stdout + done.stderr + await journal(time.time() - 60),
        )
        good = Path("/opt/threadfast/current").readlink()
        broken = await install("upgrade", source=worse, THREADFAST_READY_S="6")
        demand(broken.returncode == 1 and "was started again" in broken.stderr, broken.stdout + broken.stderr)
        demand(Path("/opt/threadfast/current").readlink() == good, "the broken version stays")
        await serving()
    back = await install("rollback")
    demand(back.returncode == 0, back.stdout + back.stderr)
    await crowd.ask()
    judge(crowd)
    return "up, up and back by itself, back by hand; nothing lost"


async def uninstalled(_: Crowd) -> str:
    """The data stay until somebody says purge."""
    kept = await install("uninstall")
    demand(kept.returncode == 0 and (DATA / "journal.jsonl").exists(), kept.stderr)
    gone = await ctl("cat", UNIT)
    demand(gone.returncode != 0 and not Path("/opt/threadfast").exists(), "something is left")
    purged = await install("uninstall", "--purge", "--yes")
    demand(purged.returncode == 0 and not DATA.exists() and not ETC.exists(), purged.stderr)
    return "data and settings stay; --purge takes them too"


def kill(pid: int, number: signal.Signals) -> None:
    demand(pid > 0, "no process runs")  # 0 would be ourselves
    os.kill(pid, number)


def judge(crowd: Crowd) -> None:
    demand(not crowd.lost(), f"lost: {crowd.lost()}")
    demand(not crowd.doubled(), f"answered twice: {crowd.doubled()}")


def span(seconds: list[float]) -> str:
    return f"{min(seconds):.1f}-{max(seconds):.1f}"


PROOFS = (
    installed,
    verified,
    starts,
    secrets,
    killed,
    restarted,
    stopped,
    hung,
    misconfigured,
    rejected,
    starved,
    quiet,
    stubborn,
    upgraded,
    uninstalled,
)
