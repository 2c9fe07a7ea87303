"""What the bot reports about itself: logs, metrics, traces, audit, health pages, watchdog."""
