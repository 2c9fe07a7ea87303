"""A copy of the data folder, made while the bot runs."""
