"""What the bot's files and the platform's record say about its promises: the rules that all platforms share.

Violations are printed one a line (``rule: what``), then the counts as JSON; the exit code is 1 when there was a violation.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote

from tests.judge.records import (
    COVERED,
    OUTCOMES,
    REPEAT,
    Fields,
    intact,
    key_of,
    repeated,
    scrubbed,
    speakers,
)

TOKEN = re.compile(r"t(\d+)m\d+")
SHARED = re.compile(r"did not take your last (\d+) messages")


def plain_lines(path: Path) -> list[Fields]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line] if path.exists() else []


CUT_AT_NEWLINE = 3
"""A write that is cut just before its newline leaves a whole line in the sidecar. More of them in a run are not chance."""


FORGET, FORGOTTEN = "forget now", "I have erased what I kept"
"""What a person says to have a thread forgotten, and what they are told when it is."""

HASTE_S = 0.3
"""How much sooner than after its time a quiet thread may be forgotten: its files are a little older than its outcome."""

MAILBOX = 20
"""How many messages wait behind the one that is being answered, in a thread of the bot."""


class Judge:
    notes: tuple[str, ...] = (
        *("seconds to the last outcome", "seconds to the last outcome of what was missed"),
        "outcomes after the last death",
        "forgotten",
        *("look-ups", "look-ups since the last death", "refused look-ups"),
    )
    """Counts that are reported and are not violations."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        about = json.loads((folder / "run.json").read_bytes())
        self.died_at, self.within_s = about.get("died_at", 0.0), about.get("within_s", 0.0)
        self.clock: float = about["clock"]
        self.forgets: float = about.get("forgets", 0.0)
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.sent: dict[str, Fields] = {}
        self.place: dict[str, int] = {}
        self.acked: set[str] = set()
        self.shown: dict[str, list[Fields]] = defaultdict(list)
        self.settled: dict[str, Fields] = {}
        self.received_at: dict[str, float] = {}
        self.read_record(folder)

    def read_record(self, folder: Path) -> None:
        """Read what the platform wrote down."""
        raise NotImplementedError

    def fault(self, rule: str, what: str) -> None:
        self.counts[rule] += 1
        self.violations.append(f"{rule}: {what}")

    def run(self) -> None:
        self.read_journal()
        for key in sorted(self.acked | self.settled.keys(), key=lambda key: self.place.get(key, -1)):
            self.check_message(key)
        for key, posts in self.shown.items():
            self.check_posts(key, posts)
        self.check_order()
        self.check_delay()
        self.check_shared_refusals()
        for folder in sorted(path for path in self.data.glob("threads/*/*") if path.is_dir()):
            self.check_thread(folder)
        for key in self.settled:
            if self.settled[key]["outcome"] == "answered" and not self.sent[key]["command"]:
                self.check_context(key)
        self.check_forgotten()
        for path in self.data.rglob("*.broken"):
            good = [line for line in path.read_bytes().split(b"\n") if intact(line)]
            if len(good) > CUT_AT_NEWLINE:
                self.fault("sidecar", f"{path.name} holds {len(good)} good lines: {good[0][:200]!r}")

    def lines(self, path: Path) -> Iterator[Fields]:
        """Return the lines of a file of the bot. All but the last must be whole; a death may have cut that one short."""
        *whole, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
        for n, line in enumerate(whole, 1):
            if not intact(line):
                self.fault("damage", f"{path.relative_to(self.data)} line {n}: {line[:120]!r}")
                continue
            fields: Fields = json.loads(line)
            yield fields

    def read_journal(self) -> None:
        received = set()
        for line in self.lines(self.data / "journal.jsonl"):
            key = key_of(line["thread_id"], line["message_id"])
            if key not in self.sent:
                self.fault("invented", f"the journal knows {key}, which nobody sent")
            elif line["kind"] == "received" and line["text"] not in self.possible_texts(key):
                self.fault("invented", f"{key} was received with another text")
            received.add(key)
            if line["kind"] == "received":
                self.received_at[key] = instant(line)
            if line["kind"] == "settled" and key in self.settled:
                self.fault("twice", f"{key} settled twice: {self.settled[key]} and {line}")
            elif line["kind"] == "settled":
                self.settled[key] = line
            elif line["kind"] == "posted" and line["platform_id"] not in {
                p["id"] for p in self.shown.get(key, [])
            }:
                self.fault("invented", f"{key} posted as {line['platform_id']}, which is not shown for it")
            elif line["kind"] != "posted" and key in self.settled:
                self.fault("twice", f"{key} has {line['kind']} after its end")
        for key in received - self.settled.keys():
            self.fault("lost", f"{key} received, never settled")
        self.counts["settled"] = len(self.settled)

    def check_message(self, key: str) -> None:
        """Check that one message has an outcome, and exactly one sign of it."""
        end = self.settled.get(key)
        posts = self.shown.get(key, [])
        if end is None:
            if key in self.acked:
                self.fault("lost", f"{key} acknowledged, not settled; posts: {texts(posts)}")
            return
        outcome, by = end["outcome"], end.get("by", "")
        self.counts[outcome] += 1
        if outcome not in OUTCOMES:
            self.fault("unexplained", f"{key} ended as {outcome!r}")
        elif outcome == "undelivered":
            self.check_undelivered(key, posts)
        elif by:
            self.check_covered(key, end, posts)
        elif not posts:
            self.fault("lost", f"{key} settled as {outcome}, and nothing was posted for it")
        else:
            self.check_text(key, outcome, posts[0])

    def check_text(self, key: str, outcome: str, post: Fields) -> None:
        sent = self.sent[key]
        bad = outcome in ("failed", "dead_letter", "refused")
        if not post["text"].strip() or (bad and post["kind"] == "reply"):
            self.fault("unexplained", f"{key} {outcome} with {post['kind']} {post['text'][:80]!r}")
        if outcome == "answered" and not sent["command"] and self.token(key) not in tokens(post["text"]):
            self.fault("unexplained", f"{key} answered with another text: {post['text'][:200]!r}")

    def check_undelivered(self, key: str, posts: list[Fields]) -> None:
        """Check that the platform refused the post; one that refuses none needs no more."""
        self.fault("undelivered", f"{key} without any refusal by the platform")

    def check_covered(self, key: str, end: Fields, posts: list[Fields]) -> None:
        """Follow ``by`` to the post that speaks for the message; it has none of its own."""
        if posts:
            self.fault("twice", f"{key} is {end['outcome']} by {end['by']} and has posts {texts(posts)}")
        last = key, end
        for last in speakers(end, self.settled):
            if last[1].get("outcome") == "undelivered":
                break
        speaker, end_of = last
        spoken = self.shown.get(speaker, [])
        if end["outcome"] not in COVERED or not end_of:
            self.fault("unexplained", f"{key} {end['outcome']} by {end['by']}, which has no end")
        elif not spoken and end_of["outcome"] != "undelivered":
            self.fault("lost", f"{key} {end['outcome']} by {end['by']}, which has no post")
        elif (end["outcome"], end_of["outcome"]) == ("merged", "answered") and not self.sent[speaker][
            "command"
        ]:
            self.check_text(key, "answered", spoken[0])

    def check_posts(self, key: str, posts: list[Fields]) -> None:
        sent = self.sent.get(key)
        if sent is None:
            self.fault("invented", f"a post for {key}, which nobody sent")
            return
        self.counts["repeats marked"] += len(posts) - 1
        for again in posts[1:]:
            if not self.blind(key) or not again["text"].endswith(REPEAT):
                self.fault("twice", f"{key} posted {len(posts)} times: {texts(posts)}")
                break
        for post in posts:
            if (post["thread"], post["reply_to"]) != (sent["thread"], sent["id"]):
                self.fault("crossed", f"the post for {key} went to {post['thread']} {post['reply_to']}")
            self.check_names(post["text"], sent["thread"], f"the post for {key}")

    def possible_texts(self, key: str) -> set[str]:
        """Return all texts that a message ever had."""
        return {scrubbed(self.sent[key]["text"])}

    def token(self, key: str) -> str:
        """Return the part of a message's text that no other message has."""
        return str(self.sent[key]["token"])

    def number(self, thread: str) -> str:
        """Return the digits that the tokens of a thread begin with."""
        return thread.rpartition(":r")[2].zfill(2)

    def blind(self, key: str) -> bool:
        """Return whether the bot could not find out which of its posts for a message are visible."""
        return False

    def check_names(self, text: str, thread: str, where: str) -> None:
        """Check that *text* names messages of *thread* only."""
        own = self.number(thread)
        foreign = {token[0] for token in TOKEN.finditer(text) if token[1] != own}
        if foreign:
            self.fault("crossed", f"{where} in {thread} names {sorted(foreign)}")

    def check_shared_refusals(self) -> None:
        """Check that a post that speaks for several messages is the end of that many."""
        covered = Counter(
            (end["thread_id"], end["by"]) for end in self.settled.values() if end["outcome"] == "refused"
        )
        for key, posts in self.shown.items():
            said = SHARED.search(posts[0]["text"]) if posts[0]["kind"] == "notice" else None
            ended = covered[posts[0]["thread"], posts[0]["reply_to"]] + 1
            if said and int(said[1]) != ended:
                self.fault("unexplained", f"{key} speaks of {said[1]} messages and is the end of {ended}")

    def check_order(self) -> None:
        last: dict[str, tuple[int, str]] = {}
        answers = [
            (posts[0]["n"], key)
            for key, posts in self.shown.items()
            if key in self.sent and posts[0]["kind"] != "notice"
        ]  # fmt: skip
        for _, key in sorted(answers):
            thread, place = self.sent[key]["thread"], self.place[key]
            before = last.get(thread, (-1, ""))
            if place < before[0] and not self.was_full(key):
                self.fault("order", f"{key} was answered after {before[1]}")
            last[thread] = max(before, (place, key))

    def was_full(self, key: str) -> bool:
        """Return whether a message may have found its thread's mailbox full.

        If the process then dies before it is refused, it is answered after all, behind a later message whose turn had
        begun.
        """
        thread, said_at = self.sent[key]["thread"], self.sent[key]["said_at"] + self.clock
        earlier = (other for other, place in self.place.items() if place < self.place[key])
        waited = (
            other in self.settled and instant(self.settled[other]) >= said_at
            for other in earlier
            if self.sent[other]["thread"] == thread
        )
        return sum(waited) > MAILBOX

    def check_delay(self) -> None:
        """Check that each message has its outcome soon after the last death.

        A message that the bot missed counts from when a catch-up brings it in: how fast that reads is not judged here.
        """
        if not self.within_s:
            return
        delays = {
            key: instant(end) - max(self.died_at, self.received_at.get(key, 0))
            for key, end in self.settled.items()
        }
        after = [instant(end) - self.died_at for end in self.settled.values() if instant(end) > self.died_at]
        self.counts["outcomes after the last death"] = len(after)
        self.counts["seconds to the last outcome"] = round(max(delays.values(), default=0))
        self.counts["seconds to the last outcome of what was missed"] = round(max(after, default=0))
        for key, delay in delays.items():
            if delay > self.within_s:
                self.fault("late", f"{key} had its outcome after {delay:.1f} s")

    def check_thread(self, folder: Path) -> None:
        thread = self.thread_in(folder)
        messages = [line["message"] for line in self.lines(folder / "context.jsonl")]
        sources = [(message["role"], message["source"]) for message in messages if message["source"]]
        for (role, source), times in repeated(sources).items():
            self.fault("context", f"{source} is {times} times the {role}'s in {thread}")
        for _, source in dict.fromkeys(sources):
            if self.sent.get(key_of(thread, source), {}).get("thread") != thread:
                self.fault("crossed", f"{source} is in the conversation of {thread}")
        self.check_names(json.dumps(messages), thread, "the conversation")
        self.check_calls(messages, thread)
        self.check_log(folder, thread)

    def check_log(self, folder: Path, thread: str) -> None:
        ends = {}
        for line in self.lines(folder / "log.jsonl"):
            self.check_names(line["text"], thread, "the log")
            if line["kind"] == "settled":
                ends[key_of(thread, line["message_id"])] = line["outcome"]
        for key, end in self.settled.items():
            forgotten = key not in ends and self.may_be_forgotten(key)
            if end["thread_id"] == thread and ends.get(key) != end["outcome"] and not forgotten:
                self.fault("log", f"{key} is {end['outcome']} in the journal, {ends.get(key)} in the log")

    def may_be_forgotten(self, key: str) -> bool:
        """Return whether nothing has to be known of a message: its thread was quiet since, or somebody wished it.

        A thread is quiet while nothing is owed there: from its last outcome until a message was taken.
        """
        if not self.forgets:
            return False
        end = self.settled[key]
        if any(instant(end) <= told for _, told in self.wishes.get(end["thread_id"], ())):
            return True
        quiet_since = instant(end)
        for taken, ended in self.owed.get(end["thread_id"], ()):
            if ended > quiet_since and taken - quiet_since >= self.forgets - HASTE_S:
                return True
            quiet_since = max(quiet_since, ended)
        # after that nothing is forgotten by itself
        return self.died_at - quiet_since >= self.forgets - HASTE_S

    @cached_property
    def owed(self) -> dict[str, list[tuple[float, float]]]:
        """When something was owed in each thread: from when a message was taken to its outcome."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for key, end in self.settled.items():
            ended = instant(end)
            found[end["thread_id"]].append((min(self.taken_at(key, ended), ended), ended))
        return {thread: sorted(spans) for thread, spans in found.items()}

    def taken_at(self, key: str, otherwise: float) -> float:
        """Return when the bot took a message: it wrote that down, or acknowledged it right after."""
        acked = self.sent.get(key, {}).get("acked_at")
        return self.received_at.get(key) or (acked + self.clock if acked else otherwise)

    @cached_property
    def wishes(self) -> dict[str, list[tuple[float, float]]]:
        """From when to when people had each thread forgotten: in between it was done."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for key, posts in self.shown.items():
            if FORGOTTEN in posts[0]["text"] and key in self.settled:
                said_at = self.sent[key]["said_at"] + self.clock
                taken = max(said_at, self.taken_at(key, said_at) - HASTE_S)
                found[self.settled[key]["thread_id"]].append((taken, instant(self.settled[key])))
        return found

    def check_forgotten(self) -> None:
        """Check that nothing that people had forgotten is in any file of the bot."""
        gone = {
            self.token(key): key
            for key, end in self.settled.items()
            if any(instant(end) <= wished for wished, _ in self.wishes.get(end["thread_id"], ()))
        }
        self.counts["forgotten"] = len(gone)
        for path in (path for path in self.data.rglob("*") if path.is_file()):
            for token in gone.keys() & tokens(path.read_bytes().decode("utf-8", "replace")):
                self.fault("told", f"{gone[token]} was forgotten, and {path.relative_to(self.data)} has it")

    def thread_in(self, folder: Path) -> str:
        """Return the thread whose conversation is in *folder*."""
        return f"{folder.parent.name}:{unquote(folder.name.replace('~', ':'))}"

    def check_calls(self, messages: list[Fields], thread: str) -> None:
        """Check that each tool call is followed by its result; at the very end a cut turn may leave calls open."""
        open_calls: list[str] = []
        for n, message in enumerate(messages):
            results = [block["call_id"] for block in message["blocks"] if block["type"] == "tool_result"]
            answered_late = any(one["role"] == "assistant" for one in messages[n:])
            if results != open_calls and (results or answered_late):
                self.fault("context", f"{thread} entry {n}: results {results} for calls {open_calls}")
            open_calls = [block["id"] for block in message["blocks"] if block["type"] == "tool_call"]

    def check_context(self, key: str) -> None:
        sent = self.sent[key]
        transport, _, slug = sent["thread"].partition(":")
        folder = self.data / "threads" / transport / quote(slug, safe=":").replace(":", "~")
        mark = f'"source":"{sent["id"]}"'.encode()
        names = ("context.jsonl", "context.old.jsonl")
        found = any(mark in path.read_bytes() for name in names if (path := folder / name).exists())
        if not found and not self.may_be_forgotten(key):
            self.fault("context", f"{key} was answered and is not in its conversation")


def instant(line: Fields) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


def tokens(text: str) -> list[str]:
    return [token[0] for token in TOKEN.finditer(text)]


def texts(posts: list[Fields]) -> list[str]:
    return [post["text"][:80] for post in posts]


def main(kind: type[Judge]) -> None:
    judge = kind(Path(sys.argv[1]))
    judge.run()
    for violation in judge.violations:
        print(" ".join(violation.split()))
    named = {"lost": "lost", "twice": "answered twice", "unexplained": "unexplained"}
    counts = {title: judge.counts[rule] for rule, title in named.items()}
    counts |= {"repeats marked": judge.counts["repeats marked"], "dead letters": judge.counts["dead_letter"]}
    counts |= {o: judge.counts[o] for o in sorted(OUTCOMES) if judge.counts[o] and o != "dead_letter"}
    counts |= {
        what: judge.counts[what] for what in dict.fromkeys((*Judge.notes, *kind.notes)) if judge.counts[what]
    }
    print(json.dumps(counts))
    sys.exit(bool(judge.violations))
