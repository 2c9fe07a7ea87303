"""`python -m tests.judge.discord FOLDER`: the judge of the crash run, for what is visible in Discord.

Its own rules, beside those of `tests.judge.visible`: the nonce of each message of the bot names one part of the post for
one message; what has a Stop button is unfinished, and may only be left for a moment; a reply refers to what it answers;
what was not said to the bot is not heard.
"""

from __future__ import annotations

import math
from base64 import b32encode
from collections import Counter, defaultdict
from hashlib import sha256
from pathlib import Path

from tests.judge.crash import main, plain_lines
from tests.judge.records import Fields, key_of
from tests.judge.visible import LOOKS, VisibleJudge

PARTS, FILE, ANEW = 20, 99, 100
"""Parts of a post that are messages, the one that is a file; and what is added to one that is sent anew."""

DASH = "-"
"""What is left of a message that Discord would not let the bot delete."""


def nonce_of(key: str, part: int) -> str:
    return b32encode(sha256(f"{part}\0{key}".encode()).digest()).decode().lower()[:25]


class DiscordJudge(VisibleJudge):
    platform = "discord"
    notes = (*VisibleJudge.notes, "dashes", "interactions cut by a death")

    def read_record(self, folder: Path) -> None:
        self.same, self.leftovers = {}, []
        self.expect(plain_lines(folder / "sent.jsonl"))
        refused = list(plain_lines(folder / "refused.jsonl"))
        self.troubles = Counter(one["place"] for one in refused)
        self.looks = Counter(one["place"] for one in refused if one["call"].startswith("GET"))
        [self.left] = plain_lines(folder / "left.jsonl")
        self.visible = sorted(plain_lines(folder / "visible.jsonl"), key=lambda one: int(one["ts"]))
        self.add_presses()
        self.ends = {
            key_of(line["thread_id"], line["message_id"]): line
            for line in self.raw_journal()
            if line["kind"] == "settled"
        }
        made = sum(not sent["token"] for sent in self.sent.values())
        self.counts["interactions cut by a death"] = max(0, self.left["interactions"] - made)
        self.gather()
        self.add_whispers(plain_lines(folder / "whispers.jsonl"))

    def gather(self) -> None:
        """Put the messages of each post together; what shows a part again is a post of its own."""
        names = {
            nonce_of(key, part + anew): (key, part)
            for key in self.sent
            for part in (*range(PARTS), FILE)
            for anew in (0, ANEW)
        }
        posts: dict[str, dict[int, list[Fields]]] = defaultdict(lambda: defaultdict(list))
        for one in self.visible:
            one["key"], part = names.get(one["nonce"], ("", 0))
            if one["text"] == DASH:
                self.counts["dashes"] += 1
            elif one["unfinished"] or self.is_kept(one):
                self.leftovers.append(one)
            elif one["text"].startswith("May I use"):
                self.counts["questions"] += 1
            elif one["key"]:
                posts[one["key"]][part].append(one)
            else:
                self.fault("invented", f"{one['ts']} answers nothing: {one['text'][:100]!r}")
        for key, parts in posts.items():
            self.join_parts(key, [parts[at] for at in sorted(parts)])

    def join_parts(self, key: str, parts: list[list[Fields]]) -> None:
        first = parts[0][0]
        stamps = [int(part[0]["ts"]) for part in parts]
        if stamps != sorted(stamps):
            self.fault("order", f"the parts of {key} are at {stamps}")
        files = [file["text"] for part in parts for file in part[0]["files"]]
        texts = ["\n".join(files or (part[0]["text"] for part in parts))]
        texts += [again["text"] for part in parts for again in part[1:]]
        threads = {self.thread_of(one) for copies in parts for one in copies}
        for text in texts:
            self.add_post(key, threads, text, stamps[0], first["ts"])
        sent = self.sent[key]
        allowed = {"", sent["id"]}
        # a press; what cannot be told to one alone replies to the conversation's first message
        if not sent["token"]:
            allowed.add(sent["thread"].rpartition(":")[2])
        for one in (one for copies in parts for one in copies):
            if one["refers"] not in allowed:
                self.fault("crossed", f"{one['ts']} for {key} refers to {one['refers']}")

    @staticmethod
    def is_unknown(sent: Fields, heard: dict[str, float]) -> bool:
        """Return whether it was a direct message from someone of whom the bot knew nothing: Discord lists no such."""
        _, guild, channel, _ = sent["thread"].split(":")
        return guild == "@me" and not sent["acked_at"] and sent["said_at"] < heard.get(channel, math.inf)

    def thread_of(self, one: Fields) -> str:
        """Return the conversation that a message is seen in; a reply to what is deleted refers to nothing."""
        sent = self.sent.get(one["key"], {})
        plain = sent.get("deleted") and not one["refers"] and one["channel"] in sent["thread"].split(":")
        return str(sent["thread"] if plain else one["thread"])

    def is_kept(self, one: Fields) -> bool:
        """Return whether it is what an answer had come to when another message stopped it."""
        end = self.ends.get(one["key"], {})
        return end.get("outcome") == "stopped" and bool(end.get("by")) and not one["unfinished"]

    def run(self) -> None:
        super().run()
        for key in self.settled:
            if self.sent.get(key, {}).get("beside"):
                self.fault(
                    "invented", f"{key} was not said to the bot, and is {self.settled[key]['outcome']}"
                )

    def check_undelivered(self, key: str, posts: list[Fields]) -> None:
        if not self.near(self.troubles, key) and not self.sent[key]["deleted"]:
            self.fault("undelivered", f"{key} without any trouble in its thread")

    def blind(self, key: str) -> bool:
        return self.near(self.looks, key) >= LOOKS

    def near(self, counted: Counter[str], key: str) -> int:
        """Return how often it happened in the thread of a message, or in its channel."""
        _, _, channel, root = self.sent[key]["thread"].split(":")
        return sum(counted[place] for place in {channel, root})


if __name__ == "__main__":
    main(DiscordJudge)
