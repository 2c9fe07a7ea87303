"""The part of a judge that two platforms share: what people see of the bot, and what its own files say of it.

A visible message is a line with its ``text``, its ``files`` (``name`` and ``text`` each) and its id as ``ts``. The rows
of an answer must all be there, once and in order, whatever the messages say of themselves.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from tests.judge.crash import Judge, texts, tokens
from tests.judge.records import Fields, key_of, read_lines, speakers

ROW = re.compile(r"row (\d+) of (\d+) (t\d+m\d+) abcdefghi")
MADE = re.compile(r"(?:press|slash|stop)-")
LOOKS = 3
"""How often the bot looks for a post before it repeats it with a mark."""
RAW = ("canary-of", "Traceback", "Error:")


def first_taken(said: Iterable[Fields]) -> dict[str, float]:
    """Return when, by channel, the first message was said that the bot took there."""
    heard: dict[str, float] = {}
    for sent in said:
        if sent["acked_at"]:
            channel = sent["thread"].split(":")[2]
            heard[channel] = min(heard.get(channel, math.inf), sent["said_at"])
    return heard


class VisibleJudge(Judge):
    """``same`` names each message that was sent again, and its thread, by the first one."""

    platform: str
    notes = ("kept after a stop", "left after a stop", "eyes left")

    same: dict[str, str]
    left: Fields
    visible: list[Fields]
    numbers: dict[str, str]
    troubles: Counter[str]
    looks: Counter[str]
    leftovers: list[Fields]
    """Messages that are no part of an outcome: what a stop left is meant to stay."""

    def thread_of(self, one: Fields) -> str:
        """Return the conversation that a message is seen in."""
        raise NotImplementedError

    def is_kept(self, one: Fields) -> bool:
        """Return whether a message is what a stopped answer had come to."""
        raise NotImplementedError

    @staticmethod
    def is_unknown(sent: Fields, heard: dict[str, float]) -> bool:
        """Return whether the bot cannot know of a message; *heard* says when it first took one, by channel."""
        raise NotImplementedError

    @classmethod
    def due(cls, sent: list[Fields]) -> Iterator[Fields]:
        """Return the messages that the bot must have taken."""
        heard = first_taken(sent)
        return (one for one in sent if one["must"] and not cls.is_unknown(one, heard))

    def expect(self, sent: list[Fields]) -> None:
        """Note what people said, and what of it the bot must have taken."""
        self.sent = {key_of(one["thread"], one["id"]): one for one in sent}
        self.place = {key: n for n, key in enumerate(self.sent)}
        self.numbers = {one["thread"]: one["token"][1:5] for one in sent}
        self.acked = {key_of(one["thread"], one["id"]) for one in self.due(sent)}

    def add_post(self, key: str, threads: set[str], text: str, n: float, ts: str) -> None:
        """Note a post for a message, seen in *threads*: one that is seen in several is in the wrong place."""
        thread = next(iter(threads)) if len(threads) == 1 else str(sorted(threads))
        post = {"key": key, "thread": self.same.get(thread, thread), "text": text, "n": n, "id": ts}
        post |= {"reply_to": key.rpartition(":")[2], "kind": "reply" if ROW.search(text) else "notice"}
        self.shown[key].append(post)

    # what the bot received

    def raw_journal(self) -> Iterator[Fields]:
        *whole, _ = (self.data / "journal.jsonl").read_bytes().split(b"\n")
        return map(self.canonical, filter(None, read_lines(b"\n".join(whole))))

    def canonical(self, fields: Fields) -> Fields:
        for name in ("message_id", "thread_id", "by"):
            if name in fields:
                fields[name] = self.same.get(fields[name], fields[name])
        if source := fields.get("message", {}).get("source"):
            fields["message"]["source"] = self.same.get(source, source)
        return fields

    def thread_in(self, folder: Path) -> str:
        """Return the thread by its first name: of a message sent twice, either copy may be the one that was taken."""
        thread = super().thread_in(folder)
        return self.same.get(thread, thread)

    def lines(self, path: Path) -> Iterator[Fields]:
        return map(self.canonical, super().lines(path))

    def add_presses(self) -> None:
        """Add buttons and slash commands to what was sent: their ids are the bot's own."""
        for line in self.raw_journal():
            key = key_of(line["thread_id"], line["message_id"])
            if MADE.match(line["message_id"]) and (key not in self.sent or line["kind"] == "received"):
                sent = {
                    "thread": line["thread_id"],
                    "id": line["message_id"],
                    "token": "",
                    "command": True,
                    "alone": True,
                }
                sent |= {"text": line.get("text", ""), "texts": [line.get("text", "")], "deleted": False}
                self.sent[key] = sent
        made = Counter(sent["id"].partition("-")[0] for sent in self.sent.values() if not sent["token"])
        for kind, most in (("press", self.left["presses"]), ("slash", self.left["commands"])):
            if made[kind] > most:
                self.fault("invented", f"{made[kind]} of {kind}, {most} were made")
        for kind, least in self.left["acked"].items():
            if made[kind] < least:
                self.fault("lost", f"{least} of {kind} were acknowledged, {made[kind]} are known")

    def add_whispers(self, posts: list[Fields]) -> None:
        """Match each ephemeral message with what it answered; it may be repeated."""
        by_ts = {post["ts"]: post for post in posts}
        for line in self.raw_journal():
            if line["kind"] == "posted" and (post := by_ts.pop(line["platform_id"], None)):
                self.add_whisper(key_of(line["thread_id"], line["message_id"]), post)
        for line in self.raw_journal():  # for old messages it no longer says how they were answered
            key = key_of(line["thread_id"], line["message_id"])
            alone = line["kind"] == "settled" and not line["by"] and self.sent.get(key, {}).get("alone")
            if alone and not self.shown[key]:
                found = (post["ts"] for post in by_ts.values() if post["channel"] == key.split(":")[2])
                if (ts := next(found, "")) and (post := by_ts.pop(ts)):
                    self.add_whisper(key, post)
        self.unasked = Counter(post["channel"] for post in by_ts.values())
        self.counts["whispers without a record"] = len(by_ts)

    def add_whisper(self, key: str, post: Fields) -> None:
        thread = self.sent[key]["thread"] if key in self.sent else ""
        said = {"key": key, "thread": thread, "text": post["text"], "kind": "notice", "n": 0}
        self.shown[key].append(said | {"reply_to": key.rpartition(":")[2], "id": post["ts"]})

    # what is visible

    def run(self) -> None:
        super().run()
        for one in self.leftovers:
            self.judge_leftover(one)
        self.check_rows()
        self.check_words()

    def judge_leftover(self, one: Fields) -> None:
        # the first line ends in what is answered
        newest = (tokens(one["text"].partition("\n")[0]) or [""])[-1]
        end = self.end_of(newest)
        thread = self.same.get(t := self.thread_of(one), t)
        self.check_names(one["text"], thread, f"the unfinished {one['ts']}")
        if self.is_kept(one) and end in ("stopped", "undelivered"):
            self.counts["kept after a stop"] += 1
        elif end == "stopped":
            self.counts["left after a stop"] += 1
        else:
            self.fault("ugly", f"{one['ts']} in {thread} ({end}) is unfinished: {one['text'][:100]!r}")

    def end_of(self, token: str) -> str:
        """Return how a message ended; one that joined another's turn ended as that one did."""
        ends = (self.settled.get(key) for key, sent in self.sent.items() if sent["token"] == token)
        end = next(filter(None, ends), {})
        if end.get("outcome") == "merged":
            for _, later in speakers(end, self.settled):
                end = later
                if end.get("outcome") != "merged":
                    break
        return str(end.get("outcome", ""))

    def check_rows(self) -> None:
        """Check by the rows alone that each answer is there once, whole and in order."""
        rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
        filed = {row[2] for one in self.visible for file in one["files"] for row in ROW.findall(file["text"])}
        for one in self.visible:
            for file in one["files"]:
                for number, count, token in ROW.findall(file["text"]):
                    rows[token].append((int(number), int(count)))
            if self.is_kept(one):
                continue
            for number, count, token in ROW.findall(one["text"]):
                if token not in filed:
                    rows[token].append((int(number), int(count)))
        unseen = {sent["token"] for key, sent in self.sent.items() if self.blind(key)}
        for token, found in rows.items():
            if token in unseen:  # `check_posts` sees to it that the repeat is marked
                found = list(dict.fromkeys(found))
            wanted = [(number, found[0][1]) for number in range(1, found[0][1] + 1)]
            end, rule = self.end_of(token), "twice" if len(set(found)) < len(found) else "cut"
            given_up = end == "undelivered" and rule == "cut"  # what is out of it stays
            if found != wanted and end != "stopped" and not given_up:
                self.fault(rule, f"{token} ({end}) shows {len(found)} rows of {len(wanted)}")
        for key, end in self.settled.items():
            if end["outcome"] == "answered" and not self.sent[key]["command"]:
                answer = self.shown[key][0]["text"] if self.shown[key] else ""
                if answer and not ROW.search(answer):
                    self.fault("cut", f"{key} has no rows: {answer[:100]!r}")

    def check_words(self) -> None:
        """Check that nobody was pinged, no preview was fetched, and no raw error was shown."""
        self.counts["eyes left"] = self.left["eyes"]
        for what in ("pings", "unfurls"):
            if self.left[what]:
                self.fault("leak", f"{what}: {self.left[what][:5]}")
        for one in self.visible:
            if any(raw in one["text"] for raw in RAW):
                self.fault("raw", f"{one['ts']}: {one['text'][:200]!r}")

    # how a message ended

    def check_message(self, key: str) -> None:
        end, sent = self.settled.get(key), self.sent.get(key, {})
        if end and end["outcome"] == "withdrawn":
            self.counts["withdrawn"] += 1
            if not sent.get("deleted") or self.shown.get(key):
                self.fault("unexplained", f"{key} withdrawn; posts: {texts(self.shown.get(key, []))}")
        elif end and sent.get("alone") and not self.shown.get(key) and not end.get("by"):
            self.counts[end["outcome"]] += 1
            place = key.split(":")[2]
            self.unasked[place] -= 1
            if self.unasked[place] < 0:
                self.fault("lost", f"{key} settled as {end['outcome']}, and nobody was told")
        else:
            super().check_message(key)

    def check_posts(self, key: str, posts: list[Fields]) -> None:
        if key in self.sent and self.sent[key]["alone"]:  # what one person alone sees may be repeated
            posts = posts[:1]
        super().check_posts(key, posts)

    def check_undelivered(self, key: str, posts: list[Fields]) -> None:
        if not self.troubles[self.sent[key]["thread"]]:
            self.fault("undelivered", f"{key} without any trouble in its thread")

    def check_order(self) -> None:
        """Check the order of answers where one message was acknowledged before the next was sent."""
        answers: dict[str, list[tuple[float, Fields]]] = defaultdict(list)
        for key, posts in self.shown.items():
            sent = self.sent.get(key)
            if sent and sent["token"] and posts[0]["kind"] == "reply":
                answers[sent["thread"]].append((posts[0]["n"], sent))
        for thread, found in answers.items():
            found.sort(key=lambda pair: pair[0])
            for n, (_, later) in enumerate(found):
                for _, sooner in found[:n]:
                    in_turn = later["acked_at"] and later["acked_at"] < sooner["said_at"]
                    if later["must"] and in_turn and not self.was_full(key_of(thread, later["id"])):
                        self.fault(
                            "order", f"{later['token']} was answered after {sooner['token']} in {thread}"
                        )

    def blind(self, key: str) -> bool:
        """Return whether the platform refused enough look-ups there for all of one post to have failed."""
        return self.looks[self.sent[key]["thread"]] >= LOOKS

    def possible_texts(self, key: str) -> set[str]:
        return set(self.sent[key]["texts"])

    def number(self, thread: str) -> str:
        return self.numbers.get(self.same.get(thread, thread), "")

    def check_context(self, key: str) -> None:
        sent = self.sent[key]
        marks = [f'"source":"{one}"'.encode() for one in sent.get("ids", ())]
        root = self.data / "threads" / self.platform
        folders = [
            root / quote(one.partition(":")[2], safe=":").replace(":", "~") for one in sent.get("threads", ())
        ]
        names = ("context.jsonl", "context.old.jsonl")
        conversations = [
            path.read_bytes() for folder in folders for name in names if (path := folder / name).exists()
        ]
        found = any(mark in text for mark in marks for text in conversations)
        if not found and not self.may_be_forgotten(key):
            self.fault("context", f"{key} was answered and is not in its conversation")
