"""`python -m tests.crash.slack.judge FOLDER`: the judge of the crash run, for what is visible in Slack.

Its own rules, beside those of `tests.crash.judge`: the rows of an answer are all there, once, in order, in the thread
of the question, whatever the messages say of themselves; each message of the bot belongs to one outcome; no thread
still seems to be worked on.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.crash import judge
from tests.crash.judge import Fields, Judge, key_of, plain_lines, tokens

ROW = re.compile(r"row (\d+) of (\d+) (t\d+m\d+) abcdefghi")
MADE = re.compile(r"(?:press|slash|stop)-")
CLEARED = 50
"""A start takes the status away from so many threads, the newest; Slack itself does so after an hour."""
RAW = ("canary-of", "Traceback", "Error:")


def first_heard(said: Iterable[Fields]) -> dict[str, float]:
    """Return when, by channel, the first message was said that the bot acknowledged there."""
    heard: dict[str, float] = {}
    for sent in said:
        if sent["acked_at"]:
            channel = sent["thread"].split(":")[2]
            heard[channel] = min(heard.get(channel, math.inf), sent["said_at"])
    return heard


def unheard_of(sent: Fields, heard: dict[str, float]) -> bool:
    """Return whether it was never acknowledged, and said in a channel of which the bot knew nothing yet.

    A channel starts where it is first heard (DMs can be found): before that only Slack's redeliveries count, which
    go on for minutes, and here for seconds.
    """
    channel = sent["thread"].split(":")[2]
    before = sent["said_at"] < heard.get(channel, math.inf)
    return before and not sent["acked_at"] and not channel.startswith("D")


class SlackJudge(Judge):
    notes = ("kept after a stop", "left after a stop", "status left in an old thread", "eyes left")

    def read_record(self, folder: Path) -> None:
        self.same: dict[str, str] = {}
        said = list(plain_lines(folder / "sent.jsonl"))
        heard = first_heard(said)
        for sent in said:
            self.same |= dict.fromkeys(sent["ids"], sent["id"]) | dict.fromkeys(
                sent["threads"], sent["thread"]
            )
            key = key_of(sent["thread"], sent["id"])
            self.sent[key] = sent
            if sent["must"] and not unheard_of(sent, heard):
                self.acked.add(key)
        self.numbers = {sent["thread"]: sent["token"][1:5] for sent in self.sent.values()}
        self.place = {key: n for n, key in enumerate(self.sent)}
        self.troubles = Counter(one["thread"] for one in plain_lines(folder / "refused.jsonl"))
        self.looks = Counter(
            one["thread"] for one in plain_lines(folder / "refused.jsonl") if one["call"].startswith("conv")
        )
        [self.left] = plain_lines(folder / "left.jsonl")
        self.visible = sorted(plain_lines(folder / "visible.jsonl"), key=lambda one: one["ts"])
        self.hear_presses()
        self.gather()
        self.whispers(plain_lines(folder / "ephemeral.jsonl"))

    def raw_journal(self) -> Iterator[Fields]:
        for line in (self.data / "journal.jsonl").read_bytes().split(b"\n")[:-1]:
            if judge.intact(line):
                yield self.canonical(json.loads(line))

    def canonical(self, fields: Fields) -> Fields:
        """Name each message that was sent again, and its thread, by the first one."""
        for name in ("message_id", "thread_id", "by"):
            if name in fields:
                fields[name] = self.same.get(fields[name], fields[name])
        if source := fields.get("message", {}).get("source"):
            fields["message"]["source"] = self.same.get(source, source)
        return fields

    def lines(self, path: Path) -> Iterator[Fields]:
        return map(self.canonical, super().lines(path))

    def hear_presses(self) -> None:
        """Take buttons and slash commands as said: their ids are the bot's own."""
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

    def gather(self) -> None:
        """Put the messages of each post together; what shows a part again is a post of its own."""
        posts: dict[str, dict[tuple[int, int], list[Fields]]] = defaultdict(lambda: defaultdict(list))
        files: dict[str, list[Fields]] = defaultdict(list)
        for one in self.visible:
            tag = one["tag"]
            for file in one["files"]:
                files[file["name"]].append({**one, **file})
            if one["files"]:
                continue
            if not tag or tag.get("draft") or tag["key"] == "kept":
                self.look_at_leftover(one)
            else:
                posts[self.name(tag["key"])][tag["part"], tag.get("piece", 0)].append(one)
        for key, parts in posts.items():
            self.put_together(key, [parts[at] for at in sorted(parts)], files)

    def name(self, key: str) -> str:
        head, _, last = key.rpartition(":")
        return f"{head}:{self.same.get(last, last)}"

    def put_together(self, key: str, parts: list[list[Fields]], files: dict[str, list[Fields]]) -> None:
        first, tag = parts[0][0], parts[0][0]["tag"]
        stamps = [part[0]["ts"] for part in parts]
        if len(parts) != tag["parts"] and not tag.get("pieces"):
            self.fault("cut", f"{key} shows {len(parts)} of {tag['parts']} parts")
        if stamps != sorted(stamps):
            self.fault("order", f"the parts of {key} are at {stamps}")
        texts = ["\n".join(part[0]["text"] for part in parts)]
        texts += [again["text"] for part in parts for again in part[1:]]
        if tag.get("file"):
            found = files.get(tag["file"], [])
            if len(found) != 1:
                self.fault("file", f"{key} has {len(found)} files {tag['file']}")
            texts[0] = found[0]["text"] if found else texts[0]
        threads = {f"slack:T1:{part['channel']}:{part['root']}" for copies in parts for part in copies}
        thread = threads.pop() if len(threads) == 1 else str(threads)
        if (asked := self.sent.get(key, {"thread": ""})["thread"]).endswith(":") and thread.startswith(asked):
            thread = asked  # to the channel itself: the post began a thread of its own
        for text in texts:
            kind = "reply" if ROW.search(text) else "notice"
            post = {"key": key, "thread": self.same.get(thread, thread), "text": text, "kind": kind}
            post |= {"reply_to": key.rpartition(":")[2], "n": float(first["ts"]), "id": first["ts"]}
            self.shown[key].append(post)

    def whispers(self, posts: list[Fields]) -> None:
        """Give each message that one person alone saw to what it answered; they may be repeated."""
        by_ts = {post["ts"]: post for post in posts}
        for line in self.raw_journal():
            if line["kind"] == "posted" and (post := by_ts.pop(line["platform_id"], None)):
                self.whisper(key_of(line["thread_id"], line["message_id"]), post)
        self.unasked = Counter(post["channel"] for post in by_ts.values())
        self.counts["whispers without a record"] = len(by_ts)

    def whisper(self, key: str, post: Fields) -> None:
        thread = self.sent[key]["thread"] if key in self.sent else ""
        said = {"key": key, "thread": thread, "text": post["text"], "kind": "notice", "n": 0.0}
        self.shown[key].append(said | {"reply_to": key.rpartition(":")[2], "id": post["ts"]})

    def look_at_leftover(self, one: Fields) -> None:
        """Judge a message that is no part of an outcome: what a stop left is meant to stay."""
        self.leftovers: list[Fields] = getattr(self, "leftovers", [])
        self.leftovers.append(one)

    def run(self) -> None:
        super().run()
        for one in getattr(self, "leftovers", []):
            self.judge_leftover(one)
        self.look_at_rows()
        self.look_at_presence()

    def judge_leftover(self, one: Fields) -> None:
        newest = (tokens(one["text"].partition("\n")[0]) or [""])[
            -1
        ]  # the first line ends in what is answered
        end = self.end_of(newest)
        thread = self.same.get(t := f"slack:T1:{one['channel']}:{one['root']}", t)
        self.look_for_strangers(one["text"], thread, f"the unfinished {one['ts']}")
        if one["tag"].get("key") == "kept" and end in ("stopped", "undelivered"):
            self.counts["kept after a stop"] += 1
        elif end == "stopped":
            self.counts["left after a stop"] += 1
        else:
            self.fault(
                "ugly",
                f"{one['ts']} in {thread} ({end}), streaming {one['streaming']}: {one['text'][:100]!r}",
            )

    def end_of(self, token: str) -> str:
        return next(
            (
                self.settled[key]["outcome"]
                for key, sent in self.sent.items()
                if sent["token"] == token and key in self.settled
            ),
            "",
        )

    def look_at_rows(self) -> None:
        """Check by the rows alone that each answer is there once, whole and in order."""
        rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
        filed = {row[2] for one in self.visible for file in one["files"] for row in ROW.findall(file["text"])}
        for one in self.visible:
            for file in one["files"]:
                for number, count, token in ROW.findall(file["text"]):
                    rows[token].append((int(number), int(count)))
            if one["tag"].get("key") == "kept":
                continue
            for number, count, token in ROW.findall(one["text"]):
                if token not in filed:
                    rows[token].append((int(number), int(count)))
        for token, found in rows.items():
            wanted = [(number, found[0][1]) for number in range(1, found[0][1] + 1)]
            if found != wanted and self.end_of(token) != "stopped":
                rule = "twice" if len(set(found)) < len(found) else "cut"
                self.fault(rule, f"{token} ({self.end_of(token)}) shows {len(found)} rows of {len(wanted)}")
        for key, end in self.settled.items():
            if end["outcome"] == "answered" and not self.sent[key]["command"]:
                answer = self.shown[key][0]["text"] if self.shown[key] else ""
                if answer and not ROW.search(answer):
                    self.fault("cut", f"{key} has no rows: {answer[:100]!r}")

    def look_at_presence(self) -> None:
        self.counts["eyes left"] = self.left["eyes"]
        newest = sorted(
            self.data.glob("threads/slack/*/context.jsonl"), key=lambda path: -path.stat().st_mtime
        )
        looked_at = {tuple(path.parent.name.split("~")[1:]) for path in newest[:CLEARED]}
        for what in ("processing", "words"):
            for place in self.left[what]:
                if tuple(place) in looked_at:
                    self.fault("presence", f"{what} is left in {place}")
                else:
                    self.counts["status left in an old thread"] += 1
        for what in ("pings", "unfurls"):
            if self.left[what]:
                self.fault("leak", f"{what}: {self.left[what][:5]}")
        for one in self.visible:
            if any(raw in one["text"] for raw in RAW):
                self.fault("raw", f"{one['ts']}: {one['text'][:200]!r}")

    def look_at(self, key: str) -> None:
        end, sent = self.settled.get(key), self.sent.get(key, {})
        if end and end["outcome"] == "withdrawn":
            self.counts["withdrawn"] += 1
            if not sent["deleted"] or self.shown.get(key):
                self.fault("unexplained", f"{key} withdrawn; posts: {judge.texts(self.shown.get(key, []))}")
        elif end and sent["alone"] and not self.shown.get(key) and not end.get("by"):
            self.counts[end["outcome"]] += 1
            place = key.split(":")[2]
            self.unasked[place] -= 1
            if self.unasked[place] < 0:
                self.fault("lost", f"{key} settled as {end['outcome']}, and nobody was told")
        else:
            super().look_at(key)

    def look_at_posts(self, key: str, posts: list[Fields]) -> None:
        if key in self.sent and self.sent[key]["alone"]:  # what one person alone sees may be repeated
            posts = posts[:1]
        super().look_at_posts(key, posts)

    def look_at_undelivered(self, key: str, posts: list[Fields]) -> None:
        if not self.troubles[self.sent[key]["thread"]]:
            self.fault("undelivered", f"{key} without any trouble in its thread")

    def look_at_order(self) -> None:
        """Check the order of answers to messages of which the one was in before the other was said."""
        answers: dict[str, list[tuple[float, Fields]]] = defaultdict(list)
        for key, posts in self.shown.items():
            sent = self.sent.get(key)
            if sent and sent["token"] and posts[0]["kind"] == "reply":
                answers[sent["thread"]].append((posts[0]["n"], sent))
        for thread, found in answers.items():
            found.sort(key=lambda pair: pair[0])
            for n, (_, later) in enumerate(found):
                for _, sooner in found[:n]:
                    if later["must"] and later["acked_at"] and later["acked_at"] < sooner["said_at"]:
                        self.fault(
                            "order", f"{later['token']} was answered after {sooner['token']} in {thread}"
                        )

    def blind(self, key: str) -> bool:
        return self.looks[self.sent[key]["thread"]] > 0

    def spoken(self, key: str) -> set[str]:
        return set(self.sent[key]["texts"])

    def token(self, key: str) -> str:
        return str(self.sent[key]["token"])

    def number(self, thread: str) -> str:
        return self.numbers.get(self.same.get(thread, thread), "")

    def look_for_context(self, key: str) -> None:
        sent = self.sent[key]
        marks = [f'"source":"{one}"'.encode() for one in sent.get("ids", ())]
        folders = [
            self.data / "threads" / "slack" / one[6:].replace(":", "~") for one in sent.get("threads", ())
        ]
        names = ("context.jsonl", "context.old.jsonl")
        texts = [
            path.read_bytes() for folder in folders for name in names if (path := folder / name).exists()
        ]
        if not any(mark in text for mark in marks for text in texts):
            self.fault("context", f"{key} was answered and is not in its conversation")


if __name__ == "__main__":
    judge.main(SlackJudge)
