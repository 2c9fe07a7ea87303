"""What Slack tells the bot: the events, and those that follow from a change of a message."""

from __future__ import annotations

from typing import Any

from tests.fakes.slack.deliveries import Delivery
from tests.fakes.slack.records import APP, BOT_USER, KIND_IN_EVENTS, TEAM, Json, Message
from tests.fakes.slack.sockets import Sockets
from tests.fakes.slack.workspace import Workspace


class Events(Workspace):
    sockets: Sockets
    echoes: bool

    def event(self, event: Json, *, event_id: str | None = None) -> Delivery:
        """Deliver any event: an unknown type, one with missing fields, the same ``event_id`` twice."""
        number = next(self.serial)
        return self.sockets.deliver(
            "events_api",
            {
                "token": "verification",
                "team_id": TEAM,
                "context_team_id": TEAM,
                "context_enterprise_id": None,
                "api_app_id": APP,
                "event": event,
                "type": "event_callback",
                "event_id": event_id or f"Ev{number:08}",
                "event_time": int(self._last_ts // 1_000_000),
                "authorizations": [
                    {
                        "enterprise_id": None,
                        "team_id": TEAM,
                        "user_id": BOT_USER,
                        "is_bot": True,
                        "is_enterprise_install": False,
                    }
                ],
                "is_ext_shared_channel": False,
                "event_context": f"4-{number}",
            },
        )

    def redeliver(self, delivery: Delivery) -> Delivery:
        """The same event once more, as after a lost ack: new envelope id, same event id."""
        again = Delivery(delivery.kind, delivery.payload)
        again.attempt, again.reason = delivery.attempt + 1, "timeout"
        self.sockets.deliveries.append(again)
        self.sockets.send(again)
        return again

    def message_event(self, message: Message, kind: str, more: Json) -> Delivery:
        event = message.view() | {"type": kind, "event_ts": message.ts, "channel": message.channel}
        if kind == "message":
            event["channel_type"] = KIND_IN_EVENTS[self.channels[message.channel].kind]
        else:
            event.pop("subtype", None)
        if message.thread_ts:
            root = self.channels[message.channel].messages.get(message.thread_ts)
            event["parent_user_id"] = root.user if root else None
            if message.subtype == "thread_broadcast" and root:
                event["root"] = root.view()
        for name, value in more.items():
            if value is None:
                event.pop(name, None)
            else:
                event[name] = value
        return self.event(event)

    def echo(self, message: Message) -> None:
        """The bot's own post comes back as an event (with its bot_id)."""
        if self.echoes:
            self.message_event(message, "message", {})

    def echo_change(self, message: Message, before: Json, *, force: bool = False) -> Any:
        rest = {"message": message.view(), "previous_message": before}
        return self._hidden(message, force, {"subtype": "message_changed"} | rest)

    def echo_delete(self, message: Message, *, force: bool = False) -> Any:
        rest = {"deleted_ts": message.ts, "previous_message": message.view()}
        return self._hidden(message, force, {"subtype": "message_deleted"} | rest)

    def _hidden(self, message: Message, force: bool, more: Json) -> Delivery | None:
        self.changed()
        if not (self.echoes or force):
            return None
        stamp = self.next_ts()
        kind = KIND_IN_EVENTS[self.channels[message.channel].kind]
        event = {"type": "message", "hidden": True, "channel": message.channel, "ts": stamp}
        return self.event(event | {"event_ts": stamp, "channel_type": kind} | more)
