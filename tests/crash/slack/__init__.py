"""The crash run in Slack: the real SDKs over loopback sockets, a workspace that outlives the bot, and its own judge."""
