"""`python -m tests.judge.web FOLDER`: the judge of the crash run, for what patient visitors have seen on the page.

Its own rules, beside those of `tests.judge.crash`: what stands under a key never becomes another text; after the last
restart each page has a fresh snapshot, in which each message stands once, with its outcome and no draft, and with one
answer. A press of a button is no message: it has an outcome, and never stands on a page.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.judge.crash import Judge, main, plain_lines
from tests.judge.records import Fields, key_of

PRESS = re.compile(r"/(approve|deny|answer) q[0-9a-f]{8}\b")


class WebJudge(Judge):
    notes = (*Judge.notes, "questions", "messages on the last pages")

    def read_record(self, folder: Path) -> None:
        sent = plain_lines(folder / "sent.jsonl")
        self.sent = {key_of(one["thread"], one["id"]): one for one in sent}
        self.place = {key: n for n, key in enumerate(self.sent)}
        self.acked = {key_of(one["thread"], one["id"]) for one in plain_lines(folder / "acked.jsonl")}
        self.pages = {page["thread"]: page for page in plain_lines(folder / "pages.jsonl")}
        self.last = plain_lines(folder / "last.jsonl")
        self.n = {one["id"]: one["n"] for one in self.last}
        for one in plain_lines(folder / "texts.jsonl"):
            self.see(one)

    def is_press(self, key: str) -> bool:
        return PRESS.match(str(self.sent.get(key, {}).get("text", ""))) is not None

    def read_journal(self) -> None:
        presses = {key: one["id"] for key, one in self.sent.items() if self.is_press(key)}
        self.shown.update({key: [{"id": post}] for key, post in presses.items()})
        super().read_journal()
        for key in presses:
            del self.shown[key]

    def check_message(self, key: str) -> None:
        if not self.is_press(key):
            super().check_message(key)
        elif key in self.acked and key not in self.settled:
            self.fault("lost", f"the press {key} was acknowledged, not settled")

    def see(self, one: Fields) -> None:
        """Note what stood under a key. A question is no outcome."""
        if len(one["texts"]) > 1:
            self.fault("changed", f"{one['key']} was shown as {one['texts'][:3]}")
        if "?" in one["key"]:
            self.counts["questions"] += 1
            return
        key = key_of(one["thread"], one["id"])
        about = {"thread": one["thread"], "reply_to": one["id"], "id": one["key"], "kind": one["kind"]}
        self.shown[key].append(
            {**about, "key": key, "text": one["texts"][-1], "n": self.n.get(one["id"], -1)}
        )

    def check_order(self) -> None:
        """Check the order of what is on the last pages. What is older was on them once."""
        shown = self.shown
        self.shown = {key: posts for key, posts in shown.items() if posts[0]["n"] >= 0}
        super().check_order()
        self.shown = shown

    def run(self) -> None:
        super().run()
        for thread, page in self.pages.items():
            if not page["snapshots"]:
                self.fault("stale", f"the page of {thread} has no snapshot since the last restart")
        for message, times in Counter((one["thread"], one["id"]) for one in self.last).items():
            if times > 1:
                self.fault("twice", f"{message} stands on its page {times} times")
        for one in self.last:
            self.check_last(one)
        self.check_complete()

    def check_last(self, one: Fields) -> None:
        """Check how one message stands on its page in the end."""
        self.counts["messages on the last pages"] += 1
        key = key_of(one["thread"], one["id"])
        outcome = self.settled.get(key, {}).get("outcome")
        if self.is_press(key):
            self.fault("page", f"the press {key} stands on its page")
        answers = [post for post in one["posts"] if "?" not in post["key"]]
        if one["state"] != outcome:
            self.fault("page", f"{key} is {one['state']} on its page, {outcome} in the journal")
        if one["draft"]:
            self.fault("page", f"{key} still has a draft: {one['draft'][:80]!r}")
        if key in self.sent and printed(one["text"]) != printed(self.sent[key]["text"]):
            self.fault("page", f"{key} has another text: {one['text'][:80]!r}")
        if len(answers) > 1:
            self.fault("twice", f"{key} has {len(answers)} answers on its page")
        if not answers and outcome == "answered" and not self.settled[key].get("by"):
            self.fault("lost", f"{key} has no answer on its page")

    def check_complete(self) -> None:
        """Check that every page was told of every outcome of its thread."""
        for key, end in self.settled.items():
            page = self.pages.get(end["thread_id"], {"settled": {}})
            if self.is_press(key):
                continue
            if (told := page["settled"].get(end["message_id"])) != end["outcome"]:
                self.fault("page", f"{key} is {end['outcome']}, and its page was told {told}")


def printed(text: str) -> str:
    """Return the characters of a text that are seen."""
    return "".join(text.replace("\0", "").split())


if __name__ == "__main__":
    main(WebJudge)
