"""What the judge says about models, money and questions, from the bills, the ledger's bytes and the posts alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta

from tests.judge.journal import BEGAN, START
from tests.judge.records import read_lines
from tests.sim.record import Bill, Post, Record, Sent

TAKEN = ("Thank you, I go on.", "All right, I leave it.")
ANOTHER_MODEL = "Shall I use"
QUESTION = "Is this right?"
"""Of a stage of a playbook."""
BY_MODEL = re.compile(r"(near/one|near/lite|far/two) says")


def money_faults(files: dict[str, bytes], record: Record) -> Iterator[str]:
    grants = grants_of(files)
    yield from _overspent(record, grants)
    yield from _ungranted(record, grants)
    for sent in record.sent.values():
        if sent.command.startswith(("/approve", "/deny")):
            yield from _decision(record, sent)
    for post in record.posts:
        yield from _named(record, post)


def _overspent(record: Record, grants: dict[tuple[str, str], int]) -> Iterator[str]:
    """What providers took never exceeds a hard limit and what people added to it."""
    billed: Counter[tuple[str, str]] = Counter()
    for bill in record.bills:
        for key in _keys(bill):
            billed[key] += bill.micros
    for key, micros in billed.items():
        limit = record.limits.get(key[0])
        if limit is not None and micros > limit + grants.get(key, 0):
            yield f"{' '.join(key)}: {micros} billed, {limit} + {grants.get(key, 0)} allowed"


def _keys(bill: Bill) -> Iterator[tuple[str, str]]:
    day = (BEGAN + timedelta(seconds=bill.at - START)).date().isoformat()
    yield "turn", bill.turn
    yield "thread", bill.thread
    yield "user_day", f"{day} {bill.user}"
    yield "day", day
    yield "month", day[:7]


def grants_of(files: dict[str, bytes]) -> dict[tuple[str, str], int]:
    """Return what was granted, from every file of the ledger; a line may be in two of them."""
    seen = {
        (line["seq"], line["at"], line["scope"], line["key"], line["micros"])
        for path, data in files.items()
        if "/usage/" in path and path.endswith(".jsonl")
        for line in read_lines(data)
        if line and line["kind"] == "grant"
    }
    total: dict[tuple[str, str], int] = defaultdict(int)
    for _, _, scope, key, micros in seen:
        total[scope, key] += micros
    return total


def _ungranted(record: Record, grants: dict[tuple[str, str], int]) -> Iterator[str]:
    """Nobody's limit was raised by more than people who may have said in all."""
    said = sum(
        _amount(sent.command)
        for sent in record.sent.values()
        if sent.command.startswith("/approve") and (sent.author in record.admins or record.asker_may_grant)
    )
    yield from (f"{key}: {micros} granted, {said} said" for key, micros in grants.items() if micros > said)


def _amount(command: str) -> int:
    """Return the most that an approval can stand for: without an amount it is what was offered, one dollar here."""
    found = re.fullmatch(r"/approve(?: q[0-9a-f]{8})? \$?([\d.]+)", command)
    return round(float(found[1]) * 1_000_000) if found else 1_000_000


def _decision(record: Record, sent: Sent) -> Iterator[str]:
    """Only an admin decides, and who asked where that is allowed."""
    told = next((post.text for post in record.posts if post.key == sent.key), "")
    if not told.startswith(TAKEN) or sent.author in record.admins:
        return
    named = re.search(r"q[0-9a-f]{8}", sent.command)
    asked = [
        post
        for post in record.posts
        if "?" in post.key and post.thread == sent.thread and post.key.endswith(named[0] if named else "")
    ]
    allowed = {
        author
        for post in asked
        if ANOTHER_MODEL in post.text or record.asker_may_grant or post.text.startswith(QUESTION)
        for author in _owners(record, record.sent[post.key.partition("?")[0]])
    }
    if sent.author not in allowed:
        yield f"{sent.key}: {sent.command!r} of {sent.author} was taken, who may not decide"


def _named(record: Record, post: Post) -> Iterator[str]:
    """An answer from another model than the chosen one says so."""
    if "?" in post.key:
        asked = record.sent.get(post.key.partition("?")[0])
        if asked is None or asked.thread != post.thread:
            yield f"{post.key}: a question in {post.thread} for nobody there"
        return
    tops = record.tops.get(post.key)
    if tops is None or post.kind != "reply" or record.sent[post.key].command.startswith("/play"):
        return  # the stages of a playbook may have different models
    for model in set(BY_MODEL.findall(post.text)):
        named = f"({model} answered" in post.text
        if model not in tops and not named:
            yield f"{post.key}: {model} answered for {tops} without a word: {post.text!r}"
        if tops == {model} and named:
            yield f"{post.key}: {model} was chosen, and {post.text!r}"


def _owners(record: Record, sent: Sent) -> set[str]:
    """Return whose question it may be: a retry is its text's author's, whoever asks for it."""
    if sent.command.startswith("/play") or sent.key.rpartition(":")[2].startswith("play-"):
        played = (one for one in record.sent.values() if one.command.startswith("/play"))
        return {one.author for one in played if one.thread == sent.thread}
    if not sent.command.startswith("/retry"):
        return {sent.author}
    return {
        other.author
        for other in record.sent.values()
        if other.thread == sent.thread and other.number < sent.number and not other.command
    }
