"""`python -m tests.judge.matrix FOLDER`: the judge of the crash run, for what is visible in Matrix.

Its own rules, beside those of `tests.judge.visible`: the mark of each message of the bot names one part of the post for
one message, which is finished or may only be left for a moment; no post may be a repeat, since the homeserver answers a
repeated request with the message that is there; what was not said to the bot is not heard.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from hashlib import sha256
from pathlib import Path

from tests.judge.crash import main, plain_lines
from tests.judge.records import REPEAT, Fields, key_of
from tests.judge.visible import VisibleJudge

ID = re.compile(r"[$!][\w-]{43}")
"""An id of an event or a room, in which chance may write anything."""


def mark_of(key: str) -> str:
    return sha256(f"matrix\0{key}".encode()).hexdigest()[:20]


class MatrixJudge(VisibleJudge):
    platform = "matrix"
    notes = (*VisibleJudge.notes, "deaths of the homeserver", "questions")

    def read_record(self, folder: Path) -> None:
        self.same, self.leftovers, self.looks = {}, [], Counter()
        self.expect(plain_lines(folder / "sent.jsonl"))
        self.troubles = Counter(one["place"] for one in plain_lines(folder / "refused.jsonl"))
        [self.left] = plain_lines(folder / "left.jsonl")
        self.counts["deaths of the homeserver"] = self.left["deaths"]
        self.visible = plain_lines(folder / "visible.jsonl")
        self.add_presses()
        self.gather()

    def gather(self) -> None:
        """Put the messages of each post together; what shows a part again is a post of its own."""
        names = {mark_of(key): key for key in self.sent}
        posts: dict[str, dict[int, list[Fields]]] = defaultdict(lambda: defaultdict(list))
        for one in self.visible:
            key, mark = names.get(one["mark"].get("key"), ""), one["mark"]
            if not mark.get("final"):
                self.leftovers.append(one)
            elif key:
                posts[key][mark["part"]].append(one)
            else:
                self.fault("invented", f"{one['ts']} answers nothing: {one['text'][:100]!r}")
        for key, parts in posts.items():
            self.join_parts(key, [parts[at] for at in sorted(parts)])

    def join_parts(self, key: str, parts: list[list[Fields]]) -> None:
        places = [part[0]["n"] for part in parts]
        if places != sorted(places):
            self.fault("order", f"the parts of {key} are at {places}")
        threads = {one["thread"] for copies in parts for one in copies}
        texts = ["\n".join(part[0]["text"] for part in parts)]
        for text in (*texts, *(again["text"] for part in parts for again in part[1:])):
            self.add_post(key, threads, text, places[0], parts[0][0]["ts"])

    @staticmethod
    def is_unknown(sent: Fields, heard: dict[str, float]) -> bool:
        """Return False: the sync brings all that is said since the bot was invited."""
        return False

    def thread_of(self, one: Fields) -> str:
        return str(one["thread"])

    def is_kept(self, one: Fields) -> bool:
        return False

    def run(self) -> None:
        super().run()
        for one in self.visible:
            if REPEAT in one["text"]:
                self.fault("twice", f"{one['ts']} says that it may be a repeat")
        for key in self.settled:
            if self.sent.get(key, {}).get("beside"):
                self.fault(
                    "invented", f"{key} was not said to the bot, and is {self.settled[key]['outcome']}"
                )

    def check_names(self, text: str, thread: str, where: str) -> None:
        super().check_names(ID.sub("", text), thread, where)

    def check_undelivered(self, key: str, posts: list[Fields]) -> None:
        if not self.troubles[key_of(key, "").split(":")[2]] and not self.sent[key]["deleted"]:
            self.fault("undelivered", f"{key} without any trouble in its room")


if __name__ == "__main__":
    main(MatrixJudge)
