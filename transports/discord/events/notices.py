"""What Discord itself says in a channel, by the type of the message; pure.

https://docs.discord.com/developers/resources/message#message-object-message-types
"""

from __future__ import annotations

from collections.abc import Mapping

from discord import MessageType

SPOKEN_TYPES = (MessageType.default, MessageType.reply)
"""The types of messages that people write."""

COMMAND_TYPES = (MessageType.chat_input_command, MessageType.context_menu_command)
"""The types of a bot's answers to commands."""

STARTER = MessageType.thread_starter_message
"""The type of the first line in a thread that was opened from a message: it points to that."""

NOTICES: Mapping[MessageType, str] = {
    STARTER: "The message that this thread was opened from is deleted, or hidden from me.",
    MessageType.recipient_add: "{who} added {whom}.",
    MessageType.recipient_remove: "{who} removed {whom}.",
    MessageType.call: "{who} started a call.",
    MessageType.channel_name_change: "{who} changed the name: {what}",
    MessageType.channel_icon_change: "{who} changed the icon.",
    MessageType.pins_add: "{who} pinned a message.",
    MessageType.new_member: "{who} joined the server.",
    MessageType.premium_guild_subscription: "{who} boosted the server.",
    MessageType.premium_guild_tier_1: "{who} boosted the server, and it reached level 1.",
    MessageType.premium_guild_tier_2: "{who} boosted the server, and it reached level 2.",
    MessageType.premium_guild_tier_3: "{who} boosted the server, and it reached level 3.",
    MessageType.channel_follow_add: "{who} follows a channel, and its news appear here: {what}",
    MessageType.guild_stream: "{who} is live.",
    MessageType.guild_discovery_disqualified: "The server is not in Server Discovery any more.",
    MessageType.guild_discovery_requalified: "The server is in Server Discovery again.",
    MessageType.guild_discovery_grace_period_initial_warning: (
        "The server has not met the rules of Server Discovery for 1 week."
    ),
    MessageType.guild_discovery_grace_period_final_warning: (
        "The server has not met the rules of Server Discovery for 3 weeks."
    ),
    MessageType.thread_created: "{who} started a thread: {what}",
    MessageType.guild_invite_reminder: "Discord suggests inviting people.",
    MessageType.auto_moderation_action: "AutoMod acted on a message of {who}.",
    MessageType.role_subscription_purchase: "{who} bought a membership.",
    MessageType.interaction_premium_upsell: "An app offers a purchase.",
    MessageType.stage_start: "{who} started the stage: {what}",
    MessageType.stage_end: "{who} ended the stage: {what}",
    MessageType.stage_speaker: "{who} is now a speaker.",
    MessageType.stage_raise_hand: "{who} asks to speak.",
    MessageType.stage_topic: "{who} changed the topic of the stage: {what}",
    MessageType.guild_application_premium_subscription: "{who} upgraded an app.",
    MessageType.guild_incident_alert_mode_enabled: "{who} turned security actions on until {what}",
    MessageType.guild_incident_alert_mode_disabled: "{who} turned security actions off.",
    MessageType.guild_incident_report_raid: "{who} reported a raid.",
    MessageType.guild_incident_report_false_alarm: "{who} reported a false alarm.",
    MessageType.purchase_notification: "{who} bought something in the server's shop.",
    MessageType.poll_result: "The poll of {who} has ended.",
    MessageType.emoji_added: "{who} added an emoji: {what}",
}
"""``{who}`` is the author, ``{whom}`` the person that the message names, ``{what}`` its text."""

UNKNOWN = "a message of type {kind} that I cannot read"
