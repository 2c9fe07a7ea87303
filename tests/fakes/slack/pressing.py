"""Buttons, slash commands and message shortcuts: what arrives as ``interactive`` and ``slash_commands``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.slack.deliveries import Delivery
from tests.fakes.slack.events import Events
from tests.fakes.slack.records import APP, TEAM, Ephemeral, Json, Message


class Pressing(Events):
    @property
    def url(self) -> str:
        raise NotImplementedError

    def press(
        self, user: str, ts: str, action: str, value: str | None = None, *, stale: bool = False
    ) -> Delivery:
        """Press the button with that ``action_id`` (and *value*, if several share it) on a message.

        A button that is not shown cannot be pressed (LookupError), unless the view is *stale*.
        """
        shown = self._shown(ts)
        found = next(_buttons(shown.blocks or [], action, value), None)
        if found is None and not stale:
            raise LookupError(f"no button {action!r} {value!r} on {ts}")
        block_id, kind, label, pressed = found or ("b0", "button", "?", value or "")
        channel = self.channels[shown.channel]
        ephemeral = isinstance(shown, Ephemeral)
        container: Json = {"type": "message", "message_ts": ts, "channel_id": channel.id}
        container["is_ephemeral"] = ephemeral
        if shown.thread_ts:
            container["thread_ts"] = shown.thread_ts
        payload = {
            "type": "block_actions",
            "user": {"id": user, "username": user.lower(), "name": user.lower(), "team_id": TEAM},
            "api_app_id": APP,
            "token": "verification",
            "trigger_id": f"{next(self.serial)}.1.fake",
            "team": {"id": TEAM, "domain": "fake"},
            "enterprise": None,
            "is_enterprise_install": False,
            "container": container,
            "channel": {"id": channel.id, "name": "directmessage" if channel.kind == "im" else channel.name},
            "state": {"values": {}},
            "response_url": f"{self.url}/actions/{TEAM}/{next(self.serial)}/key",
            "actions": [
                {
                    "action_id": action,
                    "block_id": block_id,
                    "text": {"type": "plain_text", "text": label, "emoji": True},
                    "value": pressed,
                    "type": kind,
                    "action_ts": self.next_ts(),
                }
            ],
        }
        if isinstance(shown, Message):
            payload["message"] = shown.view()
        return self.sockets.deliver("interactive", payload)

    def command(
        self, user: str, channel: str, command: str, text: str = "", thread_ts: str | None = None
    ) -> Delivery:
        """A slash command; the delivery's ack may carry the answer."""
        payload = {
            "token": "verification",
            "team_id": TEAM,
            "team_domain": "fake",
            "channel_id": channel,
            "channel_name": "directmessage" if channel.startswith("D") else self.channels[channel].name,
            "user_id": user,
            "user_name": user.lower(),
            "command": command,
            "text": text,
            "api_app_id": APP,
            "is_enterprise_install": "false",
            "response_url": f"{self.url}/actions/{TEAM}/{next(self.serial)}/key",
            "trigger_id": f"{next(self.serial)}.1.fake",
        }
        return self.sockets.deliver(
            "slash_commands", payload | ({"thread_ts": thread_ts} if thread_ts else {})
        )

    def shortcut(self, user: str, ts: str, callback_id: str = "ask") -> Delivery:
        """A choice in the menu of a message: ``message_action``, also where the bot is not a member."""
        message = self.message(ts)
        channel = self.channels[message.channel]
        payload = {
            "type": "message_action",
            "token": "verification",
            "action_ts": self.next_ts(),
            "team": {"id": TEAM, "domain": "fake"},
            "user": {"id": user, "username": user.lower(), "team_id": TEAM, "name": user.lower()},
            "channel": {"id": channel.id, "name": "directmessage" if channel.kind == "im" else channel.name},
            "is_enterprise_install": False,
            "enterprise": None,
            "callback_id": callback_id,
            "trigger_id": f"{next(self.serial)}.1.fake",
            "response_url": f"{self.url}/app/{TEAM}/{next(self.serial)}/key",
            "message_ts": ts,
            "message": message.view(),
        }
        return self.sockets.deliver("interactive", payload)

    def _shown(self, ts: str) -> Message | Ephemeral:
        for post in self.ephemerals:
            if post.ts == ts:
                return post
        return self.message(ts)


def _buttons(blocks: Any, action: str, value: str | None) -> Iterator[tuple[str, str, str, str]]:
    """(block id, element type, label, value) of the elements with that action id."""
    for number, block in enumerate(blocks):
        elements = [*block.get("elements", ()), *([block["accessory"]] if "accessory" in block else ())]
        for element in elements:
            if element.get("action_id") != action:
                continue
            sides = [element.get("positive_button"), element.get("negative_button")]
            for one in sides if element["type"] == "feedback_buttons" else [element]:
                if value in (None, one.get("value", "")):
                    label = one.get("text", {}).get("text", "")
                    yield block.get("block_id", f"b{number}"), element["type"], label, one.get("value", "")
