"""Reading the messages that were missed while the bot was away: high-water marks and catch-up."""
