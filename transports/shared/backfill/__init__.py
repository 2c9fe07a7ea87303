"""Reading what was said while the bot was away: high-water marks and catch-up."""
