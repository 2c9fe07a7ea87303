"""A workspace that outlives the bot, and the people in it; what happened is written down for the judge at the end.

Events come again after ``ACK_BUDGET_S``, and twice more; whatever is said while the bot is down gets no event at all
in half of the cases. Nothing here hides a second message that says the same.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tests.crash.chat_platform import NEVER_S, QUIET_S, ChatPlatform
from tests.crash.child import STRANGER
from tests.crash.slack.faults import SlackChance
from tests.fakes.slack import Delivery, FakeSlack, File, Message, Said
from tests.fakes.slack.records import BOT_USER, Json
from tests.judge.crash import FORGET, FORGOTTEN
from tests.judge.slack import SlackJudge

ACK_BUDGET_S = 0.6
REDELIVER_AFTER_S = (0.0, 1.0, 2.5)
CHANNELS = tuple(f"C{number}" for number in range(1, 9))
PEOPLE = tuple(f"U{number}" for number in range(1, 9))
ODD = "&lt;b&gt; &amp;amp; é 漢 \U0001f600 *x*"
ODD_READ = "<b> &amp; é 漢 \U0001f600 *x*"
STEPS = (
    *("deliver", "ack", "conversations.replies", "conversations.history"),
    *(
        f"chat.{method}{when}"
        for method in ("postMessage", "startStream", "appendStream", "stopStream", "update")
        for when in ("", " done")
    ),
)


@dataclass(slots=True)
class Spoken:
    """One message of a person. ``must``: it is owed an outcome. ``alone``: only its author sees that."""

    token: str
    channel: str
    root: str
    user: str
    texts: list[str]
    said: list[Said]
    must: bool
    command: bool = False
    deleted: bool = False
    alone: bool = False
    at: float = field(default_factory=time.monotonic)

    @property
    def line(self) -> Json:
        stamps = [said.ts for said in self.said]
        roots = list(dict.fromkeys(said.message.root for said in self.said))
        acked = [event.acked_at for said in self.said for event in said.events if event.acked]
        return {
            "id": stamps[0],
            "ids": stamps,
            "thread": f"slack:T1:{self.channel}:{roots[0]}",
            "threads": [f"slack:T1:{self.channel}:{root}" for root in roots],
            "token": self.token,
            "text": self.texts[0],
            "texts": self.texts,
            "must": self.must and not self.deleted,
            "command": self.command,
            "deleted": self.deleted,
            "alone": self.alone,
            "said_at": self.at,
            "acked_at": min(acked, default=None),
        }


class Workspace(FakeSlack):
    """The fake, which trips the chance at each delivery and acknowledgement."""

    def __init__(self, chance: SlackChance, **given: Any) -> None:
        hurried = {"ack_budget": ACK_BUDGET_S, "redeliver_after": REDELIVER_AFTER_S, "rate_scale": 10}
        super().__init__(rate_limits=True, **(hurried | given))
        self.script = self.chance = chance
        send = self.sockets.send

        def sending(delivery: Delivery) -> None:
            send(delivery)
            if delivery.state == "sent":
                chance.trip("deliver")

        self.sockets.send = sending  # type: ignore[method-assign]
        self._known = 0

    def changed(self) -> None:
        super().changed()
        if self.acked > self._known:
            self._known = self.acked
            self.chance.trip("ack")


class Place(ChatPlatform):
    """Slack. *given* is for the fake, whose own times are not shortened then."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        late_s: float,
        crowd: int,
        pause_s: float,
        channels: tuple[str, ...] = CHANNELS,
        people: tuple[str, ...] = PEOPLE,
        forgets: float = 0,
        **given: Any,
    ) -> None:
        self._forgets = forgets
        chance = SlackChance(random.Random(f"{seed} faults"), late_s, self._refused)
        super().__init__(folder, chance, seed=seed, crowd=crowd, pause_s=pause_s, people=people)
        self._channels = channels
        self.fake = self._slack = Workspace(chance, **given)
        self._threads = itertools.count(1)
        self._spoken: list[Spoken] = []
        for user in (*people, STRANGER):
            self._slack.user(user)
            self._slack.channel(f"D{user}", kind="im", user=user)
        for channel in channels:
            self._slack.channel(channel)

    @property
    def posted(self) -> int:
        return len(self._slack.posts()) + len(self._slack.ephemerals)

    @property
    def owed(self) -> float:
        """Count the messages without an end in the bot's journal."""
        self._journal.look()
        taken, settled = self._journal.taken, self._journal.settled
        lines = [spoken.line for spoken in self._spoken]
        unsettled = (line for line in SlackJudge.due(lines) if not settled.intersection(line["ids"]))
        return len(taken.keys() - settled) + len(list(unsettled))

    async def connected(self) -> None:
        await self._slack.until(lambda: self._slack.sockets.links, 60)
        for channel in self._channels:
            self._slack.join(BOT_USER, channel)

    def delivering(self) -> bool:
        return any(one.state in ("waiting", "sent") for one in self._slack.sockets.deliveries)

    def count_calls(self) -> int:
        """Count the bot's calls without presence calls, which may go on for minutes."""
        return sum(
            call.method.startswith(("chat.", "conversations.", "files.")) for call in self._slack.calls
        )

    def ways_to_cut(self) -> Sequence[Callable[[], None]]:
        return [way for link in self._slack.sockets.links[:1] for way in (link.reset, link.disconnect)]

    def close(self) -> None:
        slack = self._slack
        for spoken in self._spoken:
            self._book.write("sent", **spoken.line)
        for channel in slack.channels.values():
            for message in channel.messages.values():
                if message.ours and not message.deleted:
                    self._book.write("visible", **_seen(message))
        for post in slack.ephemerals:
            self._book.write(
                "ephemeral", ts=post.ts, channel=post.channel, root=post.thread_ts, text=post.text
            )
        for call in slack.calls:  # for whoever looks into a violation
            about = {name: str(value)[:200] for name, value in call.args.items()}
            self._book.write("calls", at=call.at, method=call.method, error=call.error, args=about)
        eyes = sum("eyes" in m.reactions for c in slack.channels.values() for m in c.messages.values())
        self._book.write(
            "left",
            processing=[key for key, session in slack.sessions.items() if session.status == "processing"],
            words=[key for key in slack.words if slack.status(*key)],
            eyes=eyes,
            pings=slack.pings,
            unfurls=slack.unfurls,
            acked=self._acked(),
            presses=self._presses,
            commands=self._commands,
        )

    # people

    async def _conversation(self, person: random.Random) -> None:
        number, user = f"{next(self._threads):04}", person.choice(self._people)
        direct = person.random() < 0.4
        channel = f"D{user}" if direct else person.choice(self._channels)
        root = self._say(number, 0, user, channel, "", person)
        if len(root.said) > 1:
            return
        for count in range(1, person.choice((1, 1, 2, 4, 7))):
            await self._pause(person)
            if person.random() < 0.3:
                await self._wait_for_answer(lambda: self._answered(channel, root.root))
            if not self.talking:
                return
            await self._act(number, count, user, root, person)

    async def _act(self, number: str, count: int, user: str, root: Spoken, person: random.Random) -> None:
        channel, slack = root.channel, self._slack
        kind = person.random()
        if kind < 0.06:
            said = self._say(number, count, user, channel, root.root, person)
            await anyio.sleep(person.uniform(0, 0.3))
            if said.deleted is False and len(said.said) == 1:
                said.texts.append(f"please answer {said.token} anew")
                slack.edit(said.said[0].ts, self._wire(said.texts[-1], said.said[0].message.text))
        elif kind < 0.11:
            said = self._say(number, count, user, channel, root.root, person)
            await anyio.sleep(person.uniform(0, 0.2))
            said.deleted = True
            for one in said.said:
                slack.delete(one.ts)
        elif kind < 0.17:
            words = person.choice(("status", "stop", "status"))
            self._say(number, count, user, channel, root.root, person, command=words)
        elif kind < 0.19:
            slack.stop(user, channel, root.root)
        elif kind < 0.22:
            self._commands += 1
            slack.command(user, channel, "/threadfast", "status")
        elif kind < 0.25:
            token = f"t{number}m{count:03}"
            text = f"let me {token}"
            said = slack.say(STRANGER, person.choice(self._channels), f"<@{BOT_USER}> {text}")
            place = said.message.channel
            self._spoken.append(
                Spoken(token, place, said.ts, STRANGER, [text], [said], must=True, alone=True)
            )
        elif kind < 0.32:
            self._press(user, channel, root.root)
        elif kind < 0.4 and self._forgets:
            await self._forget(number, count, user, root, person)
        else:
            self._say(number, count, user, channel, root.root, person)

    async def _forget(self, number: str, count: int, user: str, root: Spoken, person: random.Random) -> None:
        """Have the thread forgotten, mostly once all is answered; afterwards Slack delivers all of it again."""
        before = [one for one in self._spoken if (one.channel, one.root) == (root.channel, root.root)]
        if person.random() < 0.8:
            await self._wait_for_answer(lambda: all(map(self._is_settled, before)))
        self._say(number, count, user, root.channel, root.root, person, command=FORGET)
        await self._wait_for_answer(lambda: self._is_forgotten(root))
        for one in before if self._is_forgotten(root) else ():
            for delivery in (event for said in one.said for event in said.events):
                self._slack.redeliver(delivery)

    def _is_quiet(self, channel: str, root: str) -> bool:
        """Whether the bot may know nothing of a thread any more, so that it has to be mentioned."""
        last = max(one.at for one in self._spoken if (one.channel, one.root) == (channel, root))
        return bool(self._forgets) and time.monotonic() - last > self._forgets / 2

    def _is_settled(self, spoken: Spoken) -> bool:
        self._journal.look()
        return any(said.ts in self._journal.settled for said in spoken.said)

    def _is_forgotten(self, root: Spoken) -> bool:
        thread = self._slack.thread(root.channel, root.root)
        return any(message.ours and FORGOTTEN in str(_seen(message)["text"]) for message in thread)

    def _say(
        self,
        number: str,
        count: int,
        user: str,
        channel: str,
        root: str,
        person: random.Random,
        command: str = "",
    ) -> Spoken:
        slack, token = self._slack, f"t{number}m{count:03}"
        joined = bool(root) and self._answered(channel, root)
        named = channel[0] == "C" and (
            not root
            or bool(command)
            or person.random() < (0.2 if joined else 0.8)
            or self._is_quiet(channel, root)
        )
        words = command if command == FORGET else f"{command} {token}"
        text = f"/{words}" if command else f"please answer {token}"
        odd = not command and person.random() < 0.1
        wire = f"<@{BOT_USER}> {text}" if named else text
        quiet = not slack.sockets.links and person.random() < 0.5
        how = {
            "thread_ts": root or None,
            "order": person.choice(("message_first", "mention_first")),
            "quiet": quiet,
            "files": self._files(person),
        }
        said = [slack.say(user, channel, f"{wire} {ODD}" if odd else wire, **how)]
        if person.random() < 0.05 and not command:
            again = said[0].message.client_msg_id
            said.append(slack.say(user, channel, said[0].message.text, client_msg_id=again, **how))
        spoken = Spoken(
            token,
            channel,
            root or said[0].ts,
            user,
            [f"{text} {ODD_READ}" if odd else text],
            said,
            must=named or channel[0] == "D" or joined,
            command=bool(command),
        )
        self._spoken.append(spoken)
        for delivery in said[0].events:
            if person.random() < 0.08:
                self._slack.redeliver(delivery)
        return spoken

    def _files(self, person: random.Random) -> list[File]:
        """Return what is sent along."""
        return []

    def _press(self, user: str, channel: str, root: str) -> None:
        """Press any button that is there."""
        for message in reversed(self._slack.thread(channel, root)):
            for action in actions(message.blocks or ()) if message.ours else ():
                self._slack.press(user, message.ts, *action)
                self._presses += action[0].startswith("choice")
                return

    def _answered(self, channel: str, root: str) -> bool:
        """Whether an answer is there, so that people see that the bot takes part."""
        return any(
            message.ours and " of " in message.text and _tag(message) and not _tag(message).get("draft")
            for message in self._slack.thread(channel, root)
        )

    def _wire(self, text: str, before: str) -> str:
        return f"<@{BOT_USER}> {text}" if before.startswith("<@") else text

    # for the judge

    def _acked(self) -> dict[str, int]:
        """Count what was acknowledged and no catch-up would find: one press is many if it came, or was made, again."""
        made: dict[str, set[str]] = {"slash": set(), "press": set(), "stop": set()}
        for delivery in self._slack.sockets.deliveries:
            match delivery.payload:
                case _ if not delivery.acked:
                    continue
                case {"command": str(), "trigger_id": str(trigger)}:
                    made["slash"].add(trigger)
                case {"actions": [{"action_id": str(name), "value": str(value)}]} if name.startswith(
                    "choice"
                ):
                    about = delivery.payload
                    made["press"].add(f"{about['user']['id']} {about['container']['message_ts']} {value}")
                case {"event_id": str(event_id), "event": {"type": "agent_session_stopped"}}:
                    made["stop"].add(event_id)
        return {kind: len(ids) for kind, ids in made.items()}

    def _refused(self, method: str, args: Json, error: str) -> None:
        channel = str(args.get("channel", args.get("channel_id", "")))
        root = str(args.get("thread_ts") or args.get("ts") or "")
        known = self._slack.channels.get(channel)
        message = known.messages.get(root) if known else None
        thread = f"slack:T1:{channel}:{message.root if message else root}"
        self._book.write("refused", thread=thread, call=method, error=error)


class Threads(Place):
    """People who each stay in one thread, and press what they are asked there (``presses``), or nothing."""

    def __init__(self, folder: Path, *, presses: bool, **given: Any) -> None:
        super().__init__(folder, **given)
        self._cut_every_s, self._quiet_s, self._does_press = NEVER_S, QUIET_S, presses

    async def _converse(self, person: random.Random) -> None:
        number, user = f"{next(self._threads):04}", person.choice(self._people)
        channel = f"D{user}" if person.random() < 0.4 else person.choice(self._channels)
        root = self._say(number, 0, user, channel, "", person).root
        async with anyio.create_task_group() as both:
            if self._does_press:
                both.start_soon(self._answer, user, channel, root)
            for count in itertools.count(1):
                await self._pause(person)
                if not self.talking:
                    break
                self._say(number, count, user, channel, root, person)

    async def _answer(self, user: str, channel: str, root: str) -> None:
        """Press the first button of each question, once, also after people have fallen silent.

        Nobody retries: what fails always fails, and the run would not end.
        """
        pressed = set[str]()
        while True:
            await anyio.sleep(0.5)
            for message in self._slack.thread(channel, root):
                for action in (
                    actions(message.blocks or ()) if message.ours and message.ts not in pressed else ()
                ):
                    if action[0].startswith("choice") and "/retry" not in action[1]:
                        pressed.add(message.ts)
                        self._slack.press(user, message.ts, *action)
                        self._presses += 1
                        break


def _tag(message: Message) -> Json:
    return (message.metadata or {}).get("event_payload", {})


def _seen(message: Message) -> Json:
    """What a message shows: the Markdown of its blocks, or else its text; and what it says of itself."""
    blocks = message.blocks or ()
    shown = "\n".join(block["text"] for block in blocks if block["type"] == "markdown")
    files = [{"name": file.name, "text": file.content.decode("utf-8", "replace")} for file in message.files]
    return {
        "channel": message.channel,
        "ts": message.ts,
        "root": message.root,
        "text": shown or message.text,
        "tag": _tag(message),
        "files": files,
        "streaming": bool(message.stream and message.stream.state == "streaming"),
    }


def actions(blocks: Iterable[Json]) -> Iterable[tuple[str, str]]:
    for block in blocks:
        for element in block.get("elements", ()):
            for side in (element, element.get("positive_button") or {}):
                if "value" in side and "action_id" in element:
                    yield element["action_id"], side["value"]
