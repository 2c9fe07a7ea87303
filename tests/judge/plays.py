"""What the judge says about playbooks, from the files, the bills, the posts and the calls that stages made."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.judge.journal import Lifecycle, clock
from tests.judge.money import grants_of
from tests.sim.record import PlayCall, Record

HEADINGS = {"done": "done", "parked": "waits", "failed": "ended"}
STOPPED = "will not go on by itself."
RETURN = ":play-schedule-"


def play_faults(files: Mapping[str, bytes], record: Record, lives: Mapping[str, Lifecycle]) -> Iterator[str]:
    path = next((path for path in files if path.endswith("/playbooks.json")), "")
    last: dict[str, Any] = json.loads(files[path])["runs"] if path else {}
    runs = record.runs | {run["id"]: run for run in last.values()}
    calls: dict[str, list[PlayCall]] = defaultdict(list)
    for call in record.plays:
        calls[call.run].append(call)
    for run_id, run in runs.items():
        yield from _bounds(run)
        yield from _visits(run, calls[run_id], record)
        yield from _money(run, calls[run_id], record, grants_of(dict(files)))
        yield from _order(run_id, calls[run_id])
    for run in last.values():
        yield from _outcome(run, record, lives)
        yield from _return(run, record, lives)


def _bounds(run: dict[str, Any]) -> Iterator[str]:
    """What is on disk is within the bounds of the playbook."""
    for stage in run["playbook"]["stages"]:
        visits, most = run["visits"].get(stage["name"], 0), stage["visits"] or 1
        if visits > most:
            yield f"{run['id']}: {visits} visits of {stage['name']}, {most} allowed"
        if run["stage"] == stage["name"] and run["attempt"] > stage["retry"]["attempts"]:
            yield f"{run['id']}: attempt {run['attempt']} of {stage['name']}"
        if run["stage"] == stage["name"] and run["returns"] > _most_returns(run):
            yield f"{run['id']}: parked {run['returns']} times"


def _visits(run: dict[str, Any], calls: list[PlayCall], record: Record) -> Iterator[str]:
    """What was played is within the bounds too, but that each word of a person may give one more visit."""
    words = ("/play retry", "/play skip")
    given = [
        sent
        for sent in record.sent.values()
        if sent.thread == run["thread"] and sent.command.startswith(words)
    ]
    entries: dict[str, set[int]] = defaultdict(set)
    for call in calls:
        entries[call.stage].add(call.entry)
    for stage in run["playbook"]["stages"]:
        played, most = len(entries[stage["name"]]), (stage["visits"] or 1) + len(given)
        if played > most:
            yield f"{run['id']}: {stage['name']} was entered {played} times, {most} allowed"
    returns = {call.key for call in calls if RETURN in call.key}
    if len(returns) > _most_returns(run):
        yield f"{run['id']}: came again {len(returns)} times"


def _most_returns(run: dict[str, Any]) -> int:
    return max(stage["retry"]["later"] for stage in run["playbook"]["stages"])


def _order(run_id: str, calls: list[PlayCall]) -> Iterator[str]:
    """No stage acts after its border was passed."""
    for before, after in pairwise(calls):
        if (after.entry, after.attempt) < (before.entry, before.attempt):
            yield f"{run_id}: {after.stage}.{after.entry}.{after.attempt} acts after {before.stage}.{before.entry}.{before.attempt}"


def _money(
    run: dict[str, Any], calls: list[PlayCall], record: Record, grants: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """Providers took no more for a run, and for a visit of a stage, than the playbook and people allow."""
    keys = {call.key for call in calls}
    given = sum(grants.get(("turn", key), 0) for key in keys)
    billed = Counter[str]()
    for bill in record.bills:
        if bill.turn in keys:
            billed[""] += bill.micros
            billed[bill.visit] += bill.micros
    limits = {"": run["playbook"]["limits"]["usd"]} | {
        f"{run['id']} {call.stage} {call.entry}": _stage(run, call.stage)["act"]["usd"] for call in calls
    }
    for visit, usd in limits.items():
        if usd is not None and billed[visit] > round(usd * 1_000_000) + given:
            yield f"{visit or run['id']}: {billed[visit]} billed for a playbook, {usd} USD + {given} allowed"


def _stage(run: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(stage for stage in run["playbook"]["stages"] if stage["name"] == name)
    return found


def _outcome(run: dict[str, Any], record: Record, lives: Mapping[str, Lifecycle]) -> Iterator[str]:
    """A turn that played to its end says how the run ended, once."""
    key = f"{run['thread'].rsplit(':', 1)[0]}:{run['message_id']}"
    if key not in lives or lives[key].outcome != "answered" or lives[key].by:
        return
    if run["state"] not in HEADINGS:
        yield f"{key}: answered, and its playbook is {run['state']}"
        return
    heading = f"**{run['playbook']['name']}**: {HEADINGS[run['state']]}"
    stopped = any(STOPPED in post.text for post in record.posts if post.thread == run["thread"])
    for post in record.posts:
        if post.key == key and post.kind == "reply" and post.text.count(heading) != 1 and not stopped:
            yield f"{key}: {run['state']} on disk, and {post.text!r}"


def _return(run: dict[str, Any], record: Record, lives: Mapping[str, Lifecycle]) -> Iterator[str]:
    """A run that is parked has a message by which it comes again, unless a person stopped it before it had one."""
    message = lives.get(f"{run['thread'].rsplit(':', 1)[0]}:{run['message_id']}")
    if run["state"] != "parked" or (message and message.outcome == "stopped"):
        return
    parked = clock(run["border_at"])
    received = (
        clock(life.received[0]["at"])
        for key, life in lives.items()
        if RETURN in key and life.received and life.received[0]["thread_id"] == run["thread"]
    )
    forgotten = record.forgotten.get(run["thread"], 0.0)  # with that message, or with its schedule
    if not any(at >= parked for at in (forgotten, *received)):
        yield f"{run['id']}: parked, and never comes again"
