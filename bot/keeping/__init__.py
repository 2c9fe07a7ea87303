"""Keeping a data folder for years: what is in it, copies of it while the bot runs, and its way to newer versions."""
