"""The independent auditor: reads the disk's bytes and the platform's record, and believes nothing the bot says.

It imports nothing of the bot. The rules are the promises of the design: every acknowledged message has one outcome
and one visible sign, nothing is answered twice or in the wrong thread, and a thread's answers come in order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tests.judge.journal import Lifecycle, clock, namesake, plain, read_journal, sibling
from tests.judge.money import money_faults
from tests.judge.plays import play_faults
from tests.judge.records import OUTCOMES, REPEAT, read_lines, repeated, scrubbed, speakers
from tests.sim.record import REACTIONS_FROM, Post, Record, Sent

MAX_ATTEMPTS = 3
MENTION = "I could not post"
TRIES_BEFORE_GIVING_UP = 4
LANDS_WITHIN_S = 3.0
SLACK_S = 60.0
"""How long looking for a post, and one try of it, may take after an answer was just young enough."""
ADMISSIONS = ("could not save our conversation", "history was damaged", "trouble loading our conversation")
TURNS = ("/compact", "/retry", "/play")
"""Commands that are served as messages are."""


def judge(files: dict[str, bytes], record: Record) -> list[str]:
    """Return every promise that was broken, as sentences."""
    return list(_Audit(files, record).faults())


class _Audit:
    def __init__(self, files: dict[str, bytes], record: Record) -> None:
        self._files, self._record = files, record
        self._lifecycles: dict[str, Lifecycle] = defaultdict(Lifecycle)
        self._posts: dict[str, list[Post]] = defaultdict(list)
        for post in sorted(record.posts, key=lambda post: post.at):
            self._posts[post.key].append(post)

    def faults(self) -> Iterator[str]:
        yield from self._record.violations
        journal = next((path for path in self._files if path.endswith("/journal.jsonl")), "")
        yield from read_journal(self._files.get(journal, b""), self._lifecycles)
        for sent in self._record.sent.values():
            yield from self._outcome(sent)
            yield from self._posts_of(sent)
        for key in sorted(self._posts.keys() - self._record.sent.keys()):
            if "?" not in key and not key.endswith("+left"):  # a question, see `money`, or of the scheduler
                yield f"{key}: a post for a message that nobody sent"
        yield from money_faults(self._files, self._record)
        yield from play_faults(self._files, self._record, self._lifecycles)
        yield from self._order()
        yield from self._folders()
        yield from self._gone()

    def _outcome(self, sent: Sent) -> Iterator[str]:
        life = self._lifecycles[sent.key]
        if not life.settled:
            if sent.acknowledged or life.received or life.started:
                yield f"{sent.key}: acknowledged={sent.acknowledged}, never settled"
            return
        if len(life.settled) > 1:
            yield f"{sent.key}: settled {len(life.settled)} times"
        if life.outcome not in OUTCOMES:
            yield f"{sent.key}: no such outcome {life.outcome}"
        shown = self._record.shown.get(sent.key, life.outcome)
        if shown != life.outcome and sent.key not in self._record.doubtful:
            yield f"{sent.key}: shown as {self._record.shown[sent.key]}, settled {life.outcome}"
        if any(line["attempt"] > MAX_ATTEMPTS for line in life.started):
            yield f"{sent.key}: more than {MAX_ATTEMPTS} attempts"
        if self._went_on_after_delete(sent, life):
            yield f"{sent.key}: its turn went on after its delete was acknowledged"
        yield from self._sign(sent, life)

    def _sign(self, sent: Sent, life: Lifecycle) -> Iterator[str]:
        """Every outcome has exactly one visible sign."""
        posts = self._posts[sent.key]
        if life.by and life.outcome != "undelivered":
            if posts:
                yield f"{sent.key}: {life.outcome} by {life.by}, but has a post of its own"
            if not self._spoken_for(sent, life):
                yield f"{sent.key}: {life.outcome} by {life.by}, which nobody can see"
        match life.outcome:
            case "withdrawn":
                if posts or not sent.deleted:
                    yield f"{sent.key}: withdrawn, {len(posts)} posts, deleted={sent.deleted}"
            case "undelivered":
                given_up = self._record.refused[sent.key] >= TRIES_BEFORE_GIVING_UP
                if not given_up and sent.key not in self._record.rejected:
                    yield f"{sent.key}: undelivered, {self._record.refused[sent.key]} refusals"
                if posts and sent.key not in (
                    self._record.blind if self._record.find else self._record.doubtful
                ):
                    yield f"{sent.key}: undelivered, but its post is out"
                if life.by and not any(MENTION in post.text for post in self._posts[namesake(sent, life.by)]):
                    yield f"{sent.key}: undelivered, and {life.by} does not mention it"
            case "merged" if not life.by or self._record.busy != "steer":
                yield f"{sent.key}: merged by {life.by!r} in {self._record.busy}"
            case _ if not posts and not life.by:
                yield f"{sent.key}: {life.outcome} without a sign"

    def _spoken_for(self, sent: Sent, life: Lifecycle) -> bool:
        """Follow ``by`` to a message that shows itself, or that the platform refused to show."""
        key = sent.key
        for key, _ in speakers(life.settled[-1], self._ends()):
            if key == sent.key or key not in self._lifecycles or self._record.sent[key].thread != sent.thread:
                return False
        last = self._lifecycles[key]
        if last.by:  # a cycle
            return False
        return bool(self._posts[key]) or last.outcome in ("undelivered", "withdrawn")

    def _ends(self) -> dict[str, dict[str, Any]]:
        return {key: life.settled[-1] for key, life in self._lifecycles.items() if life.settled}

    def _posts_of(self, sent: Sent) -> Iterator[str]:
        posts, life = self._posts[sent.key], self._lifecycles[sent.key]
        for place, post in enumerate(posts):
            marked = REPEAT in post.text
            if post.thread != sent.thread:
                yield f"{sent.key}: posted in {post.thread}"
            if scrubbed(post.text) != post.text:
                yield f"{sent.key}: half a character in {post.text!r}"
            if "secret" in post.text or "Traceback" in post.text:
                yield f"{sent.key}: a payload in a thread"
            if marked and not self._doubtful(sent.key):
                yield f"{sent.key}: marked as a repeat without a doubt"
            if marked and self._record.find and sent.key not in self._record.blind:
                yield f"{sent.key}: marked as a repeat though it could be looked up"
            if place and not (marked and plain(post.text) == plain(posts[0].text)):
                yield f"{sent.key}: posted twice: {posts[0].text!r}, {post.text!r}"
            if not (place or marked) and self._too_late(life, post):
                yield f"{sent.key}: an answer was posted too late: {post.text!r}"
            if not place:
                yield from self._content(sent, life, post)

    def _too_late(self, life: Lifecycle, post: Post) -> bool:
        ready = clock(life.answered_at) if life.answered_at else post.at
        return post.kind == "reply" and post.sent_at - ready > self._record.max_age_s + SLACK_S

    def _doubtful(self, key: str) -> bool:
        """A post may be out; or it was given up, could not be settled on disk, and got another chance."""
        return key in self._record.doubtful or self._record.refused[key] >= TRIES_BEFORE_GIVING_UP

    def _content(self, sent: Sent, life: Lifecycle, post: Post) -> Iterator[str]:
        """An answer names its message, what joined it, and nothing of another thread or a later message."""
        marks = {(int(a), int(b)): int(c) for a, b, c in re.findall(r"tk(\d+)x(\d+)x(\d+)z", post.text)}
        place = int(sent.thread.rsplit(":", 1)[1].split(".")[0])
        joined = {
            other.number
            for key, other in self._record.sent.items()
            if other.thread == sent.thread
            and not other.command
            and self._lifecycles[key].by == sent.id
            and self._lifecycles[key].outcome != "undelivered"
        }
        if any(thread != place for thread, _ in marks):
            yield f"{sent.key}: another thread's words in {post.text!r}"
        later = {number for _, number in marks if self._later(sent, number) and not self._gone(sent, number)}
        if later - joined and not self._overflowed(sent.thread, 0.0, post.at):
            yield f"{sent.key}: a later message's words in {post.text!r}"
        if life.outcome == "answered" and sent.command.startswith(TURNS):
            return
        if life.outcome != "answered" or sent.command:
            if post.kind == "reply" and life.outcome != "undelivered":
                yield f"{sent.key}: {life.outcome} by a reply {post.text!r}"
            return
        if self._record.deaths and self._started_over(sent.thread):
            joined = set()  # a /new may overtake a turn that a restart has cut
        missing = [number for number in {sent.number, *joined} if (place, number) not in marks]
        if missing:
            yield f"{sent.key}: messages {missing} are not in the answer {post.text!r}"
        elif life.text and f"x{sent.number}x{marks[place, sent.number]}z" not in life.text:
            yield f"{sent.key}: {life.text!r} was answered with {post.text!r}"

    def _started_over(self, thread: str) -> bool:
        return any(sent.thread == thread and sent.command == "/new" for sent in self._record.sent.values())

    def _later(self, sent: Sent, number: int) -> bool:
        """Say whether that message was taken up after *sent* was received, as far as the journal still tells.

        One that joined a turn is in the conversation from then on; a command between them is served later.
        """
        key = sibling(sent, number)
        if self._lifecycles[key].outcome == "merged":
            key = namesake(sent, self._lifecycles[key].by)
        mine, other = self._lifecycles[sent.key].received, self._lifecycles[key].received
        return bool(mine and other) and other[0]["seq"] > mine[0]["seq"]

    def _gone(self, sent: Sent, number: int) -> bool:
        """A message that joined a turn may be deleted while that turn waits to be resumed."""
        return self._lifecycles[sibling(sent, number)].outcome == "withdrawn"

    def _order(self) -> Iterator[str]:
        """Answers of one thread come in the order in which its messages were received."""
        last: dict[str, tuple[int, Post]] = {}
        for post in sorted(self._record.posts, key=lambda post: post.at):
            if (
                post.kind == "notice"
                or post is not self._posts[post.key][0]
                or post.key not in self._lifecycles
            ):
                continue
            received = self._lifecycles[post.key].received
            if not received:
                continue
            seq, before = received[0]["seq"], last.get(post.thread)
            if before and seq < before[0] and not self._pardoned(before[1], post):
                yield f"{post.key}: answered after {before[1].key}, received before it"
            last[post.thread] = (seq, post)

    def _pardoned(self, before: Post, late: Post) -> bool:
        """A message on its way to a refusal when the process died is served after the restart, late.

        The post *before* it may have been on its way then too, and have landed after the death. Or its turn had
        begun, and goes on first.
        """
        starts = self._lifecycles[before.key].started
        began = [0.0 if start["attempt"] > 1 else clock(start["at"]) for start in starts]
        return self._overflowed(late.thread, min([before.at - LANDS_WITHIN_S, *began]), late.at)

    def _overflowed(self, thread: str, start: float, end: float) -> bool:
        """Say whether the process died in that time, with messages of the thread on their way to a refusal."""
        those = (sent for sent in self._record.sent.values() if sent.number < REACTIONS_FROM)
        many = sum(sent.thread == thread for sent in those) > self._record.mailbox
        return many and any(start <= death <= end for death in self._record.deaths)

    def _went_on_after_delete(self, sent: Sent, life: Lifecycle) -> bool:
        """Say whether a turn came to an answer, or began at all, although its message was deleted before.

        A turn that another message has joined goes on, for that one.
        """
        deleted = sent.deleted_at
        if deleted is None or self._has_joined(sent):
            return False
        first = [clock(life.answered_at)] if life.answered_at else []
        first += [clock(start["at"]) for start in life.started[:1] if start["attempt"] == 1]
        return any(at > deleted and not self._overflowed(sent.thread, deleted, at) for at in first)

    def _has_joined(self, sent: Sent) -> bool:
        others = (other for other in self._record.sent.values() if other.thread == sent.thread)
        lives = (self._lifecycles[other.key] for other in others if not other.command)
        return any((life.outcome, life.by) == ("merged", sent.id) for life in lives)

    def _folders(self) -> Iterator[str]:
        for path, data in self._files.items():
            parts = path.split("/")
            if parts[-1] not in ("context.jsonl", "log.jsonl"):
                continue
            place = int(parts[-2].rsplit("~", 1)[1].split(".")[0])
            lines = list(read_lines(data))
            if any(int(thread) != place for thread in re.findall(rb"tk(\d+)x\d+x\d+z", data)):
                yield f"{path}: another thread's words"
            if parts[-1] == "context.jsonl":
                if None in lines:
                    yield f"{path}: a damaged line"
                users = [line["message"] for line in lines if line and line["message"]["role"] == "user"]
                sources = [message["source"] for message in users]
                yield from (f"{path}: {s} {n} times" for s, n in repeated(sources).items())
                yield from self._remembered(
                    path, set(sources), self._files.get(path.replace(".jsonl", ".old.jsonl"), b"")
                )
            else:
                ends = [line["message_id"] for line in lines if line and line["kind"] == "settled"]
                yield from (f"{path}: {m} settled {n} times" for m, n in repeated(ends).items())
                yield from self._log_agrees(path, lines)

    def _remembered(self, path: str, sources: set[str], old: bytes) -> Iterator[str]:
        """What was answered stays in the conversation, or the thread was told that it could not be kept."""
        sources |= {line["message"]["source"] for line in read_lines(old) if line}
        place = path.split("/")[-2].rsplit("~", 1)[1]
        for key, sent in self._record.sent.items():
            posts = self._posts[key]
            if not sent.thread.endswith(f":{place}") or sent.id in sources or not posts:
                continue
            if (
                posts[0].kind == "reply"
                and not _of_no_conversation(sent, self._record.sent.values())
                and not self._admitted(sent.thread)
                and posts[0].at > self._record.forgotten.get(sent.thread, 0.0)
            ):
                yield f"{path}: {key} was answered and forgotten"

    def _gone(self) -> Iterator[str]:
        """What people had forgotten is in no file. The run of a playbook is left out: `/forget` leaves it."""
        for path, data in self._files.items():
            told = {f"m{int(a)}-{int(b)}" for a, b in re.findall(rb"tk(\d+)x(\d+)x\d+z", data)}
            if not path.endswith("/playbooks.json"):
                yield from (f"{path}: {one} was forgotten" for one in sorted(told & self._record.gone))

    def _admitted(self, thread: str) -> bool:
        return any(
            said in post.text for post in self._record.posts if post.thread == thread for said in ADMISSIONS
        )

    def _log_agrees(self, path: str, lines: list[dict[str, Any] | None]) -> Iterator[str]:
        by_id = {sent.id: self._lifecycles[key].outcome for key, sent in self._record.sent.items()}
        for line in lines:
            if line and line["kind"] == "settled" and by_id.get(line["message_id"]) != line["outcome"]:
                yield f"{path}: {line['message_id']} {line['outcome']}, journal {by_id.get(line['message_id'])}"


def _of_no_conversation(sent: Sent, others: Iterable[Sent]) -> bool:
    """Say whether a command may be answered without the conversation: also a /retry of such a command."""
    before = (one for one in others if one.thread == sent.thread) if sent.command.startswith("/retry") else ()
    return any(one.command.startswith(("/play", "/compact")) for one in (sent, *before))
