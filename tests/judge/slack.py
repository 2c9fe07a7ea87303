"""`python -m tests.judge.slack FOLDER`: the judge of the crash run, for what is visible in Slack.

Its own rules, beside those of `tests.judge.visible`: each message of the bot belongs to one outcome, in the thread of
the question; no thread still seems to be worked on.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path

from tests.judge.crash import main, plain_lines
from tests.judge.records import Fields
from tests.judge.visible import VisibleJudge

CLEARED = 50
"""A start clears the status in this many of the newest threads; Slack clears the others after an hour."""


class SlackJudge(VisibleJudge):
    platform = "slack"
    notes = (*VisibleJudge.notes, "status left in an old thread")

    def read_record(self, folder: Path) -> None:
        self.same, self.leftovers = {}, []
        said = list(plain_lines(folder / "sent.jsonl"))
        for sent in said:
            self.same |= dict.fromkeys(sent["ids"], sent["id"]) | dict.fromkeys(
                sent["threads"], sent["thread"]
            )
        self.expect(said)
        self.troubles = Counter(one["thread"] for one in plain_lines(folder / "refused.jsonl"))
        self.looks = Counter(
            one["thread"] for one in plain_lines(folder / "refused.jsonl") if one["call"].startswith("conv")
        )
        [self.left] = plain_lines(folder / "left.jsonl")
        self.visible = sorted(plain_lines(folder / "visible.jsonl"), key=lambda one: one["ts"])
        self.add_presses()
        self.gather()
        self.add_whispers(plain_lines(folder / "ephemeral.jsonl"))

    def gather(self) -> None:
        """Put the messages of each post together; what shows a part again is a post of its own."""
        posts: dict[str, dict[tuple[int, int], list[Fields]]] = defaultdict(lambda: defaultdict(list))
        files: dict[str, list[Fields]] = defaultdict(list)
        self.questions = Counter[str]()
        for one in self.visible:
            tag = one["tag"]
            for file in one["files"]:
                files[file["name"]].append({**one, **file})
            if one["files"]:
                continue
            if tag and "?" in tag["key"]:
                self.questions[tag["key"]] += 1
            elif not tag or tag.get("draft") or tag["key"] == "kept":
                self.leftovers.append(one)
            else:
                posts[self.name(tag["key"])][tag["part"], tag.get("piece", 0)].append(one)
        for key, times in self.questions.items():
            if times > 1:
                self.fault("twice", f"the question {key} stands there {times} times")
        for key, parts in posts.items():
            self.join_parts(key, [parts[at] for at in sorted(parts)], files)

    def name(self, key: str) -> str:
        head, _, last = key.rpartition(":")
        return f"{head}:{self.same.get(last, last)}"

    def join_parts(self, key: str, parts: list[list[Fields]], files: dict[str, list[Fields]]) -> None:
        first, tag = parts[0][0], parts[0][0]["tag"]
        stamps = [part[0]["ts"] for part in parts]
        if len(parts) != tag["parts"] and not tag.get("pieces"):
            self.fault("cut", f"{key} shows {len(parts)} of {tag['parts']} parts")
        if stamps != sorted(stamps):
            self.fault("order", f"the parts of {key} are at {stamps}")
        whole = {"ts": first["ts"], "text": "\n".join(part[0]["text"] for part in parts)}
        shown = [whole, *(again for part in parts for again in part[1:])]
        if tag.get("file"):
            found = files.get(tag["file"], [])
            if len(found) != 1:
                self.fault("file", f"{key} has {len(found)} files {tag['file']}")
            whole["text"] = found[0]["text"] if found else whole["text"]
        threads = {self.thread_of(part) for copies in parts for part in copies}
        channel = self.sent.get(key, {"thread": ""})["thread"]
        if channel.endswith(":") and len(threads) == 1 and next(iter(threads)).startswith(channel):
            threads = {channel}  # to the channel itself: the post began a thread of its own
        for one in shown:
            self.add_post(key, threads, one["text"], float(first["ts"]), one["ts"])

    @staticmethod
    def is_unknown(sent: Fields, heard: dict[str, float]) -> bool:
        """Return whether it was never acknowledged, and said in a channel of which the bot knew nothing yet.

        A channel starts where it is first heard (DMs can be found): before that only Slack's redeliveries count, which
        go on for minutes, and here for seconds.
        """
        channel = sent["thread"].split(":")[2]
        before = sent["said_at"] < heard.get(channel, math.inf)
        return before and not sent["acked_at"] and not channel.startswith("D")

    def thread_of(self, one: Fields) -> str:
        return f"slack:T1:{one['channel']}:{one['root']}"

    def is_kept(self, one: Fields) -> bool:
        return bool(one["tag"].get("key") == "kept")

    def run(self) -> None:
        super().run()
        self.check_presence()
        self.count_lookups()

    def count_lookups(self) -> None:
        """Count the looks into threads that come before a post, and those since the last death."""
        for call in plain_lines(self.data.parent / "calls.jsonl") if self.within_s else ():
            if call["method"] in ("conversations.replies", "conversations.history") and (
                "include_all_metadata" in call["args"]
            ):
                self.counts["look-ups"] += 1
                self.counts["look-ups since the last death"] += call["at"] + self.clock > self.died_at
                self.counts["refused look-ups"] += bool(call["error"])

    def check_presence(self) -> None:
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


if __name__ == "__main__":
    main(SlackJudge)
